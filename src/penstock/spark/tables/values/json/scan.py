"""Finds texts, numbers and the end of skipped values in a JSON text, without objects.

Guarantees: nothing outside of the opened bytes is read, and the time is proportional to them.
Accepted text is JSON by RFC 8259 in valid UTF-8, and every reader of JSON reads it alike. Other
text is not accepted, whether it is wrong or only unusual: numbers of more than 19 digits or far
from 1, minus zero without a fraction, the escape of a zero byte, halves of surrogate pairs, and
values nested deeper than `_DEPTH_MAX`. The caller passes such a row to the reference. `is_cut` is
true if the text ended too early.

It is a part of the JSON kernel, so the file is compiled: plain Python here, the C types in
`json/scan.pxd`. Every change must hold for 64-bit integers that wrap.
"""

from typing import Final

# The names for the C code are private: they are C integers, which Python cannot import.
_PLAIN: Final = 0
_QUOTE_KIND: Final = 1
_ESCAPE_KIND: Final = 2
_HIGH_KIND: Final = 3
_CONTROL_KIND: Final = 4
_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C
_COMMA: Final = 0x2C
_PLUS: Final = 0x2B
_MINUS: Final = 0x2D
_POINT: Final = 0x2E
_ZERO: Final = 0x30
_NINE: Final = 0x39
_COLON: Final = 0x3A
_LETTER_E: Final = 0x65
_LETTER_F: Final = 0x66
_LETTER_N: Final = 0x6E
_LETTER_T: Final = 0x74
_LETTER_U: Final = 0x75
_ARRAY: Final = 0x5B
_ARRAY_END: Final = 0x5D
_OBJECT: Final = 0x7B
_OBJECT_END: Final = 0x7D
_END: Final = -1
"""The result of `next_byte` after the last byte; 0 is a byte that JSON does not allow."""
_DEPTH_MAX: Final = 60
"""One bit of a 64-bit number for each level; it is set for an object."""
_DIGITS_MAX: Final = 19
"""This number of digits always fits an unsigned 64-bit number."""
_EXPONENT_MAX: Final = 280
"""With 19 digits such a number is neither infinite nor subnormal as a double."""
_MASK_64: Final = 0xFFFFFFFFFFFFFFFF
_NEGATIVE_MAX: Final = 0x8000000000000000
_ONES: Final = 0x0101010101010101
_HIGH_BITS: Final = 0x8080808080808080
_QUOTES: Final = 0x2222222222222222
_BACKSLASHES: Final = 0x5C5C5C5C5C5C5C5C
_SPACES: Final = 0x2020202020202020


def _kinds() -> bytearray:
    """Return the kind of each byte inside of a text."""
    kinds = bytearray([_CONTROL_KIND] * 0x20 + [_PLAIN] * 0x60 + [_HIGH_KIND] * 0x80)
    kinds[_QUOTE] = _QUOTE_KIND
    kinds[_BACKSLASH] = _ESCAPE_KIND
    return kinds


def _short_escapes() -> bytearray:
    """Return the character of each two-character escape by its second byte; 0 for other bytes."""
    meant = bytearray(256)
    for letter, byte in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
        meant[letter] = byte
    return meant


