# C types for json/double.py, read by Cython when it compiles that file. They change no result: every value fits its type by
# the checks there, and tests compare the two.

cimport cython

cdef long long _EXPONENT_MAX, _EVEN_LOWEST, _EVEN_HIGHEST
cdef long long _TENS_MAX
cdef unsigned long long _MASK_64, _MASK_32, _UNSURE_BITS, _IMPLICIT, _SIGN, _EXACT_MAX


@cython.final
cdef class DoubleReader:
    cdef const unsigned long long[::1] powers
    cdef const double[::1] tens
    cdef unsigned long long[::1] as_bits
    cdef double[::1] as_double
    cdef unsigned long long high, low

    @cython.locals(shift=cython.int, index=cython.Py_ssize_t, high=cython.ulonglong, low=cython.ulonglong, upper=cython.int,
                   digits=cython.ulonglong, power=cython.longlong, number=cython.double)
    cpdef bint read(self, unsigned long long mantissa, long long exponent, bint is_negative) noexcept

    @cython.locals(count=cython.int, step=cython.int)
    cdef inline int leading_zeros(self, unsigned long long number) noexcept

    @cython.locals(one_high=cython.ulonglong, one_low=cython.ulonglong, other_high=cython.ulonglong, other_low=cython.ulonglong,
                   lowest=cython.ulonglong, middle=cython.ulonglong, middle_low=cython.ulonglong)
    cdef inline void multiply(self, unsigned long long one, unsigned long long other) noexcept
