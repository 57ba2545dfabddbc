"""Confluent's wire format: a zero byte, the schema's id in four bytes, then the value (pure).

Protobuf has between them which message of the file it is, as a list of indexes in zigzag varints,
with a single zero for the first message.
"""

import struct
from typing import Final

from penstock.spark.tables.values.parser import ErrorClass, RowError

MAGIC: Final = 0
HEADER_BYTES: Final = 5
INDEXES_MAX: Final = 32
"""How deep messages lie in each other."""
_VARINT_BYTES_MAX: Final = 5

_ID: Final = struct.Struct(">xI")


def schema_id_of(value: bytes) -> int:
    """The id at the beginning of the value."""
    if len(value) < HEADER_BYTES or value[0] != MAGIC:
        raise RowError(
            ErrorClass.MALFORMED,
            f"the value begins with {value[:HEADER_BYTES].hex(' ') or 'nothing'}, not with a zero "
            "byte and a schema's id; its producer did not use the registry.",
        )
    return int(_ID.unpack_from(value)[0])


def message_indexes(value: bytes) -> tuple[tuple[int, ...], int]:
    """Which message of a Protobuf file the value is, and where it begins."""
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
