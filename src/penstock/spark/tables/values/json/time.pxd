# C types for json/time.py, read by Cython when it compiles that file. They change no result: every value fits its type by the
# checks there, and tests compare the two.

cimport cython

cdef int _ZERO, _NINE, _DASH, _PLUS, _COLON, _POINT, _SPACE, _LETTER_T, _LETTER_Z, _DATE_SIZE, _FRACTION_DIGITS_MAX, _OFFSET_HOURS_MAX
cdef long long _SECONDS_OF_DAY, _MICROSECONDS


@cython.final
cdef class TimeReader:
    cdef const unsigned char[::1] data
    cdef Py_ssize_t position, end
    cdef readonly long long days, microseconds
    cdef readonly bint has_zone

    cpdef bint date(self, const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t end) except -1

    cpdef bint time(self, const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t end) except -1

    @cython.locals(year=cython.longlong, month=cython.longlong, day=cython.longlong, is_dashed=cython.bint)
    cdef bint day(self) noexcept

    cdef int month_days(self, long long year, long long month) noexcept

    @cython.locals(hour=cython.longlong, minute=cython.longlong, second=cython.longlong, fraction=cython.longlong)
    cdef bint clock(self) noexcept

    @cython.locals(start=cython.Py_ssize_t, value=cython.longlong, count=cython.Py_ssize_t)
    cdef long long fraction(self) noexcept

    @cython.locals(is_before=cython.bint, hours=cython.longlong, minutes=cython.longlong, offset=cython.longlong)
    cdef bint zone(self) noexcept

    cdef inline bint passes(self, int byte) noexcept

    @cython.locals(tens=cython.int, ones=cython.int)
    cdef inline int pair(self) noexcept
