"""Confluent's wire format: a zero byte, the schema's id in four bytes, then the value (pure).

With Protobuf the index of the message in the file is between them, as a list of indexes in zigzag
varints, with a single zero for the first message.
"""

import struct
from typing import Final

from penstock.spark.tables.values.parser import ErrorClass, RowError

MAGIC: Final = 0
HEADER_BYTES: Final = 5
INDEXES_MAX: Final = 32
"""The maximum nesting of messages."""
_VARINT_BYTES_MAX: Final = 5

_ID: Final = struct.Struct(">xI")


def schema_id_of(value: bytes) -> int:
    """Return the id at the beginning of the value."""
    if len(value) < HEADER_BYTES or value[0] != MAGIC:
        raise RowError(
            ErrorClass.MALFORMED,
            f"the value begins with {value[:HEADER_BYTES].hex(' ') or 'nothing'}, not with a zero "
            "byte and a schema's id; its producer did not use the registry.",
        )
    return int(_ID.unpack_from(value)[0])


def message_indexes(value: bytes) -> tuple[tuple[int, ...], int]:
    """Return the value's message in a Protobuf file, and the position of its first byte."""
    count, position = _zigzag(value, HEADER_BYTES)
    if count == 0:
        return (0,), position
    if not 0 < count <= INDEXES_MAX:
        raise RowError(ErrorClass.MALFORMED, f"the value has {count} message indexes.")
    found = []
    for _ in range(count):
        index, position = _zigzag(value, position)
        found.append(index)
    return tuple(found), position


def _zigzag(value: bytes, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(_VARINT_BYTES_MAX):
        if position >= len(value):
            break
        byte = value[position]
        position += 1
        number |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
    raise RowError(ErrorClass.MALFORMED, "the message indexes of the value are cut off.")
