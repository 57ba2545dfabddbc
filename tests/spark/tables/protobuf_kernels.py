"""Results of the Protobuf kernel beside those of Google's library, on random messages."""

import functools
import random
import struct
from collections.abc import Sequence
from types import ModuleType

import pyarrow as pa
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.timestamp_pb2 import DESCRIPTOR as TIMESTAMP_FILE

from penstock.spark.tables.values.columnar.reading import KernelReading
from penstock.spark.tables.values.parser import Parsed
from penstock.spark.tables.values.protobuf import values as compiled
from penstock.spark.tables.values.registered_values import one_by_one
from tests.spark.decode.uncompiled import load_uncompiled
from tests.spark.tables.json_kernels import as_numbers

Field = FieldDescriptorProto
SCALARS = tuple(
    getattr(Field, f"TYPE_{name}")
    for name in (
        *("BOOL", "INT32", "SINT32", "UINT32", "INT64", "SINT64", "UINT64", "FIXED32", "SFIXED32"),
        *("FIXED64", "SFIXED64", "FLOAT", "DOUBLE", "STRING", "BYTES", "ENUM"),
    )
)
KEYS = tuple(one for one in SCALARS if one not in (Field.TYPE_FLOAT, Field.TYPE_DOUBLE))[:11]
_VARINTS = frozenset(SCALARS[:7]) | {Field.TYPE_ENUM}
_FIXED_32 = {Field.TYPE_FIXED32, Field.TYPE_SFIXED32, Field.TYPE_FLOAT}
_FIXED_64 = {Field.TYPE_FIXED64, Field.TYPE_SFIXED64, Field.TYPE_DOUBLE}
_WIDE = {Field.TYPE_INT64, Field.TYPE_SINT64, Field.TYPE_UINT64}


class Messages:
    """A file of random messages; the first one is the value."""

    def __init__(self, chance: random.Random, syntax: str) -> None:
        self._chance = chance
        self.file = FileDescriptorProto(name="v.proto", package="t", syntax=syntax)
        self.file.dependency.append(TIMESTAMP_FILE.name)
        enum = self.file.enum_type.add(name="E")
        for name, number in (("ZERO", 0), ("ONE", 1), ("MINUS", -1), ("FAR", 1_000_000)):
            enum.value.add(name=name, number=number)
        self._message("M", 0)

    def descriptor(self) -> Descriptor:
        """Return the first message."""
        pool = DescriptorPool()
        pool.AddSerializedFile(TIMESTAMP_FILE.serialized_pb)
        pool.Add(self.file)
        return pool.FindMessageTypeByName("t.M")

    def _message(self, name: str, depth: int) -> str:
        message = self.file.message_type.add(name=name)
        if depth < 2 and self._chance.random() < 0.5:
            # The compiler of Protobuf puts the oneofs of `optional` fields after the others.
            message.oneof_decl.add(name="one")
            message.field.add(
                name="one1", number=50, label=1, type=Field.TYPE_STRING, oneof_index=0
            )
        count = self._chance.randrange(1, 7)
        numbers = self._chance.sample((1, 2, 3, 4, 5, 15, 16, 100, 20_000), count)
        for number in numbers:
            self._field(message, number, depth)
        return f".t.{name}"

    def _field(self, message: DescriptorProto, number: int, depth: int) -> None:
        chance, is_new = self._chance, self.file.syntax == "proto3"
        kind = chance.randrange(12)
        field = message.field.add(name=f"f{number}", number=number, label=Field.LABEL_OPTIONAL)
        if kind < 3:
            field.label = Field.LABEL_REPEATED
            field.options.packed = chance.random() < 0.5
        if kind == 3 and depth < 3:
            self._map(message, field, depth)
            return
        self._type(field, f"{message.name}_{number}", depth)
        if field.type not in SCALARS[:14] and field.type != Field.TYPE_ENUM:
            field.ClearField("options")
        if kind in (4, 5) and [one.name for one in message.oneof_decl[:1]] == ["one"]:
            field.oneof_index = 0
        elif kind == 6 and is_new and field.label != Field.LABEL_REPEATED:
            message.oneof_decl.add(name=f"_f{number}")
            field.oneof_index = len(message.oneof_decl) - 1
            field.proto3_optional = True

    def _map(self, message: DescriptorProto, field: FieldDescriptorProto, depth: int) -> None:
        name = f"F{field.number}Entry"
        entry = message.nested_type.add(name=name)
        entry.options.map_entry = True
        entry.field.add(
            name="key", number=1, label=Field.LABEL_OPTIONAL, type=self._chance.choice(KEYS)
        )
        value = entry.field.add(name="value", number=2, label=Field.LABEL_OPTIONAL)
        self._type(value, f"{message.name}_{field.number}", depth)
        field.label, field.type = Field.LABEL_REPEATED, Field.TYPE_MESSAGE
        field.type_name = f".t.{message.name}.{name}"

    def _type(self, field: FieldDescriptorProto, name: str, depth: int) -> None:
        kind = self._chance.randrange(8)
        if kind == 0 and depth < 3:
            field.type = Field.TYPE_MESSAGE
            field.type_name = self._message(name, depth + 1)
        elif kind == 1:
            field.type = Field.TYPE_MESSAGE
            field.type_name = ".google.protobuf.Timestamp"
        else:
            field.type = self._chance.choice(SCALARS)
            if field.type == Field.TYPE_ENUM:
                field.type_name = ".t.E"


