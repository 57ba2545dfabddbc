"""The wire format of a field of a stored record, in its annotation.

kio has no schemas of these records, so the classes themselves have the wire format: the width of a
number, the versions that have the field, its tag. `shape_of` reads a `StructShape` of one version
from a class, and `protocol.decoder_source` and `encoder_source` do the rest. Not for requests and
responses: their shapes come from kio.
"""

import dataclasses
import typing
from types import NoneType, UnionType
from typing import Annotated, Final, NamedTuple
from uuid import UUID

from penstock.protocol.schema import NO_DEFAULT, FieldShape, StructShape

VERSION_MAX: Final = 32_767
"""A version is an int16: a field without an end is in every version up to here."""


class Kind(NamedTuple):
    """Kafka's type of a number."""

    name: str


class In(NamedTuple):
    """The versions that have the field."""

    first: int
    last: int = VERSION_MAX


class Tag(NamedTuple):
    """The field is tagged: written only when it has another value than its default."""

    number: int
    first_version: int = 0


Int8 = Annotated[int, Kind("int8")]
Int16 = Annotated[int, Kind("int16")]
Int32 = Annotated[int, Kind("int32")]
Int64 = Annotated[int, Kind("int64")]

_KINDS: Final[dict[object, str]] = {str: "string", bytes: "bytes", UUID: "uuid"}


def shape_of(record_class: type, version: int, *, flexible_since: int | None) -> StructShape:
    """The shape of one version of a record class and of everything nested in it."""
    flexible = flexible_since is not None and version >= flexible_since
    hints = typing.get_type_hints(record_class, include_extras=True)
    fields = []
    for field in dataclasses.fields(record_class):
        shape = _field_shape(field.name, hints[field.name], version, flexible_since)
        if shape is not None:
            fields.append(shape)
    return StructShape(
        name=record_class.__name__, version=version, flexible=flexible, fields=tuple(fields)
    )


def _field_shape(
    name: str, annotation: object, version: int, flexible_since: int | None
) -> FieldShape | None:
    """One field; None when the version does not have it."""
    inner, marks = _without_marks(annotation)
    versions = next((mark for mark in marks if isinstance(mark, In)), In(0))
    tag = next((mark for mark in marks if isinstance(mark, Tag)), None)
    first = versions.first if tag is None else tag.first_version
    if not first <= version <= versions.last:
        return None
    inner, nullable = _without_none(inner)
    kind = next((mark.name for mark in marks if isinstance(mark, Kind)), None)
    is_array = typing.get_origin(inner) is tuple
    if is_array:
        inner, marks = _without_marks(typing.get_args(inner)[0])
        kind = next((mark.name for mark in marks if isinstance(mark, Kind)), None)
    kind = kind or _KINDS.get(inner, "struct")
    struct = None
    if kind == "struct":
        assert isinstance(inner, type)
        struct = shape_of(inner, version, flexible_since=flexible_since)
    return FieldShape(
        name=name,
        kind=kind,
        is_array=is_array,
        nullable=nullable and (is_array or kind != "uuid"),
        tag=None if tag is None else tag.number,
        struct=struct,
        default=NO_DEFAULT,
    )


def _without_marks(annotation: object) -> tuple[object, tuple[object, ...]]:
    if typing.get_origin(annotation) is not Annotated:
        return annotation, ()
    inner, *marks = typing.get_args(annotation)
    return inner, tuple(marks)


def _without_none(annotation: object) -> tuple[object, bool]:
    if not isinstance(annotation, UnionType):
        return annotation, False
    (inner,) = (arg for arg in typing.get_args(annotation) if arg is not NoneType)
    return inner, True
