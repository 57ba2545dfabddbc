# C types for time_scan.py, read by Cython when it compiles that file. They change no result: every value below fits its
# type by the checks in time_scan.py, and tests compare the two on hostile bytes.

cimport cython


@cython.final
cdef class _Walker:
    cdef const unsigned char[::1] data
    cdef Py_ssize_t position
    cdef Py_ssize_t end
    cdef int faults

    @cython.locals(position=cython.Py_ssize_t, end=cython.Py_ssize_t, raw=cython.ulonglong, byte=cython.ulonglong, shift=cython.int)
    cdef inline long long number(self, int bits) noexcept


@cython.locals(walker=_Walker, size=cython.Py_ssize_t, walked=cython.longlong, byte=cython.longlong, length=cython.longlong,
               end=cython.Py_ssize_t, delta_ms=cython.longlong, offset_delta=cython.longlong)
cpdef tuple find_time(
    const unsigned char[::1] data,
    Py_ssize_t position,
    long long count,
    long long delta_ms_min,
    long long offset_delta_min,
)