def bytes_of(descriptor: Descriptor, chance: random.Random, odd: float) -> bytes:
    """A message as bytes; `odd`: the share of parts that are unusual, good or bad."""
    found = b""
    fields = [one for one in descriptor.fields if chance.random() < 0.8]
    taken: set[str] = set()
    for field in fields:
        oneof = field.containing_oneof
        if oneof is not None and oneof.name in taken and chance.random() >= odd:
            continue
        if oneof is not None:
            taken.add(oneof.name)
        count = chance.randrange(4) if field.is_repeated else 1
        if chance.random() < odd:
            count += chance.randrange(2)
        values = [_value(field, chance, odd) for _ in range(count)]
        wire = _wire(field)
        if field.is_repeated and wire != 2 and chance.random() < 0.6:
            data = b"".join(values)
            found += _head(field.number, 2, chance, odd) + varint(len(data)) + data
            continue
        if chance.random() < odd:
            wire = chance.randrange(8)
        found += b"".join(_head(field.number, wire, chance, odd) + one for one in values)
    if chance.random() < odd:
        found += _unknown(chance)
    return found


def _unknown(chance: random.Random) -> bytes:
    number = chance.choice((0, 6, 7, 99, 2**28, 2**29, 2**40))
    wire = chance.randrange(8)
    body = {0: varint(chance.randrange(2**64)), 1: chance.randbytes(8), 5: chance.randbytes(4)}
    text = chance.randbytes(chance.randrange(5))
    return tag(number, wire) + body.get(wire, varint(len(text) + chance.choice((0, 0, 9))) + text)


def _wire(field: object) -> int:
    kind = field.type  # type: ignore[attr-defined]
    if kind in _VARINTS:
        return 0
    return 5 if kind in _FIXED_32 else 1 if kind in _FIXED_64 else 2


def _value(field: object, chance: random.Random, odd: float) -> bytes:
    kind, is_odd = field.type, chance.random() < odd  # type: ignore[attr-defined]
    if kind in _VARINTS:
        return _whole(kind, chance, is_odd=is_odd)
    if kind in _FIXED_32:
        return chance.randbytes(4)
    if kind in _FIXED_64:
        return chance.randbytes(8)
    if kind == Field.TYPE_MESSAGE:
        message = field.message_type  # type: ignore[attr-defined]
        data = bytes_of(message, chance, odd)
        if message.full_name == "google.protobuf.Timestamp" and not is_odd:
            data = (
                tag(1, 0)
                + varint(chance.randrange(2**33))
                + tag(2, 0)
                + varint(chance.randrange(10**9))
            )
    elif kind == Field.TYPE_STRING:
        data = "".join(chance.choices("abc ä€😀", k=chance.randrange(20))).encode()
        if is_odd:
            data = chance.choice((data[:-1], chance.randbytes(5), b"\xed\xa0\x80", data * 300))
    else:
        data = chance.randbytes(chance.randrange(20))
    if is_odd and chance.random() < 0.5:
        return overlong(varint(len(data)), chance.randrange(1, 12)) + data
    return varint(len(data) + (chance.choice((1, 2**31, 2**33)) if is_odd else 0)) + data


