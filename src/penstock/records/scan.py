"""The record walker: checks each record of a decompressed batch without creating an object for it.

Guarantees: `scan_records` reads only the bytes it is given, takes time in proportion to them, and
returns `VALID` only if the section is exactly `count` records that fill it to the last byte, with
offset deltas 0, 1, 2, …, numbers of at most 5 or 10 bytes that fit their range, and as many headers
as each record declares. It also checks the rules of a topic: a key in each record, and timestamps
within a range. The first fault of the bytes wins over any such fault, as in Kafka.

This is the one hot loop over records in the broker, so the file is compiled. It is plain Python;
`scan.pxd` beside it gives the C types. Uncompiled it does the same, about a hundred times slower,
and `COMPILED` shows which one runs. Compiled, a long walk releases the interpreter lock, so that a
worker thread that checks a large batch does not stop the event loop. Every change here must be
correct for 64-bit integers that wrap: no operation may overflow, because uncompiled it would not.

It is not a decoder: see `records.record` for the layout and for records as objects.
"""

from typing import Final

COMPILED: Final = not __file__.endswith(".py")
"""Whether the C extension runs. If it does not, the broker logs it once, at its start."""

if COMPILED:
    # Never executed: the compiler removes it. Uncompiled code does not need the package.
    import cython

_LOCKED_BYTES_MAX: Final = 65_536
"""A longer walk releases the interpreter lock. A shorter one takes less than 0.2 ms, and releasing
the lock would cost a produce more than that when another thread wants it."""

VALID: Final = 0
TIMESTAMP_OVERFLOW: Final = 7
NULL_KEY: Final = 8
BAD_TIMESTAMP: Final = 9

# The names that the C code uses are private: as C integers they cannot be imported from Python.
_TRUNCATED: Final = 1
_BAD_NUMBER: Final = 2
_BAD_LENGTH: Final = 3
_BAD_OFFSET: Final = 4
_BAD_HEADERS: Final = 5
_TRAILING_BYTES: Final = 6
_TIMESTAMP_OVERFLOW: Final = 7
_NULL_KEY: Final = 8
_BAD_TIMESTAMP: Final = 9

REASONS: Final[tuple[str, ...]] = (
    "valid",
    "it runs past its end",
    "a number in it is too long or too large",
    "its parts do not fill the length it declares",
    "its offset delta does not follow on from the one before",
    "its header count or a header key length is impossible",
    "bytes follow after the last record",
    "its timestamp does not fit 64 bits",
    "it has no key, and the topic is compacted",
    "its timestamp is outside what the topic accepts",
)
"""The meaning of each code, for the text after «record 7: »."""

_INT64_MAX: Final = 9223372036854775807
_INT64_MIN: Final = -_INT64_MAX - 1
_NO_TIMESTAMP: Final = -1


