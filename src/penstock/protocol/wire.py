"""The primitives of Kafka's wire that the compiled decoders and encoders share.

A decoder never trusts a length: each is checked against the received bytes before memory is
allocated. Every hostile body ends in `WireError`, `struct.error`, `IndexError` or
`UnicodeDecodeError` (`WIRE_ERRORS`); callers turn these into their one declared error.

Rules that Apache Kafka leaves open or lax, as implemented here:

- a varint has at most 5 bytes and 32 bits; more is refused (Kafka drops the surplus bits);
- a length below -1 is refused (Kafka reads any negative one as null);
- tags must ascend and fit their size (Kafka lets them repeat); unknown tags are skipped;
- text must be UTF-8 (Kafka puts replacement characters); NUL is a character like others;
- bytes after the last field are ignored, as in Kafka.

This file is NOT a cursor or a stream: plain functions over a buffer and a position, for speed.
"""

import struct
import uuid
from functools import lru_cache
from typing import Final

from penstock.core.limits import TAGGED_FIELDS_MAX
from penstock.protocol.error_codes import ErrorCode

STRING_BYTES_MAX: Final = 32_767
"""The longest string: the largest int16; Kafka limits compact strings to it as well."""

ZERO_UUID_BYTES: Final = bytes(16)
"""Written for None where a UUID is expected."""


class WireError(ValueError):
    """An impossible length, count or tag."""


WIRE_ERRORS: Final = (WireError, struct.error, IndexError, UnicodeDecodeError)
"""All exceptions of decoding hostile bytes."""


def read_unsigned_varint(buffer: memoryview, position: int) -> tuple[int, int]:
    """A varint of at most 32 bits at `position`, and the position behind it."""
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFF_FFFF:
                break
            return value, position
    raise WireError("a varint of more than 32 bits")


def unsigned_varint(value: int) -> bytes:
    """The bytes of a varint."""
    if value < 0x80:
        return SHORT_VARINTS[value]
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


SHORT_VARINTS: Final = tuple(bytes([value]) for value in range(0x80))
"""The varints of one byte, by value."""


def skip_tags(buffer: memoryview, position: int, end: int, count: int) -> int:
    """The position behind `count` unknown tagged fields."""
    if count > TAGGED_FIELDS_MAX:
        raise WireError("more tagged fields than any schema has")
    previous = -1
    for _ in range(count):
        previous, size, position = read_tag(buffer, position, end, previous)
        position += size
    return position


def read_tag(buffer: memoryview, position: int, end: int, previous: int) -> tuple[int, int, int]:
    """A tag, the size of its field and the position of the field."""
    tag, position = read_unsigned_varint(buffer, position)
    size, position = read_unsigned_varint(buffer, position)
    if tag <= previous:
        raise WireError("tags that repeat or do not ascend")
    if size > end - position:
        raise WireError("a tagged field that is longer than its message")
    return tag, size, position


def check_tag_size(position: int, expected: int) -> None:
    """A tagged field that is known must take exactly the bytes it announced."""
    if position != expected:
        raise WireError("a tagged field of another size than announced")


def null_refused(name: str) -> None:
    """A null where the schema has none."""
    raise WireError(f"null in {name}")


def length_refused(name: str) -> None:
    """A length that is negative or past the end."""
    raise WireError(f"impossible length of {name}")


@lru_cache(maxsize=4_096)
def uuid_or_none(encoded: bytes) -> uuid.UUID | None:
    """A UUID; zeros are None. Cached, because building one costs more than the rest of a topic."""
    return None if encoded == ZERO_UUID_BYTES else uuid.UUID(bytes=encoded)


def uuid_bytes(value: uuid.UUID | None) -> bytes:
    """The 16 bytes of a UUID; None is zeros."""
    return ZERO_UUID_BYTES if value is None else value.bytes


def error_code(number: int) -> ErrorCode:
    """The error code of a number; unknown numbers are kept."""
    known = _ERROR_CODES.get(number)
    return ErrorCode(number) if known is None else known


_ERROR_CODES: Final = {member.value: member for member in ErrorCode}


def compact_string(value: str) -> tuple[bytes, bytes]:
    """Length and bytes of a compact string."""
    encoded = value.encode()
    if len(encoded) > STRING_BYTES_MAX:
        raise ValueError(f"a string of {len(encoded)} bytes, at most {STRING_BYTES_MAX}")
    return unsigned_varint(len(encoded) + 1), encoded
