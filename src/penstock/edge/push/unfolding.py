"""Payloads of DATA from the records of a batch, fast.

It reads numbers of one byte, which are nearly all, without a call, and creates no object for a
record. Guarantees: the payloads are those of `records.record.decode_records` and `encode_tail`.
A record with headers, and a section that is not records, return None: the caller then uses these
two, which read headers and raise the error.
"""

from struct import Struct, error
from typing import Final

from penstock.core.errors import CorruptBatchError
from penstock.protocol.push.data import DELETE, MESSAGE

_TAIL: Final = Struct(">iqqiHBHi")
_INT64_MAX: Final = 2**63 - 1
_VARINT_BYTES_MAX: Final = 10


def unfold(
    section: bytes,
    count: int,
    *,
    partition: int,
    base_offset: int,
    base_timestamp_ms: int,
    fixed_timestamp_ms: int | None,
    leader_epoch: int,
) -> tuple[list[int], list[bytes]] | None:
    """Return the offset behind each record, and its payload without a subscription."""
    nexts: list[int] = []
    tails: list[bytes] = []
    place, size, pack = 0, len(section), _TAIL.pack
    try:
        for _ in range(count):
            length, place = _number(section, place)
            end = place + length
            if length < 0 or end > size:
                return None
            time_delta, place = _number(section, place + 1)
            byte = section[place]
            if byte < 0x80:
                offset, place = base_offset + ((byte >> 1) ^ -(byte & 1)), place + 1
            else:
                delta, place = _number(section, place)
                offset = base_offset + delta
            key_length, place = _number(section, place)
            key_end = place + max(key_length, 0)
            value_length, value_start = _number(section, key_end)
            value_end = value_start + max(value_length, 0)
            timestamp_ms = base_timestamp_ms + time_delta
            # A record without headers ends with their count, one byte of zero.
            if value_end + 1 != end or section[value_end] or not -1 <= timestamp_ms <= _INT64_MAX:
                return None
            tail = pack(
                partition,
                offset,
                timestamp_ms if fixed_timestamp_ms is None else fixed_timestamp_ms,
                leader_epoch,
                0,
                DELETE if value_length < 0 else MESSAGE,
                0,
                max(key_length, -1),
            )
            tails.append(tail + section[place:key_end] + section[value_start:value_end])
            nexts.append(offset + 1)
            place = end
    except (IndexError, CorruptBatchError, error):
        return None
    return (nexts, tails) if place == size else None


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
