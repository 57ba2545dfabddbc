# C types for json/columns.py, read by Cython when it compiles that file. They change no result: every value fits its type by
# the checks there, and tests compare the two on hostile bytes.

cimport cython

from penstock.spark.tables.values.json.double cimport DoubleReader
from penstock.spark.tables.values.json.scan cimport JsonScanner
from penstock.spark.tables.values.json.time cimport TimeReader

cdef int _READ, _DOUBT, _PROBLEM, _GROW
cdef int _STRUCT, _BOOLEAN, _INT8, _INT16, _INT32, _INT64, _FLOAT, _DOUBLE, _STRING, _DATE, _TIMESTAMP, _TIMESTAMP_NTZ, _LETTER_T
cdef double _FLOAT_END
cdef unsigned long long _SECONDS_MAX
cdef long long _MICROSECONDS


@cython.final
cdef class JsonColumns:
    cdef JsonScanner scanner
    cdef DoubleReader doubles
    cdef TimeReader times
    cdef readonly Py_ssize_t fields
    cdef readonly long long[::1] kinds, bases, validity_bases, text_bases, text_ends, nulls
    cdef long long[::1] filled
    cdef readonly Py_ssize_t filled_count, rows, full_field
    cdef long long attempt
    cdef unsigned char[::1] bytes
    cdef public unsigned char[::1] texts
    cdef short[::1] shorts
    cdef int[::1] integers
    cdef long long[::1] longs
    cdef unsigned long long[::1] unsigned_longs
    cdef float[::1] floats

    cpdef forget(self)

    cpdef set_buffer(self, object buffer)

    @cython.locals(field=cython.Py_ssize_t)
    cpdef begin(self)

    cpdef Py_ssize_t text_size(self, Py_ssize_t field)

    cdef inline void begin_row(self) noexcept

    @cython.locals(field=cython.Py_ssize_t)
    cdef void finish_row(self) noexcept

    @cython.locals(kind=cython.longlong, at=cython.Py_ssize_t)
    cdef void write_null(self, Py_ssize_t field) noexcept

    @cython.locals(at=cython.Py_ssize_t, bit=cython.int)
    cdef inline void write_bit(self, Py_ssize_t base, bint is_set) noexcept

    cdef inline int fill(self, Py_ssize_t field) noexcept

    @cython.locals(kind=cython.longlong)
    cdef int put_text(self, Py_ssize_t field) except -1

    @cython.locals(at=cython.Py_ssize_t, offset=cython.longlong, target=cython.Py_ssize_t, size=cython.Py_ssize_t)
    cdef inline int put_bytes(self, Py_ssize_t field, Py_ssize_t start, Py_ssize_t end) noexcept

    @cython.locals(index=cython.Py_ssize_t)
    cdef inline void copy(self, Py_ssize_t at, Py_ssize_t start, Py_ssize_t count) noexcept

    @cython.locals(at=cython.Py_ssize_t, start=cython.Py_ssize_t, end=cython.Py_ssize_t)
    cdef int put_time(self, Py_ssize_t field, long long kind) except -1

    @cython.locals(kind=cython.longlong)
    cdef int put_literal(self, Py_ssize_t field, int letter, Py_ssize_t start) noexcept

    @cython.locals(kind=cython.longlong, seconds=cython.longlong, at=cython.Py_ssize_t)
    cdef int put_number(self, Py_ssize_t field, Py_ssize_t start) noexcept

    @cython.locals(at=cython.Py_ssize_t, value=cython.double)
    cdef inline int put_fraction(self, Py_ssize_t field, long long kind) noexcept

    @cython.locals(size=cython.ulonglong, value=cython.longlong, at=cython.Py_ssize_t)
    cdef inline int put_integer(self, Py_ssize_t field, long long kind) noexcept
