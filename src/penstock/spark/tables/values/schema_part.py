"""The schema part of Kafka Connect's JSON: `{"schema": {...}, "payload": {...}}` (pure).

Guarantees: `split` returns each value once, with its payload byte for byte and the fields of its
schema part; a value without a schema part is its own payload. Values that share a schema part are
split together, without a look into it: it is most of the bytes of an event.

A schema part is parsed once for each text. Only names, types and scales of fields are read from it:
optional fields, defaults and versions have no effect on a row.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

_CANDIDATE: Final = rb'^\s*\{\s*"(?:schema|payload)"\s*:'
SHAPES_MAX: Final = 32
"""The number of schema parts that are searched in a column of values; the values of others are
split one by one."""
KNOWN_MAX: Final = 256
"""The number of parsed schema parts that are kept."""
_DEPTH_MAX: Final = 20
_NAMES: Final = {"schema", "payload"}
_SPACE: Final = " \t\r\n"
_DECODER: Final = json.JSONDecoder()


class ConnectType(NamedTuple):
    """The type of a field in a schema part."""

    type: str
    name: str | None = None
    """The meaning, such as `io.debezium.time.Date`."""
    scale: int | None = None
    """The scale of a decimal."""
    items: "ConnectType | None" = None
    """The type of the items of an array."""
    fields: "tuple[tuple[str, ConnectType], ...]" = ()
    """The fields of a struct."""

    def field(self, name: str) -> "ConnectType | None":
        """Return the type of a field of a struct."""
        return next((kind for one, kind in self.fields if one == name), None)


@dataclass(frozen=True, slots=True)
class Payloads:
    """Values with one schema."""

    schema: ConnectType | None
    """None: the values have no schema part."""
    payloads: pa.Array
    numbers: pa.Array
    """The numbers of the values in the input, ascending."""


class SchemaParts:
    """Splits values, and keeps the schema parts that it has parsed."""

    def __init__(self) -> None:
        self._known: dict[str, ConnectType | None] = {}

    def split(self, values: pa.Array) -> list[Payloads]:
        """Return the payloads of values without nulls, grouped by their schemas."""
        found: dict[ConnectType | None, list[tuple[pa.Array, pa.Array]]] = {}
        is_candidate = pc.match_substring_regex(values, _CANDIDATE)
        left = pc.indices_nonzero(is_candidate).cast(pa.int64())
        plain = pc.indices_nonzero(pc.invert(is_candidate)).cast(pa.int64())
        if len(plain) or not len(values):
            found[None] = [(values.take(plain), plain)]
        shapes = 0
        while len(left):
            shapes += 1
            taken, rest = self._taken(values, left, is_alone=shapes > SHAPES_MAX)
            schema, payloads, numbers = taken
            found.setdefault(schema, []).append((payloads, numbers))
            left = rest
        return [_together(schema, parts) for schema, parts in found.items()]

    def _taken(
        self, values: pa.Array, left: pa.Array, *, is_alone: bool
    ) -> tuple[tuple[ConnectType | None, pa.Array, pa.Array], pa.Array]:
        """Return the values of the shape of the first one, and the numbers of the others."""
        first = values[left[0].as_py()].as_py()
        shape = _shape(first)
        if shape is None or is_alone:
            payload, schema = first, None
            if shape is not None:
                payload = first[len(shape.before) : len(first) - len(shape.after)]
                schema = self._schema(shape.schema)
            return (schema, pa.array([payload], pa.binary()), left.slice(0, 1)), left.slice(1)
        some = values.take(left)
        is_same = pc.and_(
            pc.starts_with(some, pattern=shape.before), pc.ends_with(some, pattern=shape.after)
        )
        least = len(shape.before) + len(shape.after)
        is_same = pc.and_(is_same, pc.greater(pc.binary_length(some), least))
        same = some.filter(is_same)
        payloads = pc.binary_slice(same, len(shape.before), -len(shape.after))
        rest = left.filter(pc.invert(is_same))
        return (self._schema(shape.schema), payloads, left.filter(is_same)), rest

    def _schema(self, text: str) -> ConnectType | None:
        if text not in self._known:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[text] = _parsed(text)
        return self._known[text]


class _Shape(NamedTuple):
    before: bytes
    """The bytes before the payload."""
    after: bytes
    schema: str


def _together(schema: ConnectType | None, parts: Sequence[tuple[pa.Array, pa.Array]]) -> Payloads:
    payloads = pa.concat_arrays([one for one, _ in parts])
    numbers = pa.concat_arrays([one for _, one in parts])
    if len(parts) > 1:
        order = pc.sort_indices(numbers)
        payloads, numbers = payloads.take(order), numbers.take(order)
    return Payloads(schema, payloads, numbers)


def _shape(value: bytes) -> _Shape | None:
    """Return the parts of a value; None if it is no object of a schema and a payload."""
    try:
        text = value.decode()
        places = _members(text)
    except (ValueError, RecursionError, IndexError):
        return None  # the reader of payloads has the reason
    if set(places) != _NAMES:
        return None
    (begin, end), (first, last) = places["payload"], places["schema"]
    return _Shape(text[:begin].encode(), text[end:].encode(), text[first:last])


def unwrapped(text: str) -> str:
    """Return the payload of a JSON text with a schema part; another text is returned as it is."""
    shape = _shape(text.encode("utf-8", "surrogatepass")) if '"payload"' in text else None
    if shape is None:
        return text
    return text.encode()[len(shape.before) : -len(shape.after)].decode()


def _members(text: str) -> dict[str, tuple[int, int]]:
    """Return the begin and end of the values in an object, by their names."""
    found: dict[str, tuple[int, int]] = {}
    at = _after_space(text, 0)
    if text[at] != "{":
        raise ValueError("no object")
    while text[at] != "}":
        at = _after_space(text, at + 1)
        if text[at] != '"':
            raise ValueError("no name")
        name, at = _DECODER.raw_decode(text, at)
        at = _after_space(text, at)
        if text[at] != ":" or name in found:
            raise ValueError("no value")
        begin = _after_space(text, at + 1)
        _, end = _DECODER.raw_decode(text, begin)
        found[name] = begin, end
        at = _after_space(text, end)
        if text[at] not in ",}":
            raise ValueError("no end")
    if text[at + 1 :].strip(_SPACE):
        raise ValueError("more than an object")
    return found


def _after_space(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at


def _parsed(text: str) -> ConnectType | None:
    return _type(json.loads(text), 0)


def _type(document: object, depth: int) -> ConnectType | None:
    """Return the type in a schema; None if it is none, or too deep to be one of a row."""
    if not isinstance(document, Mapping) or depth > _DEPTH_MAX:
        return None
    kind, name = document.get("type"), document.get("name")
    parameters = document.get("parameters")
    scale = parameters.get("scale") if isinstance(parameters, Mapping) else None
    fields = document.get("fields")
    inner = []
    for one in fields if isinstance(fields, list) else ():
        found = _type(one, depth + 1)
        field = one.get("field") if isinstance(one, Mapping) else None
        if found is not None and isinstance(field, str):
            inner.append((field, found))
    return ConnectType(
        str(kind),
        name if isinstance(name, str) else None,
        _whole(scale),
        _type(document.get("items"), depth + 1),
        tuple(inner),
    )


def _whole(value: object) -> int | None:
    try:
        return int(str(value))
    except ValueError:
        return None
