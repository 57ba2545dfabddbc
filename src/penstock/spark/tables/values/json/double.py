"""Converts decimal numbers to correctly rounded doubles, or reports that it cannot.

Guarantees: `read` finds the double nearest to `mantissa` times ten to the power of `exponent`, or
returns that it is uncertain. It is uncertain if the number is so near the middle between two
doubles that 128 bits do not decide the side.

Short numbers are exact as doubles, and so are small powers of ten: one division or multiplication
of the two is rounded correctly (Clinger, 1990). For all others the algorithm is that of Eisel and
Lemire ("Number Parsing at a Gigabyte per Second", 2021): the mantissa, shifted to the left, is
multiplied by the first 128 bits of the power of five.

It is a part of the JSON kernel, so the file is compiled: plain Python here, the C types in
`json/double.pxd`. Every change must hold for 64-bit integers that wrap.
"""

from array import array
from typing import Final

# The names for the C code are private: they are C integers, which Python cannot import.
_EXPONENT_MAX: Final = 280
"""With these exponents, no mantissa of 64 bits results in an infinite or subnormal double."""
_MASK_64: Final = 0xFFFFFFFFFFFFFFFF
_MASK_32: Final = 0xFFFFFFFF
_UNSURE_BITS: Final = 0x1FF
"""The bits below the 53 of a double, without the rounding bit and one that a product may lack."""
_IMPLICIT: Final = 0x0010000000000000
"""The highest bit of the mantissa, which a double does not store."""
_SIGN: Final = 0x8000000000000000
_EXACT_MAX: Final = 0x20000000000000
"""Up to here every whole number is a double."""
_TENS_MAX: Final = 22
"""Up to this power, every power of ten is a double, too."""
_EVEN_LOWEST: Final = -4
_EVEN_HIGHEST: Final = 23
"""Only with these exponents can a number be exactly in the middle between two doubles."""


def _powers() -> memoryview:
    """Return the first 128 bits of each power of five, cut; for reciprocals, rounded up."""
    found = bytearray()
    for exponent in range(-_EXPONENT_MAX, _EXPONENT_MAX + 1):
        power = int(5 ** abs(exponent))
        length = power.bit_length()
        if exponent < 0:
            bits = (1 << (length + 127)) // power + 1
        elif length > 128:
            bits = power >> (length - 128)
        else:
            bits = power << (128 - length)
        assert bits.bit_length() == 128
        found += (bits >> 64).to_bytes(8, "little") + (bits & _MASK_64).to_bytes(8, "little")
    return memoryview(found).cast("Q")


class DoubleReader:
    """Computes doubles; `bits` and `value` are the last certain number."""

    def __init__(self) -> None:
        self.powers = _powers()
        self.tens = memoryview(array("d", [float(10**power) for power in range(_TENS_MAX + 1)]))
        # The same memory, as an integer and as a double.
        place = memoryview(bytearray(8))
        self.as_bits = place.cast("Q")
        self.as_double = place.cast("d")
        self.high = 0
        self.low = 0

    @property
    def value(self) -> float:
        """The double."""
        return self.as_double[0]

    def read(self, mantissa: int, exponent: int, is_negative: bool) -> bool:  # noqa: FBT001
        """Compute the double; return False if it is uncertain."""
        if mantissa == 0:
            self.as_bits[0] = _SIGN if is_negative else 0
            return True
        if mantissa <= _EXACT_MAX and -_TENS_MAX <= exponent <= _TENS_MAX:
            number = float(mantissa)
            number = number / self.tens[-exponent] if exponent < 0 else number * self.tens[exponent]
            self.as_double[0] = -number if is_negative else number
            return True
        if exponent < -_EXPONENT_MAX or exponent > _EXPONENT_MAX:
            return False
        shift = self.leading_zeros(mantissa)
        mantissa = (mantissa << shift) & _MASK_64
        index = 2 * (exponent + _EXPONENT_MAX)
        self.multiply(mantissa, self.powers[index])
        if self.high & _UNSURE_BITS == _UNSURE_BITS:
            high, low = self.high, self.low
            self.multiply(mantissa, self.powers[index + 1])
            low = (low + self.high) & _MASK_64
            self.low = low
            self.high = (high + 1 if self.high > low else high) & _MASK_64
        if self.low == _MASK_64:
            return False
        upper = self.high >> 63
        digits = self.high >> (upper + 9)
        if self.low <= 1 and _EVEN_LOWEST <= exponent <= _EVEN_HIGHEST and digits & 3 == 1:
            return False
        digits = (digits + (digits & 1)) >> 1
        power = ((217706 * exponent) >> 16) + 63 + upper - shift + 1023
        if digits >= 2 * _IMPLICIT:
            digits = _IMPLICIT
            power += 1
        self.as_bits[0] = (digits - _IMPLICIT) | (power << 52) | (_SIGN if is_negative else 0)
        return True

    def leading_zeros(self, number: int) -> int:
        """Return the number of leading zero bits."""
        count = 0
        step = 32
        while step > 0:
            if number >> (64 - step) == 0:
                number = (number << step) & _MASK_64
                count += step
            step >>= 1
        return count

    def multiply(self, one: int, other: int) -> None:
        """Compute the product of two 64-bit numbers into `high` and `low`."""
        one_high = one >> 32
        one_low = one & _MASK_32
        other_high = other >> 32
        other_low = other & _MASK_32
        lowest = one_low * other_low
        middle = one_high * other_low + (lowest >> 32)
        middle_low = (middle & _MASK_32) + one_low * other_high
        self.high = one_high * other_high + (middle >> 32) + (middle_low >> 32)
        self.low = ((middle_low << 32) & _MASK_64) | (lowest & _MASK_32)
