"""Finds the parts of each record in a decompressed batch, without objects or copies.

Guarantees: `parse` reads nothing outside its section, in time proportional to the bytes. If `fault`
is 0 afterwards, the record fills exactly its declared length, its offset delta rises within its
batch, and the fields have the positions of key, value and headers. The first fault stays, and
nothing is read after it.

It is a part of the decode kernel, so the file is compiled: plain Python here, the C types in
`record_parser.pxd`. Every change must hold for 64-bit integers that wrap: nothing below may
overflow, because uncompiled it would not. See `records.record` for the layout.
"""

from typing import Final

REASONS: Final[tuple[str, ...]] = (
    "valid",
    "it runs past its end",
    "a number in it is too long or too large",
    "its parts do not fill the length it declares",
    "its offset does not follow on from the one before, or lies outside of its batch",
    "its header count or a header key length is impossible",
    "its timestamp does not fit 64 bits",
)
"""The text of each fault, for use after «record 7: »."""

# The names for the C code are private: they are C integers, which Python cannot import.
_TRUNCATED: Final = 1
_BAD_NUMBER: Final = 2
_BAD_LENGTH: Final = 3
_BAD_OFFSET: Final = 4
_BAD_HEADERS: Final = 5
_TIMESTAMP_OVERFLOW: Final = 6

_INT64_MAX: Final = 9223372036854775807
_INT64_MIN: Final = -_INT64_MAX - 1
_REPLACEMENT_BYTES: Final = 3
"""The replacement character for a byte that is not UTF-8 has three bytes."""


class RecordParser:
    """A position in the records of one batch; the fields are those of the last parsed record."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Release the bytes."""
        self.data = memoryview(b"")
        self.position = 0
        self.end = 0
        self.section_end = 0
        self.fault = 0
        self.start_batch(0, 0, 0)
        self.timestamp_ms = 0
        self.offset_delta = 0
        self.key_start = 0
        self.key_length = 0
        self.value_start = 0
        self.value_length = 0
        self.headers_start = 0
        self.headers = 0
        self.header_key_bytes = 0
        self.header_value_bytes = 0
        self.is_plain = True
        self.header_key_start = 0
        self.header_key_length = 0
        self.header_value_start = 0
        self.header_value_length = 0

    def open_section(self, data: memoryview, start: int, end: int) -> None:
        """Begin at `start` of `data`, which has the format "B" and contains both ends."""
        assert 0 <= start <= end <= len(data)
        self.data = data
        self.position = start
        self.section_end = end

    def start_batch(
        self, base_timestamp_ms: int, last_offset_delta: int, append_time_ms: int | None
    ) -> None:
        """Set the fields of the header: an append time applies to all records."""
        self.fault = 0
        self.previous_delta = -1
        self.last_offset_delta = last_offset_delta
        self.base_timestamp_ms = base_timestamp_ms
        self.is_log_append_time = append_time_ms is not None
        self.append_time_ms = 0 if append_time_ms is None else append_time_ms

    def parse(self) -> int:
        """Find the parts of the next record; return the fault or 0."""
        self.end = self.section_end
        length = self.number(32)
        if length > self.end - self.position:
            self.fail(_TRUNCATED)
        elif length < 0:
            self.fail(_BAD_LENGTH)
        if self.fault == 0:
            self.end = self.position + length
        self.skip(1)
        self.parse_time()
        self.offset_delta = self.number(32)
        if self.offset_delta <= self.previous_delta or self.offset_delta > self.last_offset_delta:
            self.fail(_BAD_OFFSET)
        self.key_length = self.number(32)
        self.key_start = self.position
        self.skip(self.key_length)
        self.value_length = self.number(32)
        self.value_start = self.position
        self.skip(self.value_length)
        self.parse_headers()
        if self.position != self.end:
            self.fail(_BAD_LENGTH)
        return self.fault

    def parse_time(self) -> None:
        """Parse the timestamp delta."""
        delta = self.number(64)
        base = self.base_timestamp_ms
        if (delta > 0 and base > _INT64_MAX - delta) or (delta < 0 and base < _INT64_MIN - delta):
            self.fail(_TIMESTAMP_OVERFLOW)
        elif self.is_log_append_time:
            self.timestamp_ms = self.append_time_ms
        else:
            self.timestamp_ms = base + delta

    def parse_headers(self) -> None:
        """Check the headers and count the maximum number of bytes that they need."""
        self.headers = self.number(32)
        self.headers_start = self.position
        self.header_key_bytes = 0
        self.header_value_bytes = 0
        self.is_plain = True
        if self.headers < 0 or self.headers > self.end - self.position:
            self.fail(_BAD_HEADERS)
        index = 0
        while index < self.headers and self.fault == 0:
            self.parse_header()
            self.header_key_bytes += self.header_key_length
            self.header_value_bytes += max(self.header_value_length, 0)
            if self.fault == 0 and self.is_plain:
                self.is_plain = self.is_ascii(self.header_key_start, self.header_key_length)
            index += 1
        if not self.is_plain:
            self.header_key_bytes *= _REPLACEMENT_BYTES

    def parse_header(self) -> None:
        """Find the parts of the header at `position`, and move `position` after it."""
        self.header_key_length = self.number(32)
        if self.header_key_length < 0:
            self.fail(_BAD_HEADERS)
        self.header_key_start = self.position
        self.skip(self.header_key_length)
        self.header_value_length = self.number(32)
        self.header_value_start = self.position
        self.skip(self.header_value_length)

    def is_ascii(self, start: int, length: int) -> bool:
        """Return whether `length` bytes from `start` are ASCII; the caller checks the bounds."""
        bits = 0
        index = 0
        # Without an early exit, a C compiler compares sixteen bytes at a time.
        while index < length:
            bits |= self.data[start + index]
            index += 1
        return bits < 0x80

    def fail(self, reason: int) -> None:
        """Record the first fault; with no bytes left, no later field is read."""
        if self.fault == 0:
            self.fault = reason
        self.end = self.position

    def number(self, bits: int) -> int:
        """Return a zigzag varint of at most `bits` bits, 32 or 64; most have one or two bytes."""
        position = self.position
        if position < self.end:
            low = self.data[position]
            if low < 0x80:
                self.position = position + 1
                return (low >> 1) ^ -(low & 1)
            if position + 1 < self.end and self.data[position + 1] < 0x80:
                low = (low & 0x7F) | (self.data[position + 1] << 7)
                self.position = position + 2
                return (low >> 1) ^ -(low & 1)
        return self.long_number(bits)

    def long_number(self, bits: int) -> int:
        """Return a zigzag varint of any length; 0 after a fault."""
        position = self.position
        end = self.end
        raw = 0
        shift = 0
        while position < end:
            byte = self.data[position]
            position += 1
            # The last allowed byte has room for 4 (or 1) of its 7 bits.
            if shift + 7 > bits and byte >> (bits - shift):
                self.fail(_BAD_NUMBER)
                return 0
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position
                return (raw >> 1) ^ -(raw & 1)
            shift += 7
        self.fail(_TRUNCATED)
        return 0

    def skip(self, count: int) -> None:
        """Skip a field; a negative length is a null, which has no bytes."""
        if count > self.end - self.position:
            self.fail(_BAD_LENGTH)
        elif count > 0:
            self.position += count
