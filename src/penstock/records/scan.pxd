# C types for scan.py, read by Cython when it compiles that file. They change no result: every value
# below fits its type by the checks in scan.py, and tests compare the two on hostile bytes.

cimport cython

cdef long long _INT64_MAX
cdef long long _INT64_MIN
cdef long long _NO_TIMESTAMP
cdef int _TRUNCATED, _BAD_NUMBER, _BAD_LENGTH, _BAD_OFFSET, _BAD_HEADERS, _TRAILING_BYTES
cdef int _TIMESTAMP_OVERFLOW, _NULL_KEY, _BAD_TIMESTAMP


@cython.final
cdef class _Walker:
    cdef const unsigned char[::1] data
    cdef Py_ssize_t position
    cdef Py_ssize_t end
    cdef int reason
    cdef long long timestamp_ms
    cdef bint has_key
    cdef long long index
    cdef int fault
    cdef long long fault_index
    cdef long long max_timestamp_ms
    cdef long long max_index

    @cython.locals(position=cython.Py_ssize_t, end=cython.Py_ssize_t, raw=cython.ulonglong, byte=cython.ulonglong, shift=cython.int)
    cdef inline long long number(self, int bits) noexcept nogil

    cdef inline void skip(self, long long count) noexcept nogil

    @cython.locals(count=cython.longlong, length=cython.longlong)
    cdef inline void headers(self) noexcept nogil

    @cython.locals(length=cython.longlong)
    cdef inline void body(self) noexcept nogil

    @cython.locals(delta=cython.longlong)
    cdef inline void time(self, long long base_timestamp_ms) noexcept nogil

    @cython.locals(length=cython.longlong)
    cdef inline void record(self, long long offset_delta, long long base_timestamp_ms) noexcept nogil

    @cython.locals(end=cython.Py_ssize_t, index=cython.longlong, timestamp_ms=cython.longlong)
    cdef void walk(self, long long count, long long base_timestamp_ms, long long earliest_ms, long long latest_ms, bint key_required) noexcept nogil


@cython.locals(walker=_Walker)
cpdef tuple scan_records(
    const unsigned char[::1] data,
    Py_ssize_t position,
    Py_ssize_t end,
    long long count,
    long long base_timestamp_ms,
    long long earliest_ms,
    long long latest_ms,
    bint key_required,
)
