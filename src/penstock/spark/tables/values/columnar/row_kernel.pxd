# C types for columnar/row_kernel.py, read by Cython when it compiles that file. They change no result.

cimport cython

from penstock.spark.encode.binary_column cimport BinaryColumn
from penstock.spark.tables.values.columnar.byte_reader cimport ByteReader
from penstock.spark.tables.values.columnar.columns cimport ArrowColumns

cdef int _READ, _DOUBT, _GROW


cdef class RowKernel:
    cdef readonly ArrowColumns columns
    cdef readonly ByteReader reader
    cdef BinaryColumn source
    cdef readonly Py_ssize_t row, skip, doubt_count
    cdef public long long[::1] doubts, row_numbers

    cpdef forget(self)

    cpdef begin(self, BinaryColumn source, Py_ssize_t skip)

    @cython.locals(size=cython.Py_ssize_t, code=cython.int)
    cpdef int run(self) except -1

    cpdef leave_row(self)

    cdef int read_row(self) except -1
