# C types for span_walk.py, read by Cython when it compiles that file. They change no result: every value below fits its
# type by the checks in span_walk.py, and tests compare the two on hostile bytes.

cimport cython


@cython.final
cdef class RecordSpan:
    cdef readonly Py_ssize_t start
    cdef readonly Py_ssize_t end
    cdef readonly Py_ssize_t rest
    cdef readonly long long timestamp_delta_ms
    cdef readonly long long offset_delta
    cdef readonly object key
    cdef readonly bint has_value


@cython.final
cdef class _Walker:
    cdef const unsigned char[::1] data
    cdef Py_ssize_t position
    cdef Py_ssize_t end
    cdef int faults

    @cython.locals(position=cython.Py_ssize_t, end=cython.Py_ssize_t, raw=cython.ulonglong, byte=cython.ulonglong, shift=cython.int)
    cdef inline long long number(self, int bits) noexcept

    cdef inline void skip(self, long long count) noexcept


@cython.locals(walker=_Walker, size=cython.Py_ssize_t, index=cython.longlong, start=cython.Py_ssize_t, end=cython.Py_ssize_t,
               rest=cython.Py_ssize_t, length=cython.longlong, timestamp_delta_ms=cython.longlong, offset_delta=cython.longlong,
               key_length=cython.longlong, key_start=cython.Py_ssize_t, key_end=cython.Py_ssize_t, value_length=cython.longlong,
               spans=list)
cpdef tuple span_slice(bytes section, Py_ssize_t position, long long count)

@cython.locals(walker=_Walker, end=cython.Py_ssize_t, rest=cython.Py_ssize_t, length=cython.longlong,
               timestamp_delta_ms=cython.longlong, offset_delta=cython.longlong, key_length=cython.longlong,
               key_start=cython.Py_ssize_t, value_length=cython.longlong)
cpdef RecordSpan large_span(object section, Py_ssize_t position)
