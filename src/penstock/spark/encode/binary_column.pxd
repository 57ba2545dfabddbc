# C types for binary_column.py, read by Cython when it compiles that file. They change no result: every value fits its type
# by the checks there, and tests compare the two.

cimport cython

cdef unsigned long long _SEED, _M, _MASK, _MASK_64, _FACTOR, _OTHER_FACTOR
cdef int _R


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

    @cython.locals(value=cython.ulonglong, index=cython.Py_ssize_t, whole_end=cython.Py_ssize_t, k=cython.ulonglong,
                   rest=cython.ulonglong, shift=cython.int)
    cpdef unsigned long long murmur2(self, Py_ssize_t length) noexcept

    @cython.locals(first=cython.ulonglong, last=cython.ulonglong, value=cython.ulonglong, step=cython.Py_ssize_t,
                   index=cython.Py_ssize_t)
    cdef unsigned long long digest(self, unsigned long long seed, long long length) noexcept

    @cython.locals(lowest=cython.ulonglong, low=cython.ulonglong, high=cython.ulonglong, highest=cython.ulonglong)
    cdef inline unsigned long long word(self, Py_ssize_t at) noexcept