class JsonScanner:
    """A position in one JSON text, and the last part found there."""

    def __init__(self) -> None:
        self.kinds = memoryview(_kinds())
        self.short_escapes = memoryview(_short_escapes())
        self.forget()

    def forget(self) -> None:
        """Release the bytes."""
        self.data = memoryview(b"")
        self.position = 0
        self.end = 0
        self.is_cut = False
        self.text_start = 0
        self.text_end = 0
        self.has_escape = False
        self.depth = 0
        self.objects = 0
        self.mantissa = 0
        self.exponent = 0
        self.is_negative = False
        self.is_whole = False

    def open(self, data: memoryview, start: int, end: int) -> None:
        """Begin with the text from `start` to `end`."""
        assert 0 <= start <= end <= len(data)
        self.data = data
        self.position = start
        self.end = end

    def next_byte(self) -> int:
        """Return the next byte that is not a space, and set `position` to it."""
        while self.position < self.end:
            byte = self.data[self.position]
            if byte > 0x20:
                return byte
            if byte not in (0x20, 0x0A, 0x0D, 0x09):
                return 0
            self.position += 1
        self.is_cut = True
        return _END

    def text(self) -> bool:
        """Scan the text whose quote is at `position`, and set `text_start` and `text_end`."""
        position = self.position + 1
        self.text_start = position
        self.has_escape = False
        while True:
            while position + 8 <= self.end and self.is_plain(position):
                position += 8
            while position < self.end and self.kinds[self.data[position]] == _PLAIN:
                position += 1
            if position >= self.end:
                self.is_cut = True
                return False
            kind = self.kinds[self.data[position]]
            if kind == _QUOTE_KIND:
                self.text_end = position
                self.position = position + 1
                return True
            if kind == _ESCAPE_KIND:
                self.has_escape = True
                size = self.escape_size(position)
            elif kind == _HIGH_KIND:
                size = self.sequence_size(position)
            else:
                size = 0
            if size == 0:
                return False
            position += size

    def is_plain(self, at: int) -> bool:
        """Return whether eight bytes are ASCII without quote, backslash or control character."""
        word = self.word(at)
        quotes = word ^ _QUOTES
        escapes = word ^ _BACKSLASHES
        # A byte below its subtrahend borrows, which sets its highest bit. A borrow may also set the
        # bit of a byte after it: a false positive is possible, never a false negative.
        found = (quotes - _ONES) | (escapes - _ONES) | (word - _SPACES) | word
        return found & _HIGH_BITS == 0

    def word(self, at: int) -> int:
        """Return eight bytes, the lowest first; a C compiler turns this into one load."""
        low = self.half_word(at)
        return low | (self.half_word(at + 4) << 32)

    def half_word(self, at: int) -> int:
        """Return four bytes, the lowest first."""
        lowest = self.data[at]
        low = self.data[at + 1]
        high = self.data[at + 2]
        highest = self.data[at + 3]
        return lowest | (low << 8) | (high << 16) | (highest << 24)

    def escape_size(self, at: int) -> int:
        """Return the length of the escape whose backslash is here; 0 if it is not accepted."""
        if at + 1 >= self.end:
            return 0
        letter = self.data[at + 1]
        if letter != _LETTER_U:
            return 2 if self.short_escapes[letter] != 0 else 0
        code = self.code_unit(at)
        if code <= 0 or 0xDC00 <= code <= 0xDFFF:
            return 0
        if code < 0xD800 or code > 0xDFFF:
            return 6
        code = self.code_unit(at + 6)
        return 12 if 0xDC00 <= code <= 0xDFFF else 0

    def code_unit(self, at: int) -> int:
        r"""The number in an escape like \u12ab; -1 if there is none."""
        if at + 6 > self.end or self.data[at] != _BACKSLASH or self.data[at + 1] != _LETTER_U:
            return -1
        code = 0
        index = at + 2
        while index < at + 6:
            digit = self.data[index]
            if _ZERO <= digit <= _NINE:
                code = code * 16 + digit - _ZERO
            elif 0x61 <= (digit | 0x20) <= _LETTER_F:
                code = code * 16 + (digit | 0x20) - 0x57
            else:
                return -1
            index += 1
        return code

    def sequence_size(self, at: int) -> int:
        """Return the length of the non-ASCII character that begins here; 0 if it is not UTF-8."""
        first = self.data[at]
        if first < 0xC2 or first > 0xF4:
            return 0
        size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
        if at + size > self.end:
            return 0
        index = at + 1
        while index < at + size:
            if self.data[index] & 0xC0 != 0x80:
                return 0
            index += 1
        second = self.data[at + 1]
        # Overlong, half of a surrogate pair, or beyond the last character.
        if (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F):
            return 0
        if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
            return 0
        return size

    def unescaped(self, target: memoryview, at: int) -> int:
        """Write the text that was scanned last without its escapes; return its size in bytes.

        It is never larger than before.
        """
        begin = at
        index = self.text_start
        while index < self.text_end:
            byte = self.data[index]
            if byte != _BACKSLASH:
                target[at] = byte
                at += 1
                index += 1
            elif self.data[index + 1] != _LETTER_U:
                target[at] = self.short_escapes[self.data[index + 1]]
                at += 1
                index += 2
            else:
                code = self.code_unit(index)
                index += 6
                if 0xD800 <= code <= 0xDFFF:
                    code = 0x10000 + (code - 0xD800) * 0x400 + self.code_unit(index) - 0xDC00
                    index += 6
                at += self.encoded(target, at, code)
        return at - begin

    def encoded(self, target: memoryview, at: int, code: int) -> int:
        """Write a character in UTF-8; return its size in bytes."""
        if code < 0x80:
            target[at] = code
            return 1
        if code < 0x800:
            target[at] = 0xC0 | (code >> 6)
            target[at + 1] = 0x80 | (code & 0x3F)
            return 2
        if code < 0x10000:
            target[at] = 0xE0 | (code >> 12)
            target[at + 1] = 0x80 | ((code >> 6) & 0x3F)
            target[at + 2] = 0x80 | (code & 0x3F)
            return 3
        target[at] = 0xF0 | (code >> 18)
        target[at + 1] = 0x80 | ((code >> 12) & 0x3F)
        target[at + 2] = 0x80 | ((code >> 6) & 0x3F)
        target[at + 3] = 0x80 | (code & 0x3F)
        return 4

    def number(self) -> bool:
        """Scan a number as `mantissa` times ten to the power of `exponent`."""
        self.mantissa = 0
        self.exponent = 0
        self.is_whole = True
        self.is_negative = self.data[self.position] == _MINUS
        if self.is_negative:
            self.position += 1
        start = self.position
        digits = self.digits()
        if digits == 0 or (digits > 1 and self.data[start] == _ZERO):
            return False
        if self.position < self.end and self.data[self.position] == _POINT:
            self.is_whole = False
            self.position += 1
            fraction = self.digits()
            if fraction == 0:
                return False
            digits += fraction
            self.exponent = -fraction
        if self.position < self.end and (self.data[self.position] | 0x20) == _LETTER_E:
            self.is_whole = False
            if not self.power():
                return False
        if digits > _DIGITS_MAX and digits - self.zeros(start) > _DIGITS_MAX:
            return False
        if self.is_whole:
            # Readers disagree on -0, and read negative numbers beyond 64 bits as fractions.
            return not self.is_negative or 0 < self.mantissa <= _NEGATIVE_MAX
        return -_EXPONENT_MAX <= self.exponent <= _EXPONENT_MAX

    def digits(self) -> int:
        """Scan digits and add them to the mantissa; return their number."""
        position = self.position
        mantissa = self.mantissa
        while position < self.end:
            byte = self.data[position]
            if byte < _ZERO or byte > _NINE:
                break
            mantissa = (mantissa * 10 + (byte - _ZERO)) & _MASK_64
            position += 1
        self.mantissa = mantissa
        size = position - self.position
        self.position = position
        return size

    def zeros(self, at: int) -> int:
        """Return the number of leading zeros of a number, before and after its point."""
        count = 0
        while at < self.end and (self.data[at] == _ZERO or self.data[at] == _POINT):
            if self.data[at] == _ZERO:
                count += 1
            at += 1
        return count

    def power(self) -> bool:
        """Scan an exponent of at most four digits, and add it to that of the fraction."""
        self.position += 1
        if self.position >= self.end:
            return False
        sign = self.data[self.position]
        if sign in (_MINUS, _PLUS):
            self.position += 1
        start = self.position
        value = 0
        while self.position < self.end and _ZERO <= self.data[self.position] <= _NINE:
            if self.position - start >= 4:
                return False
            value = value * 10 + self.data[self.position] - _ZERO
            self.position += 1
        self.exponent += -value if sign == _MINUS else value
        return self.position > start

    def literal(self) -> bool:
        """Scan true, false or null, whose first letter is at `position`."""
        letter = self.data[self.position]
        size = 5 if letter == _LETTER_F else 4
        if self.position + size > self.end:
            return False
        rest = self.half_word(self.position + size - 4)
        self.position += size
        if letter == _LETTER_T:
            return rest == 0x65757274
        if letter == _LETTER_F:
            return rest == 0x65736C61
        return letter == _LETTER_N and rest == 0x6C6C756E

    def skip(self) -> bool:
        """Skip a value of any kind, and the spaces before it."""
        self.depth = 0
        self.objects = 0
        while True:
            byte = self.next_byte()
            if byte in (_OBJECT, _ARRAY):
                if not self.enter(byte):
                    return False
                if self.next_byte() != byte + 2:
                    if byte == _OBJECT and not self.key():
                        return False
                    continue
            elif not self.scalar(byte):
                return False
            byte = self.leave()
            if self.depth == 0:
                return True
            if byte != _COMMA:
                return False
            self.position += 1
            if self.objects & 1 and not self.key():
                return False

    def enter(self, byte: int) -> bool:
        """Enter an opening bracket."""
        self.position += 1
        self.depth += 1
        self.objects = (self.objects << 1) | (byte == _OBJECT)
        return self.depth <= _DEPTH_MAX

    def leave(self) -> int:
        """Leave all closing brackets; return the byte after them, if not all are closed."""
        byte = 0
        while self.depth > 0:
            byte = self.next_byte()
            if byte != (_OBJECT_END if self.objects & 1 else _ARRAY_END):
                break
            self.position += 1
            self.depth -= 1
            self.objects >>= 1
        return byte

    def scalar(self, byte: int) -> bool:
        """Scan a value that is neither an object nor an array, and begins with this byte."""
        if byte == _QUOTE:
            return self.text()
        if byte == _MINUS or _ZERO <= byte <= _NINE:
            return self.number()
        if byte in (_LETTER_T, _LETTER_F, _LETTER_N):
            return self.literal()
        return False

    def key(self) -> bool:
        """Scan the name of a field and the colon after it."""
        if self.next_byte() != _QUOTE or not self.text():
            return False
        if self.next_byte() != _COLON:
            return False
        self.position += 1
        return True
