# C types for protobuf/kernel.py, read by Cython when it compiles that file. They change no result: every value fits its type by
# the checks there, and tests compare the two on hostile bytes.

cimport cython

from penstock.spark.tables.values.columnar.columns cimport ArrowColumns
from penstock.spark.tables.values.columnar.row_kernel cimport RowKernel

cdef int _BOOL, _INT32, _SINT32, _UINT32, _SINT64, _UINT64, _ENUM, _SFIXED32, _FIXED32, _SFIXED64, _STRING, _MESSAGE, _TIMESTAMP
cdef int _READ, _DOUBT, _GROW, _VARINT_WIRE, _FIXED_64_WIRE, _LENGTH_WIRE, _FIXED_32_WIRE, _NOT_FOUND, _KEYS_MAX
cdef unsigned long long _MASK_32
cdef long long _SIGN_32, _FIRST_SECOND, _LAST_SECOND, _NANOSECONDS_MAX, _MICROSECONDS


cdef class ProtobufKernel(RowKernel):
    cdef public bint has_indexes
    cdef readonly long long[::1] first_entries, entry_counts, is_map_entry
    cdef readonly long long[::1] numbers, operations, fields, levels, item_fields, messages, is_map, has_presence, oneofs
    cdef readonly long long[::1] first_symbols, symbol_counts
    cdef public long long[::1] symbol_numbers, symbol_starts, symbol_sizes
    cdef long long stamp
    cdef long long[::1] filled, oneof_stamps, oneof_entries

    cdef int read_row(self) except -1

    @cython.locals(stamp=cython.longlong, first=cython.Py_ssize_t, end=cython.Py_ssize_t, expected=cython.Py_ssize_t,
                   number=cython.longlong, wire=cython.int, entry=cython.Py_ssize_t, code=cython.int)
    cdef int read_message(self, Py_ssize_t message) except -1

    @cython.locals(middle=cython.Py_ssize_t)
    cdef Py_ssize_t entry_of(self, Py_ssize_t first, Py_ssize_t end, long long number) noexcept

    @cython.locals(size=cython.longlong)
    cdef bint skip_field(self, int wire) noexcept

    cdef long long read_size(self) noexcept

    @cython.locals(operation=cython.longlong, wanted=cython.int, oneof=cython.Py_ssize_t)
    cdef int read_entry(self, Py_ssize_t entry, int wire, long long stamp) except -1

    cdef inline int wire_of(self, long long operation) noexcept

    @cython.locals(level=cython.Py_ssize_t, code=cython.int)
    cdef int read_item(self, Py_ssize_t entry, long long operation) except -1

    @cython.locals(size=cython.longlong, outer=cython.Py_ssize_t, code=cython.int)
    cdef int read_packed(self, Py_ssize_t entry, long long operation) except -1

    @cython.locals(size=cython.longlong, start=cython.Py_ssize_t)
    cdef int read_value(self, Py_ssize_t entry, long long operation, Py_ssize_t field) except -1

    cdef int put_varint(self, Py_ssize_t entry, long long operation, Py_ssize_t field) noexcept

    @cython.locals(number=cython.longlong)
    cdef inline int signed_32(self) noexcept

    @cython.locals(first=cython.Py_ssize_t, end=cython.Py_ssize_t, middle=cython.Py_ssize_t)
    cdef int put_symbol(self, Py_ssize_t entry, Py_ssize_t field, long long number) noexcept

    @cython.locals(outer=cython.Py_ssize_t, code=cython.int)
    cdef int read_inner(self, Py_ssize_t entry, long long operation, Py_ssize_t field, Py_ssize_t end) except -1

    @cython.locals(seconds=cython.longlong, nanoseconds=cython.longlong, tag=cython.ulonglong)
    cdef int read_timestamp(self, Py_ssize_t field) noexcept

    @cython.locals(code=cython.int)
    cdef int finish(self, Py_ssize_t entry, Py_ssize_t end, long long stamp) except -1

    @cython.locals(field=cython.Py_ssize_t, operation=cython.longlong)
    cdef int write_missing(self, Py_ssize_t entry) except -1

    @cython.locals(field=cython.Py_ssize_t, key=cython.Py_ssize_t, last=cython.Py_ssize_t, index=cython.Py_ssize_t)
    cdef bint is_known_key(self, Py_ssize_t entry, Py_ssize_t level) noexcept