def _whole(kind: int, chance: random.Random, *, is_odd: bool) -> bytes:
    if kind == Field.TYPE_ENUM:
        return varint(chance.choice((0, 1, -1, 1_000_000, 7) if is_odd else (0, 1, 1_000_000)))
    if is_odd and chance.random() < 0.2:
        return b"\xff" * chance.randrange(8, 12) + bytes([chance.randrange(128)])
    size = chance.choice((1, 7, 31)) if not is_odd and kind not in _WIDE else 63
    number = varint(chance.choice((1, -1)) * chance.randrange(2**size))
    return overlong(number, chance.randrange(1, 12)) if is_odd else number


def _head(number: int, wire: int, chance: random.Random, odd: float) -> bytes:
    """The beginning of a field; the share `odd` of them with more bytes than necessary."""
    found = tag(number, wire)
    return overlong(found, chance.randrange(1, 12)) if chance.random() < odd else found


def tag(number: int, wire: int) -> bytes:
    """The beginning of a field."""
    return varint(number << 3 | wire)


def overlong(number: bytes, size: int) -> bytes:
    """A number of Protobuf with at least `size` bytes: the last ones add nothing to it."""
    missing = size - len(number)
    if missing <= 0:
        return number
    return number[:-1] + bytes([number[-1] | 0x80]) + b"\x80" * (missing - 1) + b"\0"


def varint(number: int) -> bytes:
    """A number of Protobuf; one below zero has ten bytes."""
    rest = number & (2**64 - 1)
    found = bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


@functools.cache
def uncompiled() -> ModuleType:
    """`protobuf.values` over a kernel that runs as plain Python."""
    names = ["encode.binary_column"]
    names += [
        f"tables.values.columnar.{name}"
        for name in ("byte_reader", "columns", "row_kernel", "column_tree", "memory", "reading")
    ]
    names += [f"tables.values.protobuf.{name}" for name in ("kernel", "program", "values")]
    module = load_uncompiled(names)
    # As if it was compiled: the reference would be taken.
    vars(module)["row_kernel"].COMPILED = True
    return module


@functools.lru_cache(maxsize=64)
def _reading_of(descriptor: Descriptor, *, is_compiled: bool) -> KernelReading:
    module = compiled if is_compiled else uncompiled()
    columns, read = module._reader(descriptor, "m")
    reference = one_by_one(read, columns.schema, None)
    reading: KernelReading = module._compiled(descriptor, columns.schema, reference, skip=0).read
    return reading


def check(descriptor: Descriptor, values: Sequence[bytes], *, is_compiled: bool) -> int:
    """The kernel and the reference agree on each value; how many doubts there are."""
    reading = _reading_of(descriptor, is_compiled=is_compiled)
    # Sliced, so that the first row is not the first of the buffers.
    given = pa.array([b"x", None, *values], pa.binary()).slice(2)
    wanted: Parsed = reading._reference(given)
    rows, numbers, doubts = reading.by_kernel(given)
    rows.validate(full=True)
    assert sorted([*numbers.to_pylist(), *doubts.to_pylist()]) == list(range(len(values)))
    by_number = dict(zip(_numbers(wanted), _exact(wanted.rows), strict=True))
    for number, row in zip(numbers.to_pylist(), _exact(rows), strict=True):
        assert number in by_number, f"{values[number].hex()} is a row: {wanted.rejects}"
        assert row == by_number[number], values[number].hex()
    parsed = reading(given)
    assert parsed.rejects == tuple(sorted(wanted.rejects, key=lambda one: one.row))
    assert _exact(parsed.rows) == list(by_number.values())
    return len(doubts)


def _exact(rows: pa.RecordBatch) -> list[str]:
    """Each row as a text; the library gives the entries of a map in the order of its hashes."""
    column = rows.to_struct_array()
    return [repr(_sorted_maps(one)) for one in column.cast(as_numbers(column.type)).to_pylist()]


def _sorted_maps(value: object) -> object:
    if isinstance(value, dict):
        return {name: _sorted_maps(one) for name, one in value.items()}
    if isinstance(value, list):
        inner = [_sorted_maps(one) for one in value]
        is_map = bool(inner) and isinstance(inner[0], tuple)
        return sorted(inner, key=repr) if is_map else inner
    if isinstance(value, tuple):
        return tuple(_sorted_maps(one) for one in value)
    return struct.pack("<d", value) if isinstance(value, float) and value == value else value


def _numbers(parsed: Parsed) -> list[int]:
    assert parsed.row_numbers is not None
    found: list[int] = parsed.row_numbers.to_pylist()
    return found