class _Walker:
    """A position in the bytes that never passes `end`; the first fault stays in `reason`."""

    def __init__(self, data: memoryview, position: int, end: int) -> None:
        self.data = data
        self.position = position
        self.end = end
        self.reason = 0
        self.timestamp_ms = 0
        self.has_key = False
        self.index = 0
        self.fault = 0
        self.fault_index = 0
        self.max_timestamp_ms = -1
        self.max_index = -1

    def number(self, bits: int) -> int:
        """A zigzag varint of at most `bits` bits, 32 or 64; 0 after a fault."""
        position = self.position
        end = self.end
        raw = 0
        shift = 0
        while position < end:
            byte = self.data[position]
            position += 1
            # The last allowed byte has room for 4 (or 1) of its 7 bits.
            if shift + 7 > bits and byte >> (bits - shift):
                self.reason = _BAD_NUMBER
                return 0
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position
                return (raw >> 1) ^ -(raw & 1)
            shift += 7
        self.reason = _TRUNCATED
        return 0

    def skip(self, count: int) -> None:
        """Move over a field; a negative length is a null, which has no bytes."""
        if count > self.end - self.position:
            self.reason = _BAD_LENGTH
        elif count > 0:
            self.position += count

    def headers(self) -> None:
        """All headers of a record."""
        count = self.number(32)
        if count < 0 or count > self.end - self.position:
            self.reason = _BAD_HEADERS
            return
        while count > 0 and self.reason == 0:
            count -= 1
            length = self.number(32)
            if length < 0:
                self.reason = _BAD_HEADERS
                return
            self.skip(length)
            if self.reason == 0:
                self.skip(self.number(32))

    def body(self) -> None:
        """The length of the next record, which becomes the end until the record is read."""
        length = self.number(32)
        if length > self.end - self.position:
            self.reason = _TRUNCATED
        elif length < 0:
            self.reason = _BAD_LENGTH
        else:
            self.end = self.position + length

    def time(self, base_timestamp_ms: int) -> None:
        """The timestamp delta."""
        delta = self.number(64)
        if (delta > 0 and base_timestamp_ms > _INT64_MAX - delta) or (
            delta < 0 and base_timestamp_ms < _INT64_MIN - delta
        ):
            self.reason = _TIMESTAMP_OVERFLOW
        else:
            self.timestamp_ms = base_timestamp_ms + delta

    def record(self, offset_delta: int, base_timestamp_ms: int) -> None:
        """One record; sets its timestamp, whether it has a key, and `end` to its end."""
        self.body()
        if self.reason == 0:
            self.skip(1)
        if self.reason == 0:
            self.time(base_timestamp_ms)
        if self.reason == 0 and self.number(32) != offset_delta and self.reason == 0:
            self.reason = _BAD_OFFSET
        if self.reason == 0:
            length = self.number(32)
            self.has_key = length >= 0
            self.skip(length)
        if self.reason == 0:
            self.skip(self.number(32))
        if self.reason == 0:
            self.headers()
        if self.reason == 0 and self.position != self.end:
            self.reason = _BAD_LENGTH

    def walk(
        self,
        count: int,
        base_timestamp_ms: int,
        earliest_ms: int,
        latest_ms: int,
        key_required: bool,  # noqa: FBT001 - a C function has no keyword arguments to speak of
    ) -> None:
        """All records; touches no Python object, so the interpreter may run meanwhile."""
        end = self.end
        index = 0
        while index < count:
            self.end = end
            self.record(index, base_timestamp_ms)
            if self.reason != 0:
                break
            timestamp_ms = self.timestamp_ms
            if timestamp_ms > self.max_timestamp_ms:
                self.max_timestamp_ms = timestamp_ms
                self.max_index = index
            if self.fault == 0 and key_required and not self.has_key:
                self.fault = _NULL_KEY
                self.fault_index = index
            if (
                self.fault == 0
                and (timestamp_ms < earliest_ms or timestamp_ms > latest_ms)
                and timestamp_ms != _NO_TIMESTAMP
            ):
                self.fault = _BAD_TIMESTAMP
                self.fault_index = index
            index += 1
        self.index = index


def scan_records(
    data: memoryview,
    position: int,
    end: int,
    count: int,
    base_timestamp_ms: int,
    earliest_ms: int,
    latest_ms: int,
    key_required: bool,  # noqa: FBT001 - a C function has no keyword arguments to speak of
) -> tuple[int, int, int, int]:
    """Check `data[position:end]`: reason, index of the record to blame, max timestamp, its delta.

    The delta is the offset delta of the first record that has the max timestamp. A record without a
    timestamp (-1) is never outside the range. `data` has the format "B"; both ends lie within it.
    """
    assert 0 <= position <= end <= len(data)
    walker = _Walker(data, position, end)
    if COMPILED and end - position > _LOCKED_BYTES_MAX:
        with cython.nogil:
            walker.walk(count, base_timestamp_ms, earliest_ms, latest_ms, key_required)
    else:
        walker.walk(count, base_timestamp_ms, earliest_ms, latest_ms, key_required)
    if walker.reason != 0:
        return walker.reason, walker.index, 0, 0
    if walker.position != end:
        return _TRAILING_BYTES, walker.index - 1, 0, 0
    return walker.fault, walker.fault_index, walker.max_timestamp_ms, walker.max_index
