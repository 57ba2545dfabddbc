# C types for json/columns.py, read by Cython when it compiles that file. They change no result: every value fits its type by
# the checks there, and tests compare the two on hostile bytes.

cimport cython

from penstock.spark.tables.values.columnar.columns cimport ArrowColumns
from penstock.spark.tables.values.json.double cimport DoubleReader
from penstock.spark.tables.values.json.scan cimport JsonScanner
from penstock.spark.tables.values.json.time cimport TimeReader

cdef int _READ, _DOUBT, _PROBLEM, _GROW
cdef int _BOOLEAN, _INT8, _INT16, _INT32, _INT64, _FLOAT, _DOUBLE, _STRING, _DATE, _TIMESTAMP, _TIMESTAMP_NTZ, _DECIMAL
cdef int _MINUS, _ZERO, _NINE, _LETTER_T, _SHIFT_MAX
cdef double _FLOAT_END
cdef unsigned long long _SECONDS_MAX, _MASK_32, _MASK_64
cdef long long _MICROSECONDS


@cython.final
cdef class JsonColumns:
    cdef JsonScanner scanner
    cdef ArrowColumns columns
    cdef readonly DoubleReader doubles
    cdef TimeReader times
    cdef readonly long long[::1] kinds, scales
    cdef readonly unsigned long long[::1] limits_high, limits_low
    cdef long long[::1] filled
    cdef long long stamp

    cdef inline int fill(self, Py_ssize_t field) noexcept

    @cython.locals(kind=cython.longlong)
    cdef int put_text(self, Py_ssize_t field) except -1

    @cython.locals(size=cython.Py_ssize_t, target=cython.Py_ssize_t)
    cdef int put_bytes(self, Py_ssize_t field, Py_ssize_t start, Py_ssize_t end) noexcept

    @cython.locals(start=cython.Py_ssize_t, end=cython.Py_ssize_t)
    cdef int put_time(self, Py_ssize_t field, long long kind) except -1

    @cython.locals(kind=cython.longlong)
    cdef int put_literal(self, Py_ssize_t field, int letter, Py_ssize_t start) noexcept

    @cython.locals(kind=cython.longlong, seconds=cython.longlong, value=cython.longlong)
    cdef int put_number(self, Py_ssize_t field, Py_ssize_t start) noexcept

    @cython.locals(value=cython.double)
    cdef inline int put_fraction(self, Py_ssize_t field, long long kind) noexcept

    @cython.locals(size=cython.ulonglong, value=cython.longlong)
    cdef inline int put_integer(self, Py_ssize_t field, long long kind) noexcept

    @cython.locals(position=cython.Py_ssize_t, end=cython.Py_ssize_t, code=cython.int, byte=cython.int, is_number=cython.bint)
    cdef int put_number_in_text(self, Py_ssize_t field) noexcept

    @cython.locals(low=cython.ulonglong, high=cython.ulonglong, shift=cython.longlong, carry=cython.ulonglong, limit=cython.ulonglong)
    cdef int put_decimal(self, Py_ssize_t field) noexcept

    @cython.locals(divisor=cython.ulonglong, whole=cython.ulonglong, rest=cython.ulonglong)
    cdef unsigned long long rounded(self, unsigned long long number, long long digits) noexcept
