"""Protocol Buffers' encoding: fields to bytes and bytes to fields (pure).

Guarantees: `parse` reads every message that a correct encoder writes, in any order of fields, and
keeps fields it does not know apart from nothing: they are returned and the caller ignores them. A
length or a number that does not fit raises `MalformedMessageError`; nothing is read past the end.

It is NOT a Protocol Buffers library: no schemas, no groups, no floats. The messages of etcd that
Penstock uses have integers, booleans, texts, bytes and messages only.
"""

from typing import Final, NamedTuple

from penstock.core.errors import StoreError

_VARINT: Final = 0
_FIXED_64: Final = 1
_BYTES: Final = 2
_FIXED_32: Final = 5
_VARINT_BITS_MAX: Final = 63
"""Ten bytes of seven bits: the last one has the 64th bit."""
_WIDTHS: Final = {_FIXED_64: 8, _FIXED_32: 4}


class MalformedMessageError(StoreError):
    """Bytes that are not a message: the address belongs to another kind of server."""


class Fields(NamedTuple):
    """The fields of one message by number."""

    numbers: dict[int, int]
    """Unsigned; of a field that is there twice, the last one."""
    texts: list[tuple[int, bytes]]
    """Texts, bytes and messages, in the order of the message."""

    def number(self, field: int) -> int:
        """Return a signed integer; an absent one is 0."""
        value = self.numbers.get(field, 0)
        return value - (1 << 64) if value >> 63 else value


def varint(value: int) -> bytes:
    """Encode an integer of 64 bits; a negative one takes ten bytes."""
    remaining = value & 0xFFFF_FFFF_FFFF_FFFF
    encoded = bytearray()
    while remaining > 0x7F:
        encoded.append(remaining & 0x7F | 0x80)
        remaining >>= 7
    encoded.append(remaining)
    return bytes(encoded)


def number_field(field: int, value: int) -> bytes:
    """Encode an integer or a boolean, with its number, also if it is 0."""
    return varint(field << 3) + varint(value)


def bytes_field(field: int, value: bytes) -> bytes:
    """Encode a text, bytes or a message, with its number, also if it is empty."""
    return varint(field << 3 | _BYTES) + varint(len(value)) + value


def parse(message: bytes) -> Fields:
    """Return the fields of a message."""
    numbers: dict[int, int] = {}
    texts: list[tuple[int, bytes]] = []
    position, end = 0, len(message)
    while position < end:
        tag, position = _read_varint(message, position)
        kind = tag & 7
        if kind == _BYTES:
            length, position = _read_varint(message, position)
            following = position + length
            if following > end:
                raise MalformedMessageError(
                    f"a field of {length} bytes in a message with {end - position} left: "
                    "check that the address is an etcd member's client address"
                )
            texts.append((tag >> 3, message[position:following]))
            position = following
        elif kind == _VARINT:
            numbers[tag >> 3], position = _read_varint(message, position)
        else:
            position = _skip(kind, position, end)
    return Fields(numbers, texts)


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    try:
        byte = message[position]
        if byte < 0x80:
            return byte, position + 1
        value = byte & 0x7F
        shift = 7
        while True:
            position += 1
            byte = message[position]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, position + 1
            shift += 7
            if shift > _VARINT_BITS_MAX:
                break
    except IndexError:
        raise MalformedMessageError(
            "a message ends within a number: check that the address is an etcd member's client "
            "address"
        ) from None
    raise MalformedMessageError(
        "a number of more than ten bytes: check that the address is an etcd member's client address"
    )


def _skip(kind: int, position: int, end: int) -> int:
    width = _WIDTHS.get(kind)
    if width is None or position + width > end:
        raise MalformedMessageError(
            f"a field of kind {kind}: check that the address is an etcd member's client address"
        )
    return position + width
