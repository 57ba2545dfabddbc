"""Fields of protobuf messages: bytes to numbers and texts, and back. Pure.

Guarantees: a message is what protobuf writes for the types that `penstock.proto` has; unknown
fields are skipped; the number of fields of a request is bounded, so that parsing a message of empty
fields does not hold up the event loop. Damaged bytes raise `MalformedRequestError`.

It is NOT a protobuf library: no schemas, no groups, no floats, no packed numbers in requests.
"""

from typing import Final

from penstock.core.errors import PenstockError
from penstock.edge.grpc_gateway.gateway_limits import FIELDS_MAX

_VARINT: Final = 0
_BYTES: Final = 2
_WIDTHS: Final = {1: 8, 5: 4}
_SHIFT_MAX: Final = 63
_UINT64_MAX: Final = 2**64 - 1
_INT64_MAX: Final = 2**63 - 1


class MalformedRequestError(PenstockError):
    """Bytes that are not the message that the method needs."""


class FieldBudget:
    """The fields that one request may still have."""

    __slots__ = ("left",)

    def __init__(self, left: int = FIELDS_MAX) -> None:
        self.left = left


def parse_fields(
    message: bytes, budget: FieldBudget
) -> tuple[dict[int, int], list[tuple[int, bytes]]]:
    """Return numbers by field (the last one counts), and texts in their order."""
    numbers: dict[int, int] = {}
    texts: list[tuple[int, bytes]] = []
    position, end, left = 0, len(message), budget.left
    while position < end:
        left -= 1
        if left < 0:
            raise MalformedRequestError(
                f"the request has more than {FIELDS_MAX} fields; send fewer records in one call, "
                "or a batch"
            )
        tag, position = _varint_at(message, position)
        kind = tag & 7
        if kind == _BYTES:
            length, position = _varint_at(message, position)
            following = position + length
            if following > end:
                raise MalformedRequestError(
                    f"a field has {length} bytes, and the message ends after {end - position}"
                )
            texts.append((tag >> 3, message[position:following]))
            position = following
        elif kind == _VARINT:
            value, position = _varint_at(message, position)
            numbers[tag >> 3] = value if value <= _INT64_MAX else value - (1 << 64)
        else:
            position = _skip(kind, position, end)
    budget.left = left
    return numbers, texts


def _varint_at(message: bytes, position: int) -> tuple[int, int]:
    try:
        byte = message[position]
        if byte < 0x80:
            return byte, position + 1
        value, shift = byte & 0x7F, 7
        while shift <= _SHIFT_MAX:
            position += 1
            byte = message[position]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & _UINT64_MAX, position + 1
            shift += 7
    except IndexError:
        raise MalformedRequestError("the message ends within a number") from None
    raise MalformedRequestError("a number has more than ten bytes")


def _skip(kind: int, position: int, end: int) -> int:
    width = _WIDTHS.get(kind)
    if width is None or position + width > end:
        raise MalformedRequestError(f"a field has the kind {kind}, or ends behind the message")
    return position + width


def text_of(data: bytes, name: str) -> str:
    """Return a text field."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise MalformedRequestError(f"the field {name} is not UTF-8") from None


def varint(value: int) -> bytes:
    """Encode an integer of 64 bits; a negative one has ten bytes."""
    if 0 <= value < 0x80:
        return bytes((value,))
    remaining = value & _UINT64_MAX
    encoded = bytearray()
    while remaining > 0x7F:
        encoded.append(remaining & 0x7F | 0x80)
        remaining >>= 7
    encoded.append(remaining)
    return bytes(encoded)


def number_field(field: int, value: int) -> bytes:
    """Encode an integer or a boolean; 0 is the default and has no bytes."""
    return bytes((field << 3,)) + varint(value) if value else b""


def present_number_field(field: int, value: int) -> bytes:
    """Encode an optional integer, also if it is 0."""
    return bytes((field << 3,)) + varint(value)


def bytes_field(field: int, value: bytes) -> bytes:
    """Encode a text, bytes or a message, also if it is empty."""
    return bytes((field << 3 | _BYTES,)) + varint(len(value)) + value


def text_field(field: int, value: str) -> bytes:
    """Encode a text; an empty one is the default and has no bytes."""
    return bytes_field(field, value.encode()) if value else b""
