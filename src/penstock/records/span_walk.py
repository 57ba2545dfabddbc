"""Finds the records of a decompressed batch: where each begins and ends, its key, its numbers.

Guarantees: it reads only the bytes it is given and takes time in proportion to them. `span_slice`
finds a few records and returns where to continue; `record_spans` finds all of them, and raises
`CorruptBatchError` for bytes that are not exactly `count` records. Values and headers are skipped,
neither copied nor parsed.

This is the hot loop of compaction, so the file is compiled. It is plain Python; `span_walk.pxd`
beside it gives the C types. Uncompiled it does the same, ten times slower. Every change here must
be correct for 64-bit integers that wrap: no operation may overflow.

It is not a decoder (`records.record`), and does not validate produced records (`records.scan`).
"""

from typing import Final

from penstock.core.errors import CorruptBatchError

KEY_COPIED_BYTES_MAX: Final = 65_536
"""A longer key of a large record stays a view: a copy of 128 MiB holds the interpreter for long."""


class RecordSpan:
    """One record in a decompressed section. Never changed: a plain class is created faster."""

    __slots__ = ("end", "has_value", "key", "offset_delta", "rest", "start", "timestamp_delta_ms")

    def __init__(
        self,
        start: int,
        end: int,
        rest: int,
        timestamp_delta_ms: int,
        offset_delta: int,
        key: bytes | memoryview | None,
        has_value: bool,  # noqa: FBT001 - made once for each record, by position
    ) -> None:
        self.start = start
        """Position of its length field."""
        self.end = end
        self.rest = rest
        """Position of its key: the bytes before it depend on the batch, the rest does not."""
        self.timestamp_delta_ms = timestamp_delta_ms
        self.offset_delta = offset_delta
        self.key = key
        self.has_value = has_value


class _Walker:
    """A position in the bytes that never passes `end`; a fault stays in `faults`."""

    def __init__(self, data: bytes | memoryview, end: int) -> None:
        self.data = data
        self.position = 0
        self.end = end
        self.faults = 0

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
                self.faults = 1
                return 0
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position
                return (raw >> 1) ^ -(raw & 1)
            shift += 7
        self.faults = 1
        return 0

    def skip(self, count: int) -> None:
        """Move over a field; a negative length is a null, which has no bytes."""
        if count > self.end - self.position:
            self.faults = 1
        elif count > 0:
            self.position += count


def span_slice(section: bytes, position: int, count: int) -> tuple[list[RecordSpan], int]:
    """The next complete records in `section`, at most `count`, and the position of their end.

    Fewer than `count` means that the record at that position is damaged or incomplete.
    """
    size = len(section)
    walker = _Walker(section, size)
    walker.position = position
    spans = []
    index = 0
    while index < count:
        start = walker.position
        walker.end = size
        length = walker.number(32)
        if walker.faults != 0 or length < 1 or length > size - walker.position:
            break
        end = walker.position + length
        walker.end = end
        walker.skip(1)
        timestamp_delta_ms = walker.number(64)
        offset_delta = walker.number(32)
        rest = walker.position
        key_length = walker.number(32)
        key_start = walker.position
        walker.skip(key_length)
        key_end = walker.position
        value_length = walker.number(32)
        walker.skip(value_length)
        if walker.faults != 0:
            break
        key = section[key_start:key_end] if key_length >= 0 else None
        spans.append(
            RecordSpan(start, end, rest, timestamp_delta_ms, offset_delta, key, value_length >= 0)
        )
        walker.position = end
        position = end
        index += 1
    return spans, position


def large_span(section: memoryview, position: int) -> RecordSpan | None:
    """The record at `position`, or None if it is damaged; a long key is not copied."""
    walker = _Walker(section, len(section))
    walker.position = position
    length = walker.number(32)
    if walker.faults != 0 or length < 1 or length > len(section) - walker.position:
        return None
    end = walker.position + length
    walker.end = end
    walker.skip(1)
    timestamp_delta_ms = walker.number(64)
    offset_delta = walker.number(32)
    rest = walker.position
    key_length = walker.number(32)
    key_start = walker.position
    walker.skip(key_length)
    key_view = section[key_start : walker.position]
    value_length = walker.number(32)
    walker.skip(value_length)
    if walker.faults != 0:
        return None
    key: bytes | memoryview | None = key_view
    if key_length < 0:
        key = None
    elif key_length <= KEY_COPIED_BYTES_MAX:
        key = bytes(key_view)
    return RecordSpan(position, end, rest, timestamp_delta_ms, offset_delta, key, value_length >= 0)


def record_spans(section: bytes, count: int) -> list[RecordSpan]:
    """The `count` records of a decompressed section, which must have no other bytes."""
    spans, position = span_slice(section, 0, count)
    if len(spans) != count or position != len(section):
        raise CorruptBatchError(
            f"record {len(spans)} of {count} is damaged, or bytes follow the last"
        )
    return spans
