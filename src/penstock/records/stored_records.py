"""Reads only offset, key and value of each record of a stored batch, fast.

A coordinator reads a million records when it starts, so this reads the numbers of one byte, which
are nearly all, without a call, and creates no object for a record. A batch may hold a million too,
so it reads at most `count` and returns where to continue. Headers and timestamps are skipped.
Raises `CorruptBatchError` for a wrong checksum or bytes that are not records.

It is for logs that this broker wrote; `records.validation` checks batches of clients.
"""

from io import BytesIO
from typing import Final

from penstock.core.errors import CorruptBatchError
from penstock.records import batch as layout
from penstock.records.batch import BatchHeader
from penstock.records.builder import records_section

_VARINT_BYTES_MAX: Final = 10
_COPIED_BYTES_MAX: Final = 1_048_576


StoredRecord = tuple[int, bytes | None, bytes | None]
"""Offset, key, value."""


def unfolded(batch: memoryview, position: int, header: BatchHeader) -> bytes:
    """The plain records of the batch at `position`; its checksum is verified."""
    if not layout.checksum_matches(batch, position, header):
        raise CorruptBatchError(f"the checksum of the batch at {header.base_offset} is wrong")
    section = memoryview(records_section(batch, header, position=position))
    if len(section) <= _COPIED_BYTES_MAX:
        return bytes(section)
    # A copy holds the interpreter; between two pieces other threads get their turn.
    output = BytesIO()
    for start in range(0, len(section), _COPIED_BYTES_MAX):
        output.write(section[start : start + _COPIED_BYTES_MAX])
    return output.getvalue()


def stored_records(
    section: bytes, place: int, count: int, base_offset: int
) -> tuple[list[StoredRecord], int]:
    """The next `count` records of a decompressed section, starting at `place`, and their end."""
    size = len(section)
    records: list[StoredRecord] = []
    try:
        for _ in range(count):
            length, place = _number(section, place)
            end = place + length
            # The attributes are one byte; the timestamp is skipped.
            place += 2 if section[place + 1] < 0x80 else _number(section, place + 1)[1] - place
            byte = section[place]
            if byte < 0x80:
                offset_delta, place = (byte >> 1) ^ -(byte & 1), place + 1
            else:
                offset_delta, place = _number(section, place)
            key, place = _field(section, place)
            value, place = _field(section, place)
            if length < 0 or end > size or place > end:
                raise CorruptBatchError(f"a record of the batch at {base_offset} lies")
            place = end
            records.append((base_offset + offset_delta, key, value))
    except IndexError:
        raise CorruptBatchError(f"a record of {base_offset} runs past its end") from None
    return records, place


def _field(section: bytes, place: int) -> tuple[bytes | None, int]:
    byte = section[place]
    if byte < 0x80:
        place += 1
        if byte & 1:
            return None, place
        end = place + (byte >> 1)
        return section[place:end], end
    length, place = _number(section, place)
    if length < 0:
        return None, place
    return section[place : place + length], place + length


def _number(section: bytes, place: int) -> tuple[int, int]:
    """A zigzag varint, and the position of its end."""
    byte = section[place]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), place + 1
    raw = shift = 0
    for index in range(place, place + _VARINT_BYTES_MAX):
        byte = section[index]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), index + 1
        shift += 7
    raise CorruptBatchError("a number that is too long")
