"""`OpenBatch`: the bytes of an unfinished record batch.

Guarantees: `records.builder` writes the same bytes for the same records; nothing is written outside
of its memory, which grows with the records, up to `bytes_max` unless one record alone is larger.
The first 61 bytes are kept free for the header.

It is a part of the encode kernel, so the file is compiled: plain Python here, the C types in
`open_batch.pxd`. Every change must hold for 64-bit integers that wrap: numbers here stay below
2^62. `encode.kernel` decides when a batch is full, and `encode.encoder` writes the header.
"""

from typing import Final

# The names for the C code are private: they are C integers, which Python cannot import.
_HEADER_BYTES: Final = 61
_BYTES_MIN: Final = 4_096


class OpenBatch:
    """A sequence of `records` records, up to `position`."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.clear()

    def clear(self) -> None:
        """Start an empty batch with new memory."""
        self.content = bytearray()
        self.target = memoryview(self.content)
        self.capacity = 0
        self.position = _HEADER_BYTES
        self.records = 0
        self.base_timestamp_ms = -1
        self.max_timestamp_ms = -1

    def take(self) -> bytearray:
        """Return the bytes so far, with a zero header; the batch is empty afterwards."""
        content, end = self.content, self.position
        # The memory can only be cut while no view of it exists.
        self.clear()
        del content[end:]
        return content

    def size(self, value: int) -> int:
        """Return the size of a number as a zigzag varint, in bytes."""
        raw = 2 * value if value >= 0 else -2 * value - 1
        count = 1
        while raw > 0x7F:
            raw >>= 7
            count += 1
        return count

    def body_size(self, timestamp_ms: int, fields_size: int) -> int:
        """Return the length field of the next record, if key, value and headers have this size."""
        delta = timestamp_ms - self.base_timestamp_ms if self.records > 0 else 0
        return 1 + self.size(delta) + self.size(self.records) + fields_size

    def begin_record(self, body_size: int, timestamp_ms: int) -> None:
        """Allocate memory for the next record, and write the fields before its key."""
        needed = self.position + self.size(body_size) + body_size
        if needed > self.capacity:
            self.grow(needed)
        if self.records == 0:
            self.base_timestamp_ms = timestamp_ms
        self.max_timestamp_ms = max(self.max_timestamp_ms, timestamp_ms)
        self.write_number(body_size)
        self.target[self.position] = 0
        self.position += 1
        self.write_number(timestamp_ms - self.base_timestamp_ms)
        self.write_number(self.records)
        self.records += 1

    def grow(self, needed: int) -> None:
        """Allocate `needed` bytes, and twice the previous size if `bytes_max` allows it."""
        size = max(needed, min(max(2 * self.capacity, _BYTES_MIN), self.bytes_max))
        content = bytearray(size)
        content[: len(self.content)] = self.content
        self.content = content
        self.target = memoryview(content)
        self.capacity = len(content)

    def write_field(self, source: memoryview, start: int, length: int) -> None:
        """Write a key or value with its length, -1 for null; the memory is already allocated."""
        self.write_number(length)
        if length > 0:
            self.copy(self.target, source, start, length)
            self.position += length

    def write_number(self, value: int) -> None:
        """Write a zigzag varint; the memory is already allocated."""
        raw = 2 * value if value >= 0 else -2 * value - 1
        while raw > 0x7F:
            self.target[self.position] = (raw & 0x7F) | 0x80
            self.position += 1
            raw >>= 7
        self.target[self.position] = raw
        self.position += 1

    def copy(self, target: memoryview, source: memoryview, start: int, count: int) -> None:
        """Copy `count` bytes to `position`."""
        at = self.position
        index = 0
        # A C compiler turns this loop into wide moves, without a call; see below for Python.
        while index < count:
            target[at + index] = source[start + index]
            index += 1


def _copy_slice(
    self: OpenBatch, target: memoryview, source: memoryview, start: int, count: int
) -> None:
    target[self.position : self.position + count] = source[start : start + count]


if __file__.endswith(".py"):
    # Uncompiled, a slice moves all bytes at once.
    OpenBatch.copy = _copy_slice  # type: ignore[method-assign]
