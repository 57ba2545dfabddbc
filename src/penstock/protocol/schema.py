"""`StructShape`: the wire format of one version of a message, as plain values.

`describe` reads a shape from one of kio's dataclasses: field order, Kafka type, nullability, tag,
default. The classes are arguments; this file does NOT import kio. All code that must know the bytes
of a version (the compiled decoders and encoders, the generator of `messages/`, the tests) reads
shapes, so the rules below are written once.

Where our messages differ from kio's classes:

- durations and timestamps are int milliseconds, and the field's name ends in `_ms`; a null
  timestamp is -1, as on the wire;
- an error code is an `ErrorCode`, also when its number is not known.
"""

import dataclasses
import typing
from datetime import timedelta
from types import NoneType, UnionType
from typing import Final

MILLISECOND_KINDS: Final = {
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}
"""kio's kinds that are milliseconds on the wire, and our types for them."""

BYTES_MIN_BY_KIND: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}
"""The size of the kinds with a fixed size."""


class NoDefault:
    """The type of `NO_DEFAULT`."""


NO_DEFAULT: Final = NoDefault()
"""The field has no default in kio."""


@dataclasses.dataclass(frozen=True, slots=True)
class FieldShape:
    """One field of one version."""

    name: str
    """The name in our message."""
    kind: str
    """Kafka's type; `struct` for a nested one, `error_code` for an int16 that is one."""
    is_array: bool
    nullable: bool
    """Whether null may be written. A UUID of zeros is None without being nullable."""
    tag: int | None
    struct: "StructShape | None"
    default: object

    def element(self) -> "FieldShape":
        """One element of an array of plain values."""
        return dataclasses.replace(self, is_array=False, nullable=False, tag=None)


@dataclasses.dataclass(frozen=True, slots=True)
class StructShape:
    """One structure of one version: the message itself, or one nested in it."""

    name: str
    version: int
    flexible: bool
    fields: tuple[FieldShape, ...]

    def positional(self) -> list[FieldShape]:
        """The fields that are always written, in order."""
        return [field for field in self.fields if field.tag is None]

    def tagged(self) -> list[FieldShape]:
        """The tagged fields by ascending tag: the order in which they must be written."""
        with_tag = [(field.tag, field) for field in self.fields if field.tag is not None]
        return [field for _, field in sorted(with_tag, key=lambda pair: pair[0])]


def describe(kio_class: type) -> StructShape:
    """The shape of a kio class and of everything nested in it."""
    return StructShape(
        name=kio_class.__name__,
        version=int(vars(kio_class)["__version__"]),
        flexible=bool(vars(kio_class)["__flexible__"]),
        fields=tuple(_describe_field(field) for field in dataclasses.fields(kio_class)),
    )


def struct_bytes_min(struct: StructShape) -> int:
    """The fewest bytes that a structure can take; an array's length is checked against it."""
    total = sum(_field_bytes_min(field, flexible=struct.flexible) for field in struct.positional())
    return total + (1 if struct.flexible else 0)


def element_bytes_min(field: FieldShape, *, flexible: bool) -> int:
    """The fewest bytes that one element of this field can take."""
    if field.struct is not None:
        return struct_bytes_min(field.struct)
    if field.kind in BYTES_MIN_BY_KIND:
        return BYTES_MIN_BY_KIND[field.kind]
    if flexible:
        return 1
    return 2 if field.kind == "string" else 4


def _field_bytes_min(field: FieldShape, *, flexible: bool) -> int:
    if field.is_array:
        return 1 if flexible else 4
    if field.struct is not None and field.nullable:
        return 1
    return element_bytes_min(field, flexible=flexible)


def _describe_field(field: "dataclasses.Field[typing.Any]") -> FieldShape:
    inner, nullable = _without_none(field.type)
    is_array = typing.get_origin(inner) is tuple
    if is_array:
        inner, _ = _without_none(typing.get_args(inner)[0])
    struct = None
    kind = str(field.metadata.get("kafka_type", "struct"))
    if kind == "struct":
        assert isinstance(inner, type)
        struct = describe(inner)
    name = field.name
    if kind in MILLISECOND_KINDS:
        nullable = False
        name = name if name.endswith("_ms") else f"{name}_ms"
    tag = field.metadata.get("tag")
    assert tag is None or isinstance(tag, int)
    return FieldShape(
        name=name,
        kind=MILLISECOND_KINDS.get(kind, kind),
        is_array=is_array,
        nullable=nullable and (is_array or kind != "uuid"),
        tag=tag,
        struct=struct,
        default=_plain_default(field.default, is_milliseconds=kind in MILLISECOND_KINDS),
    )


def _without_none(annotation: object) -> tuple[object, bool]:
    """Split `X | None` into `X` and whether None was there."""
    if not isinstance(annotation, UnionType):
        return annotation, False
    inner = [arg for arg in typing.get_args(annotation) if arg is not NoneType]
    assert len(inner) == 1, f"a union of more than one type and None: {annotation}"
    return inner[0], len(inner) < len(typing.get_args(annotation))


def _plain_default(default: object, *, is_milliseconds: bool) -> object:
    """A kio default as a value of ours; nested defaults become the text `struct`."""
    if default is dataclasses.MISSING:
        return NO_DEFAULT
    if isinstance(default, timedelta):
        return round(default.total_seconds() * 1000)
    if default is None and is_milliseconds:
        return -1
    if dataclasses.is_dataclass(default):
        return STRUCT_DEFAULT
    for plain in (bool, int, float, str):
        if isinstance(default, plain):
            return plain(default)
    return default


STRUCT_DEFAULT: Final = "struct with its own defaults"
"""The default of a nested structure that has only defaults."""
