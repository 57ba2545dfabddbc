# C types for single_produce.py, read by Cython when it compiles that file. They change no result: a number of at most
# eight bytes fits a long long, and every position lies within the body.

cimport cython

cdef int _FLEXIBLE_VERSION, _TOPIC_ID_VERSION, _LOG_START_VERSION, _RECORD_ERRORS_VERSION
cdef int _TOPIC_ID_BYTES, _NO_TRANSACTION


@cython.final
cdef class SingleProduce:
    cdef public int acks
    cdef public long long timeout_ms
    cdef public object topic
    cdef public long long partition
    cdef public Py_ssize_t start
    cdef public Py_ssize_t stop


@cython.final
cdef class _Cursor:
    cdef const unsigned char[::1] data
    cdef Py_ssize_t size
    cdef Py_ssize_t position
    cdef bint failed

    @cython.locals(position=cython.Py_ssize_t, stop=cython.Py_ssize_t, value=cython.longlong)
    cdef inline long long number(self, int width) noexcept

    @cython.locals(position=cython.Py_ssize_t, value=cython.longlong, byte=cython.longlong, shift=cython.int)
    cdef inline long long varint(self) noexcept

    @cython.locals(value=cython.longlong)
    cdef inline long long length(self, bint flexible, int width) noexcept

    cdef inline void expect(self, long long value, long long expected) noexcept

    cdef inline void skip(self, long long count) noexcept


@cython.locals(cursor=_Cursor, flexible=cython.bint, has_topic_id=cython.bint, acks=cython.longlong, timeout_ms=cython.longlong,
               topic_start=cython.Py_ssize_t, topic_stop=cython.Py_ssize_t, length=cython.longlong,
               partition=cython.longlong, start=cython.Py_ssize_t, stop=cython.Py_ssize_t)
cpdef read_single(body, int version)
