# C types for columnar/byte_reader.py, read by Cython when it compiles that file. They change no result: every value fits its
# type by the checks there, and tests compare the two on hostile bytes.

cimport cython

cdef unsigned long long _MASK_64, _HIGH_BITS, _SIGN_64
cdef int _LAST_SHIFT, _LAST_SHIFT_32, _LAST_BYTE_MAX_32


@cython.final
cdef class ByteReader:
    cdef readonly const unsigned char[::1] data
    cdef public Py_ssize_t position, end
    cdef public unsigned long long number

    cpdef forget(self)

    cpdef open(self, object data)

    cdef bint varint(self) noexcept

    cdef bint varint32(self) noexcept

    @cython.locals(number=cython.ulonglong, shift=cython.int, byte=cython.ulonglong)
    cdef inline bint number_up_to(self, int last_shift, int last_byte_max) noexcept

    @cython.locals(half=cython.longlong)
    cdef long long zigzag(self) noexcept

    @cython.locals(rest=cython.longlong)
    cdef long long with_sign(self) noexcept

    cdef bint fixed(self, Py_ssize_t size) noexcept

    cdef bint has(self, long long size) noexcept

    @cython.locals(position=cython.Py_ssize_t, end=cython.Py_ssize_t, length=cython.Py_ssize_t)
    cdef bint is_text(self, Py_ssize_t start, Py_ssize_t size) noexcept

    @cython.locals(word=cython.ulonglong)
    cdef inline bint is_plain(self, Py_ssize_t at) noexcept

    @cython.locals(lowest=cython.ulonglong, low=cython.ulonglong, high=cython.ulonglong, highest=cython.ulonglong)
    cdef inline unsigned long long half_word(self, Py_ssize_t at) noexcept

    @cython.locals(first=cython.int, second=cython.int, size=cython.Py_ssize_t, index=cython.Py_ssize_t)
    cdef Py_ssize_t sequence_size(self, Py_ssize_t at, Py_ssize_t end) noexcept
