# C types for binary_column.py, read by Cython when it compiles that file. They change no result: every value fits its type
# by the checks there, and tests compare the two.

cimport cython


@cython.final
cdef class BinaryColumn:
    cdef readonly Py_ssize_t rows
    cdef readonly bint is_null
    cdef bint has_validity
    cdef Py_ssize_t first
    cdef const unsigned char[::1] data
    cdef const unsigned char[::1] validity
    cdef const int[::1] offsets
    cdef readonly Py_ssize_t start

    @cython.locals(index=cython.Py_ssize_t, start=cython.longlong, end=cython.longlong)
    cpdef Py_ssize_t locate(self, Py_ssize_t row) except -2
