# C types for open_batch.py, read by Cython when it compiles that file. They change no result: every value fits its type by
# the checks there and in kernel.py, and tests compare the two.

cimport cython

cdef Py_ssize_t _HEADER_BYTES, _BYTES_MIN


@cython.final
cdef class OpenBatch:
    cdef readonly long long bytes_max
    cdef bytearray content
    cdef unsigned char[::1] target
    cdef long long capacity
    cdef readonly long long position
    cdef readonly long long records
    cdef readonly long long base_timestamp_ms
    cdef readonly long long max_timestamp_ms

    cpdef clear(self)

    @cython.locals(raw=cython.ulonglong, count=cython.int)
    cdef inline int size(self, long long value) noexcept

    @cython.locals(delta=cython.longlong)
    cdef long long body_size(self, long long timestamp_ms, long long fields_size) noexcept

    @cython.locals(needed=cython.longlong)
    cdef int begin_record(self, long long body_size, long long timestamp_ms) except -1

    @cython.locals(size=cython.longlong)
    cdef int grow(self, long long needed) except -1

    cdef void write_field(self, const unsigned char[::1] source, Py_ssize_t start, long long length) noexcept

    @cython.locals(raw=cython.ulonglong)
    cdef void write_number(self, long long value) noexcept

    @cython.locals(at=cython.Py_ssize_t, index=cython.Py_ssize_t)
    cdef inline void copy(self, unsigned char[::1] target, const unsigned char[::1] source, Py_ssize_t start, Py_ssize_t count) noexcept
