# C types for json/scan.py, read by Cython when it compiles that file. They change no result: every value fits its type by the
# checks there, and tests compare the two on hostile bytes.

cimport cython

cdef int _PLAIN, _QUOTE_KIND, _ESCAPE_KIND, _HIGH_KIND, _CONTROL_KIND
cdef int _QUOTE, _BACKSLASH, _COMMA, _PLUS, _MINUS, _POINT, _ZERO, _NINE, _COLON, _LETTER_E, _LETTER_F, _LETTER_N, _LETTER_T, _LETTER_U
cdef int _ARRAY, _ARRAY_END, _OBJECT, _OBJECT_END, _END, _DEPTH_MAX, _DIGITS_MAX, _EXPONENT_MAX
cdef unsigned long long _MASK_64, _NEGATIVE_MAX, _ONES, _HIGH_BITS, _QUOTES, _BACKSLASHES, _SPACES


@cython.final
cdef class JsonScanner:
    cdef const unsigned char[::1] kinds, short_escapes
    cdef const unsigned char[::1] data
    cdef readonly Py_ssize_t position, end
    cdef readonly Py_ssize_t text_start, text_end
    cdef readonly bint has_escape, is_cut
    cdef int depth
    cdef unsigned long long objects
    cdef readonly unsigned long long mantissa
    cdef readonly long long exponent
    cdef readonly bint is_negative, is_whole

    cpdef forget(self)

    cpdef open(self, const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t end)

    @cython.locals(byte=cython.int)
    cpdef int next_byte(self) noexcept

    @cython.locals(position=cython.Py_ssize_t, kind=cython.int, size=cython.Py_ssize_t)
    cpdef bint text(self) noexcept

    @cython.locals(word=cython.ulonglong, quotes=cython.ulonglong, escapes=cython.ulonglong, found=cython.ulonglong)
    cdef inline bint is_plain(self, Py_ssize_t at) noexcept

    @cython.locals(low=cython.ulonglong)
    cdef inline unsigned long long word(self, Py_ssize_t at) noexcept

    @cython.locals(lowest=cython.ulonglong, low=cython.ulonglong, high=cython.ulonglong, highest=cython.ulonglong)
    cdef inline unsigned long long half_word(self, Py_ssize_t at) noexcept

    @cython.locals(letter=cython.int, code=cython.int)
    cdef Py_ssize_t escape_size(self, Py_ssize_t at) noexcept

    @cython.locals(code=cython.int, index=cython.Py_ssize_t, digit=cython.int)
    cdef int code_unit(self, Py_ssize_t at) noexcept

    @cython.locals(first=cython.int, second=cython.int, size=cython.Py_ssize_t, index=cython.Py_ssize_t)
    cdef Py_ssize_t sequence_size(self, Py_ssize_t at) noexcept

    @cython.locals(begin=cython.Py_ssize_t, index=cython.Py_ssize_t, byte=cython.int, code=cython.int)
    cpdef Py_ssize_t unescaped(self, unsigned char[::1] target, Py_ssize_t at) noexcept

    cdef Py_ssize_t encoded(self, unsigned char[::1] target, Py_ssize_t at, int code) noexcept

    @cython.locals(start=cython.Py_ssize_t, digits=cython.Py_ssize_t, fraction=cython.Py_ssize_t)
    cpdef bint number(self) noexcept

    @cython.locals(position=cython.Py_ssize_t, mantissa=cython.ulonglong, byte=cython.int, size=cython.Py_ssize_t)
    cdef inline Py_ssize_t digits(self) noexcept

    @cython.locals(count=cython.Py_ssize_t)
    cdef Py_ssize_t zeros(self, Py_ssize_t at) noexcept

    @cython.locals(sign=cython.int, start=cython.Py_ssize_t, value=cython.longlong)
    cdef bint power(self) noexcept

    @cython.locals(letter=cython.int, size=cython.Py_ssize_t, rest=cython.ulonglong)
    cpdef bint literal(self) noexcept

    @cython.locals(byte=cython.int)
    cpdef bint skip(self) noexcept

    cdef inline bint enter(self, int byte) noexcept

    @cython.locals(byte=cython.int)
    cdef inline int leave(self) noexcept

    cdef inline bint scalar(self, int byte) noexcept

    cdef inline bint key(self) noexcept
