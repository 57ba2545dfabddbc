# C types for record_parser.py, read by Cython when it compiles that file. They change no result: every value fits its type
# by the checks there, and tests compare the two on hostile bytes.

cimport cython

cdef int _TRUNCATED, _BAD_NUMBER, _BAD_LENGTH, _BAD_OFFSET, _BAD_HEADERS, _TIMESTAMP_OVERFLOW
cdef long long _INT64_MAX, _INT64_MIN, _REPLACEMENT_BYTES


@cython.final
cdef class RecordParser:
    cdef const unsigned char[::1] data
    cdef readonly Py_ssize_t position
    cdef Py_ssize_t end
    cdef readonly Py_ssize_t section_end
    cdef readonly int fault
    cdef readonly long long previous_delta
    cdef long long last_offset_delta
    cdef long long base_timestamp_ms
    cdef long long append_time_ms
    cdef readonly bint is_log_append_time
    cdef readonly long long timestamp_ms
    cdef readonly long long offset_delta
    cdef readonly Py_ssize_t key_start
    cdef readonly long long key_length
    cdef readonly Py_ssize_t value_start
    cdef readonly long long value_length
    cdef readonly Py_ssize_t headers_start
    cdef readonly long long headers
    cdef readonly long long header_key_bytes
    cdef readonly long long header_value_bytes
    cdef readonly bint is_plain
    cdef readonly Py_ssize_t header_key_start
    cdef readonly long long header_key_length
    cdef readonly Py_ssize_t header_value_start
    cdef readonly long long header_value_length

    cpdef forget(self)

    cpdef open_section(self, const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t end)

    cpdef start_batch(self, long long base_timestamp_ms, long long last_offset_delta, object append_time_ms)

    @cython.locals(length=cython.longlong)
    cpdef int parse(self) noexcept

    @cython.locals(delta=cython.longlong, base=cython.longlong)
    cdef inline void parse_time(self) noexcept

    @cython.locals(index=cython.longlong)
    cdef inline void parse_headers(self) noexcept

    cdef void parse_header(self) noexcept

    @cython.locals(index=cython.Py_ssize_t, bits=cython.uchar)
    cdef bint is_ascii(self, Py_ssize_t start, Py_ssize_t length) noexcept

    cdef void fail(self, int reason) noexcept

    @cython.locals(position=cython.Py_ssize_t, low=cython.int)
    cdef inline long long number(self, int bits) noexcept

    @cython.locals(position=cython.Py_ssize_t, end=cython.Py_ssize_t, raw=cython.ulonglong, byte=cython.ulonglong, shift=cython.int)
    cdef long long long_number(self, int bits) noexcept

    cdef inline void skip(self, long long count) noexcept
