# C types for column_writer.py, read by Cython when it compiles that file. They change no result: every value fits its type
# by the checks there, and tests compare the two on hostile bytes.

cimport cython

from penstock.spark.decode.record_parser cimport RecordParser

cdef int _READY, _FULL, _GROW, _TIMESTAMP_RANGE
cdef long long _MILLISECONDS_MAX, _HEADER_ENTRY_BYTES


@cython.final
cdef class ColumnWriter:
    cdef readonly Py_ssize_t rows_max
    cdef readonly long long bytes_max
    cdef readonly bint include_headers
    cdef readonly bint is_attached
    cdef public unsigned char[::1] keys, values, header_keys, header_values
    cdef public unsigned char[::1] key_validity, value_validity, headers_validity, header_value_validity
    cdef public int[::1] key_offsets, value_offsets, headers_offsets, header_key_offsets, header_value_offsets, timestamp_types
    cdef public long long[::1] offsets, timestamps
    cdef long long key_bytes_max, value_bytes_max, headers_max, header_key_bytes_max, header_value_bytes_max
    cdef readonly Py_ssize_t rows, key_nulls, value_nulls, headers_nulls, header_value_nulls
    cdef readonly long long key_bytes, value_bytes, headers, header_key_bytes, header_value_bytes

    cpdef clear(self)

    cpdef attach(self)

    cpdef tuple needs(self, RecordParser record)

    @cython.locals(key_end=cython.longlong, value_end=cython.longlong, size=cython.longlong, is_enough=cython.bint,
                   headers=cython.longlong, header_key_end=cython.longlong, header_value_end=cython.longlong)
    cpdef int room(self, RecordParser record) noexcept

    @cython.locals(row=cython.Py_ssize_t)
    cpdef int write(self, RecordParser record, long long offset) except -1

    @cython.locals(count=cython.longlong)
    cdef int write_headers(self, RecordParser record, Py_ssize_t row) except -1

    @cython.locals(start=cython.Py_ssize_t)
    cdef int write_text(self, RecordParser record) except -1

    @cython.locals(length=cython.longlong)
    cdef inline void write_header_value(self, RecordParser record) noexcept

    @cython.locals(index=cython.Py_ssize_t)
    cdef inline void copy(self, unsigned char[::1] target, Py_ssize_t at, const unsigned char[::1] source, Py_ssize_t start, Py_ssize_t count) noexcept

    cdef inline void set_bit(self, unsigned char[::1] bitmap, Py_ssize_t index, bint is_set) noexcept
