"""Parses dates and times to days and microseconds since 1970, by the rules of `json.rows`.

Guarantees: nothing outside of the input bytes is read; an accepted text has the result of
`json.rows`. A rejected text is wrong: the forms are the same, ISO 8601 with all digits written out,
digits beyond microseconds cut, and offsets of at most 18:59.

It is a part of the JSON kernel, so the file is compiled: plain Python here, the C types in
`json/time.pxd`. Every change must hold for 64-bit integers that wrap.
"""

from typing import Final

# The names for the C code are private: they are C integers, which Python cannot import.
_ZERO: Final = 0x30
_NINE: Final = 0x39
_DASH: Final = 0x2D
_PLUS: Final = 0x2B
_COLON: Final = 0x3A
_POINT: Final = 0x2E
_SPACE: Final = 0x20
_LETTER_T: Final = 0x54
_LETTER_Z: Final = 0x5A
_DATE_SIZE: Final = 10
_FRACTION_DIGITS_MAX: Final = 9
_OFFSET_HOURS_MAX: Final = 18
_SECONDS_OF_DAY: Final = 86_400
_MICROSECONDS: Final = 1_000_000


class TimeReader:
    """Parses one text at a time; `days` and `microseconds` are those of the last one."""

    def __init__(self) -> None:
        self.data = memoryview(b"")
        self.position = 0
        self.end = 0
        self.days = 0
        self.microseconds = 0
        self.has_zone = False

    def date(self, data: memoryview, start: int, end: int) -> bool:
        """Parse a date, and set `days`."""
        assert 0 <= start <= end <= len(data)
        self.data = data
        self.position = start
        self.end = end
        return end - start == _DATE_SIZE and self.day()

    def time(self, data: memoryview, start: int, end: int) -> bool:
        """Parse a date, or a date and a time, and set `microseconds` and `has_zone`."""
        assert 0 <= start <= end <= len(data)
        self.data = data
        self.position = start
        self.end = end
        self.has_zone = False
        if not self.day():
            return False
        self.microseconds = self.days * _SECONDS_OF_DAY * _MICROSECONDS
        if self.position == end:
            return True
        if not (self.passes(_LETTER_T) or self.passes(_SPACE)):
            return False
        return self.clock() and self.zone() and self.position == end

    def day(self) -> bool:
        """Parse a date, and compute its days."""
        if self.position + _DATE_SIZE > self.end:
            return False
        # One after another: C does not define the evaluation order of a sum.
        year = self.pair() * 100
        year += self.pair()
        is_dashed = self.passes(_DASH)
        month = self.pair()
        is_dashed = self.passes(_DASH) and is_dashed
        day = self.pair()
        # Pairs that are not digits are far below zero, so each one shows in its number.
        if not is_dashed or year < 1 or month < 1 or month > 12 or day < 1:
            return False
        if day > 28 and day > self.month_days(year, month):
            return False
        # A year that begins in March has its leap day at the end.
        if month <= 2:
            year -= 1
            month += 12
        self.days = (
            365 * year
            + year // 4
            - year // 100
            + year // 400
            + (153 * (month - 3) + 2) // 5
            + day
            - 719_469
        )
        return True

    def month_days(self, year: int, month: int) -> int:
        """Return the number of days in the month."""
        if month == 2:
            return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
        return 30 if month in (4, 6, 9, 11) else 31

    def clock(self) -> bool:
        """Parse hours, minutes, and, if they exist, seconds with their fraction."""
        hour = self.pair()
        if hour < 0 or hour > 23 or not self.passes(_COLON):
            return False
        minute = self.pair()
        if minute < 0 or minute > 59:
            return False
        second = 0
        fraction = 0
        if self.passes(_COLON):
            second = self.pair()
            if second < 0 or second > 59:
                return False
            if self.passes(_POINT):
                fraction = self.fraction()
                if fraction < 0:
                    return False
        self.microseconds += (hour * 3600 + minute * 60 + second) * _MICROSECONDS + fraction
        return True

    def fraction(self) -> int:
        """Parse the digits after the point, and return them as microseconds; -1 for an error."""
        start = self.position
        value = 0
        while self.position < self.end and _ZERO <= self.data[self.position] <= _NINE:
            if self.position - start < 6:
                value = value * 10 + self.data[self.position] - _ZERO
            self.position += 1
        count = self.position - start
        if count < 1 or count > _FRACTION_DIGITS_MAX:
            return -1
        while count < 6:
            value *= 10
            count += 1
        return value

    def zone(self) -> bool:
        """Parse a zone, if there is one, and subtract its offset."""
        if self.position == self.end:
            return True
        self.has_zone = True
        if self.passes(_LETTER_Z):
            return True
        is_before = self.passes(_DASH)
        if not is_before and not self.passes(_PLUS):
            return False
        hours = self.pair()
        minutes = 0
        if self.passes(_COLON) or self.position < self.end:
            minutes = self.pair()
        if hours < 0 or hours > _OFFSET_HOURS_MAX or minutes < 0 or minutes > 59:
            return False
        offset = (hours * 3600 + minutes * 60) * _MICROSECONDS
        self.microseconds += offset if is_before else -offset
        return True

    def passes(self, byte: int) -> bool:
        """Skip this byte; return whether it was next."""
        if self.position < self.end and self.data[self.position] == byte:
            self.position += 1
            return True
        return False

    def pair(self) -> int:
        """Parse a number of two digits; return a number far below zero for an error."""
        if self.position + 2 > self.end:
            return -100_000
        tens = self.data[self.position]
        ones = self.data[self.position + 1]
        self.position += 2
        if tens < _ZERO or tens > _NINE or ones < _ZERO or ones > _NINE:
            return -100_000
        return (tens - _ZERO) * 10 + ones - _ZERO
