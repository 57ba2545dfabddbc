# C types for avro/kernel.py, read by Cython when it compiles that file. They change no result: every value fits its type by
# the checks there, and tests compare the two on hostile bytes.

cimport cython

from penstock.spark.tables.values.columnar.columns cimport ArrowColumns
from penstock.spark.tables.values.columnar.row_kernel cimport RowKernel

cdef int _NULL, _BOOLEAN, _INT, _LONG, _FLOAT, _WIDE_FLOAT, _DOUBLE, _BYTES, _TEXT, _FIXED, _ENUM, _DECIMAL, _FIXED_DECIMAL
cdef int _DATE, _MILLISECONDS, _MICROSECONDS, _RECORD, _UNION, _ARRAY, _READ, _DOUBT, _GROW, _DECIMAL_BYTES_MAX, _KEYS_MAX
cdef unsigned long long _MASK_64
cdef long long _COUNT_MAX, _INT_END, _FIRST_DAY, _LAST_DAY, _FIRST_MILLISECOND, _LAST_MILLISECOND


cdef class AvroKernel(RowKernel):
    cdef readonly Py_ssize_t nodes
    cdef readonly long long[::1] operations, fields, first_children, child_counts, sizes, levels
    cdef readonly unsigned long long[::1] limits_high, limits_low
    cdef public long long[::1] symbol_starts, symbol_sizes
    cdef unsigned int[::1] as_bits
    cdef float[::1] as_float

    @cython.locals(code=cython.int)
    cdef int read_row(self) except -1

    @cython.locals(operation=cython.longlong, field=cython.Py_ssize_t, value=cython.longlong)
    cdef int read(self, Py_ssize_t node) except -1

    @cython.locals(byte=cython.int)
    cdef int read_boolean(self, Py_ssize_t field) noexcept

    cdef int read_fraction(self, Py_ssize_t field, long long operation) noexcept

    @cython.locals(number=cython.longlong)
    cdef inline int signed_32(self) noexcept

    @cython.locals(field=cython.Py_ssize_t, size=cython.longlong, start=cython.Py_ssize_t)
    cdef int read_special(self, Py_ssize_t node, long long operation) except -1

    cdef int put_time(self, Py_ssize_t field, long long operation, long long value) noexcept

    @cython.locals(number=cython.longlong, symbol=cython.Py_ssize_t)
    cdef int read_symbol(self, Py_ssize_t node, Py_ssize_t field) noexcept

    @cython.locals(high=cython.ulonglong, low=cython.ulonglong, is_negative=cython.bint, index=cython.Py_ssize_t,
                   size_high=cython.ulonglong, size_low=cython.ulonglong, limit=cython.ulonglong)
    cdef int put_decimal(self, Py_ssize_t node, Py_ssize_t start, Py_ssize_t size) noexcept

    @cython.locals(first=cython.Py_ssize_t, end=cython.Py_ssize_t, code=cython.int, branch=cython.longlong)
    cdef int read_nested(self, Py_ssize_t node, long long operation) except -1

    @cython.locals(level=cython.Py_ssize_t, first=cython.Py_ssize_t, count=cython.longlong, code=cython.int)
    cdef int read_blocks(self, Py_ssize_t node, long long operation) except -1

    @cython.locals(child=cython.Py_ssize_t, code=cython.int)
    cdef int read_item(self, Py_ssize_t node, long long operation, Py_ssize_t level, Py_ssize_t first) except -1

    @cython.locals(index=cython.Py_ssize_t)
    cdef bint is_known_key(self, Py_ssize_t field, Py_ssize_t first, Py_ssize_t last) noexcept
