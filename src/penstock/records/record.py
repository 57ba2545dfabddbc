"""Single records inside a batch: bytes to `Record` and back, one object for each record.

A record, after decompression; every number is a zigzag varint except the attributes byte:

    length            bytes of all that follows
    attributes        one byte, unused
    timestamp delta   64 bits, to the batch's base timestamp
    offset delta      32 bits, to the batch's base offset
    key               length (negative: null), bytes
    value             length (negative: null), bytes
    headers           count, then for each: key length, UTF-8 key,
                      value length (negative: null), bytes

Guarantees: `decode_records` reads the output of `encode_record`; bytes that are not records raise
only `CorruptBatchError`. It is for tools, coordinators and tests. It is not the produce path: the
broker creates no object for a record, it checks them with `records.scan`.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from typing_extensions import Buffer

from penstock.core.errors import CorruptBatchError

NO_TIMESTAMP: Final = -1
"""The timestamp of a record whose producer set none."""

_INT32_BITS: Final = 32
_INT64_BITS: Final = 64
_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)


class Header(NamedTuple):
    """One header of a record."""

    key: str
    value: bytes | None = None


class Record(NamedTuple):
    """One record. A builder ignores `offset`: it numbers records from the batch's base offset."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int = NO_TIMESTAMP
    offset: int = -1


def append_varint(output: bytearray, value: int) -> None:
    """Write a signed number as a zigzag varint; 32 and 64 bits differ only in their range."""
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        output.append((raw & 0x7F) | 0x80)
        raw >>= 7
    output.append(raw)


def _append_bytes(output: bytearray, data: bytes | None) -> None:
    if data is None:
        output.append(1)
    else:
        append_varint(output, len(data))
        output += data


def encode_record(
    output: bytearray, record: Record, *, timestamp_delta_ms: int, offset_delta: int
) -> None:
    """Append one record to `output`."""
    body = bytearray(1)
    append_varint(body, timestamp_delta_ms)
    append_varint(body, offset_delta)
    _append_bytes(body, record.key)
    _append_bytes(body, record.value)
    append_varint(body, len(record.headers))
    for key, value in record.headers:
        _append_bytes(body, key.encode())
        _append_bytes(body, value)
    append_varint(output, len(body))
    output += body


class _Cursor:
    """A position in the records section that never leaves it."""

    __slots__ = ("_data", "end", "position")

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.position = 0
        self.end = len(data)

    def skip(self, count: int) -> None:
        """Move over `count` bytes."""
        if count > self.end - self.position:
            raise CorruptBatchError(f"a record runs past its end at byte {self.position}")
        self.position += count

    def varint(self, bits: int) -> int:
        """A signed number of at most `bits` bits."""
        raw = 0
        shift = 0
        while True:
            if self.position >= self.end:
                raise CorruptBatchError(f"a number runs past its end at byte {self.position}")
            byte = self._data[self.position]
            self.position += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= bits:
                raise CorruptBatchError(f"a number is too long at byte {self.position}")
        if raw >> bits:
            raise CorruptBatchError(f"a number is too large at byte {self.position}")
        return (raw >> 1) ^ -(raw & 1)

    def optional_bytes(self) -> bytes | None:
        """A length and as many bytes; null when the length is negative."""
        length = self.varint(_INT32_BITS)
        if length < 0:
            return None
        start = self.position
        self.skip(length)
        return bytes(self._data[start : self.position])

    def header(self) -> Header:
        """One header. As in Kafka's clients, invalid UTF-8 in a key is replaced."""
        key = self.optional_bytes()
        if key is None:
            raise CorruptBatchError(f"a header without a key before byte {self.position}")
        return Header(key.decode(errors="replace"), self.optional_bytes())

    def headers(self) -> tuple[Header, ...]:
        """All headers of a record."""
        count = self.varint(_INT32_BITS)
        if not 0 <= count <= self.end - self.position:
            raise CorruptBatchError(f"{count} headers before byte {self.position}")
        return tuple([self.header() for _ in range(count)])

    def record(self, base_offset: int, base_timestamp_ms: int) -> Record:
        """The next record, which must fill exactly the length it declares."""
        length = self.varint(_INT32_BITS)
        section_end = self.end
        if not 0 <= length <= section_end - self.position:
            raise CorruptBatchError(f"a record of {length} bytes at byte {self.position}")
        self.end = self.position + length
        self.skip(1)
        timestamp_ms = base_timestamp_ms + self.varint(_INT64_BITS)
        if not _INT64_MIN <= timestamp_ms <= _INT64_MAX:
            raise CorruptBatchError(f"a timestamp is too large before byte {self.position}")
        offset = base_offset + self.varint(_INT32_BITS)
        key = self.optional_bytes()
        value = self.optional_bytes()
        headers = self.headers()
        if self.position != self.end:
            raise CorruptBatchError(f"a record is shorter than it declares at byte {self.position}")
        self.end = section_end
        return Record(key, value, headers, timestamp_ms, offset)


def decode_records(
    section: Buffer, count: int, *, base_offset: int, base_timestamp_ms: int
) -> Iterator[Record]:
    """The `count` records of a decompressed section, which must have no other bytes."""
    cursor = _Cursor(memoryview(section))
    for _ in range(count):
        yield cursor.record(base_offset, base_timestamp_ms)
    if cursor.position != cursor.end:
        raise CorruptBatchError(f"{cursor.end - cursor.position} bytes after the last record")
