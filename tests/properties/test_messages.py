"""Every message, every version: our bytes are those of kio, and we read the same values.

A message of ours with random values in the fields of one version is encoded; kio's own classes read
the bytes, must show the same values, and write the same bytes again; our decoder must give the
message back. So our codec and kio's agree in both directions, for all 625 versions. Bytes from a
peer are NOT tested here (`tests/protocol/test_codec.py`), and values are those that kio can hold:
known error codes, whole seconds.
"""

import dataclasses
import importlib
import io
import random
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer

from penstock.protocol import codec
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import FieldShape, StructShape

INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
ALPHABET = "abcé☃𝄞-_."


def message_classes(api_name: str) -> list[type[codec.Message]]:
    """The messages of one module, top-level ones only."""
    module = importlib.import_module(f"penstock.protocol.messages.{api_name}")
    return [c for c in vars(module).values() if isinstance(c, type) and hasattr(c, "VERSIONS")]


def kio_class(message_class: type[codec.Message], version: int) -> type:
    api_name = message_class.__module__.rpartition(".")[2]
    module = importlib.import_module(f"kio.schema.{api_name}.v{version}")
    found = getattr(module, message_class.__name__)
    assert isinstance(found, type)
    return found


class Builder:
    """Makes values at random, edges more often than the middle."""

    def __init__(self, seed: int, classes: dict[str, type], kio_fields: "KioFields") -> None:
        self._random = random.Random(seed)
        self._classes = classes
        self._kio_fields = kio_fields

    def struct(self, shape: StructShape) -> object:
        values = {field.name: self.value(field, shape.name) for field in shape.fields}
        return self._classes[shape.name](**values)

    def value(self, field: FieldShape, owner: str) -> object:
        if field.nullable and self._random.random() < 0.2:
            return None
        if field.is_array:
            element = dataclasses.replace(field, is_array=False, nullable=False)
            return tuple(self.value(element, owner) for _ in range(self._random.choice((0, 1, 3))))
        if field.struct is not None:
            return self.struct(field.struct)
        kio_kind = self._kio_fields.kind(owner, field.name)
        if kio_kind in ("datetime_i64", "timedelta_i64"):
            return self._random.choice((0, 1_000, 1_700_000_000_000))
        return self.plain(field.kind)

    def plain(self, kind: str) -> object:
        pick = self._random
        if kind in INTEGER_BITS:
            edge = 1 << (INTEGER_BITS[kind] - 1)
            return pick.choice((0, -1, 1, -edge, edge - 1, pick.randrange(-edge, edge)))
        if kind == "uint16":
            return pick.choice((0, 1, 0xFFFF))
        if kind == "string":
            return "".join(pick.choices(ALPHABET, k=pick.choice((0, 1, 5, 130))))
        if kind in ("bytes", "records"):
            return pick.randbytes(pick.choice((0, 1, 7, 200)))
        if kind == "uuid":
            return pick.choice((None, uuid.UUID(int=pick.randrange(1, 1 << 128))))
        if kind == "error_code":
            return pick.choice(list(ErrorCode))
        if kind == "float64":
            return pick.choice((0.0, -1.5, 1e300))
        assert kind == "bool"
        return pick.choice((True, False))


class KioFields:
    """kio's kinds by class and our field name."""

    def __init__(self, top: type) -> None:
        self._kinds: dict[tuple[str, str], str] = {}
        for nested in walk_classes(top):
            for field in dataclasses.fields(nested):
                kind = field.metadata.get("kafka_type", "struct")
                self._kinds[nested.__name__, field.name] = kind
                self._kinds[nested.__name__, f"{field.name}_ms"] = kind

    def kind(self, owner: str, name: str) -> str:
        return self._kinds[owner, name]


def walk_classes(top: type) -> Iterator[type]:
    module = importlib.import_module(top.__module__)
    for candidate in vars(module).values():
        if isinstance(candidate, type) and dataclasses.is_dataclass(candidate):
            yield candidate


def as_ours(value: object) -> object:
    """A value of kio's as one of ours."""
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime):
        return round(value.astimezone(UTC).timestamp() * 1000)
    return value


def assert_same_values(ours: object, theirs: object, shape: StructShape) -> None:
    """Each field that the version has holds the same on both sides."""
    for field in shape.fields:
        mine = getattr(ours, field.name)
        kio_name = field.name if hasattr(theirs, field.name) else field.name.removesuffix("_ms")
        other = getattr(theirs, kio_name)
        if field.struct is None:
            assert mine == as_ours(other) or (mine == -1 and other is None), field.name
        elif field.is_array and mine is not None:
            assert len(mine) == len(other)
            for one, another in zip(mine, other, strict=True):
                assert_same_values(one, another, field.struct)
        elif mine is not None:
            assert_same_values(mine, other, field.struct)
        else:
            assert other is None


def check_version(message_class: type[codec.Message], version: int, seed: int) -> None:
    shape = codec.message_shape(message_class, version)
    theirs_class = kio_class(message_class, version)
    classes = codec.nested_classes(shape, message_class)
    message = Builder(seed, classes, KioFields(theirs_class)).struct(shape)
    body = encode(message, message_class, version)
    theirs: object
    theirs, used = entity_reader(theirs_class)(body, 0)
    assert used == len(body)
    assert_same_values(message, theirs, shape)
    with io.BytesIO() as written:
        entity_writer(theirs_class)(written, theirs)
        assert written.getvalue() == body
    decode = codec.message_decoder(message_class, version)
    assert decode(memoryview(body), 0, len(body), len(body)) == message


def encode(message: object, message_class: type[codec.Message], version: int) -> bytes:
    assert isinstance(message, message_class)
    return b"".join(codec.encode_buffers(message, version))


@pytest.mark.parametrize(
    "api_name", [name for name in sorted(schema_name_map) if name != "request_header"]
)
@settings(max_examples=3, derandomize=True, database=None, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_version_agrees_with_kio(api_name: str, seed: int) -> None:
    for message_class in message_classes(api_name):
        low, high = message_class.VERSIONS
        for version in range(low, high + 1):
            check_version(message_class, version, seed + version)
