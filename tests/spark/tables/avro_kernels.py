"""Results of the Avro kernel beside those of fastavro, on values of random schemas."""

import functools
import io
import json
import random
import struct
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import fastavro
import pyarrow as pa

from penstock.spark.tables.values.avro import values as compiled
from penstock.spark.tables.values.columnar.reading import KernelReading
from penstock.spark.tables.values.parser import Parsed
from tests.spark.decode.uncompiled import load_uncompiled
from tests.spark.tables.json_kernels import exact

LEAVES: tuple[object, ...] = (
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "bytes",
    "string",
    ["int", "long"],
    ["null", "double", "float"],
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "long", "logicalType": "unheard-of"},
)


def schema_of(chance: random.Random, depth: int = 0, name: str = "R") -> dict[str, Any]:
    """A record of random fields."""
    fields = [
        {"name": f"f{number}", "type": _type_of(chance, depth, f"{name}_{number}")}
        for number in range(chance.randrange(1, 6))
    ]
    return {"type": "record", "name": name, "fields": fields}


def _type_of(chance: random.Random, depth: int, name: str) -> object:
    kind = chance.randrange(10)
    if depth < 3 and kind == 0:
        return schema_of(chance, depth + 1, name)
    if depth < 3 and kind == 1:
        return {"type": "array", "items": _type_of(chance, depth + 1, name)}
    if depth < 3 and kind == 2:
        return {"type": "map", "values": _type_of(chance, depth + 1, name)}
    if kind == 3:
        return {"type": "enum", "name": name, "symbols": ["A", "b_longer_symbol", "C"]}
    if kind == 4:
        return {"type": "fixed", "name": name, "size": chance.choice((1, 4, 16))}
    if kind == 5:
        size = chance.choice((4, 16))
        digits = 9 if size == 4 else 38
        return {
            "type": "fixed",
            "name": name,
            "size": size,
            "logicalType": "decimal",
            "precision": digits,
            "scale": 3,
        }
    if kind in (6, 7):
        inner = _type_of(chance, depth, name)
        while isinstance(inner, list):
            inner = _type_of(chance, depth, name)
        return chance.choice((["null", inner], [inner, "null"]))
    return chance.choice(LEAVES)


def bytes_of(schema: object, chance: random.Random, *, odd: float) -> bytes:
    """A value as bytes; `odd`: the share of parts that are unusual, good or bad."""
    is_odd = chance.random() < odd
    if isinstance(schema, list):
        number = chance.randrange(len(schema))
        index = chance.choice((-1, 7, number)) if is_odd else number
        return varint(index) + bytes_of(schema[number], chance, odd=odd)
    if isinstance(schema, str):
        schema = {"type": schema}
    assert isinstance(schema, dict)
    kind = schema["type"]
    if kind == "record":
        return b"".join(bytes_of(one["type"], chance, odd=odd) for one in schema["fields"])
    if kind in ("array", "map"):
        return _blocks(schema, chance, odd=odd, is_odd=is_odd)
    return _scalar(kind, schema, chance, is_odd=is_odd)


def _blocks(schema: dict[str, Any], chance: random.Random, *, odd: float, is_odd: bool) -> bytes:
    found = b""
    for _ in range(chance.choice((0, 1, 1, 2))):
        count = chance.randrange(4) + 1
        items = b""
        for number in range(count):
            if schema["type"] == "map":
                key = b"k%d" % (chance.randrange(3) if is_odd else chance.randrange(10**9) + number)
                items += varint(len(key)) + key
            items += bytes_of(schema.get("items", schema.get("values")), chance, odd=odd)
        has_size = chance.random() < 0.3
        found += (varint(-count) + varint(len(items)) if has_size else varint(count)) + items
    if is_odd and chance.random() < 0.3:
        found += varint(chance.choice((2**40, -(2**40), 3, -(2**63))))
    return found + varint(0)


def _scalar(kind: str, schema: dict[str, Any], chance: random.Random, *, is_odd: bool) -> bytes:
    if kind == "null":
        return b""
    if kind == "boolean":
        return bytes([chance.choice((0, 1, 2, 255) if is_odd else (0, 1))])
    if kind in ("int", "long"):
        return _whole(kind, schema, chance, is_odd=is_odd)
    if kind in ("float", "double"):
        return chance.randbytes(4 if kind == "float" else 8)
    if kind == "enum":
        return varint(chance.choice((-1, 3, 2**40)) if is_odd else chance.randrange(3))
    if kind == "fixed":
        high = b"\0" if "logicalType" in schema and not is_odd else b""
        return (high + chance.randbytes(schema["size"]))[: schema["size"]]
    return _data(kind, schema, chance, is_odd=is_odd)


def _whole(kind: str, schema: dict[str, Any], chance: random.Random, *, is_odd: bool) -> bytes:
    if "logicalType" in schema and not is_odd:
        return varint(chance.randrange(-(10**6), 10**6))
    sizes = (5, 31, 32, 62, 63, 64) if is_odd or kind == "long" else (5, 16, 31)
    number = chance.choice((1, -1)) * chance.randrange(2 ** chance.choice(sizes))
    if is_odd and chance.random() < 0.2:
        return b"\xff" * chance.randrange(8, 12) + bytes([chance.randrange(128)])
    return varint(number)


def _data(kind: str, schema: dict[str, Any], chance: random.Random, *, is_odd: bool) -> bytes:
    data = chance.randbytes(chance.choice((0, 1, 3, 8, 15, 16, 17, 20)))
    if kind == "bytes" and schema.get("logicalType") == "decimal" and not is_odd:
        data = chance.randbytes(3)
    if kind == "string":
        data = "".join(chance.choices("abc ä€😀", k=chance.randrange(20))).encode()
        if is_odd:
            data = chance.choice((data[:-1], chance.randbytes(5), b"\xed\xa0\x80", data * 300))
    size = chance.choice((-1, len(data) + 5, 2**40)) if is_odd and kind == "bytes" else len(data)
    return varint(size) + data


def varint(number: int) -> bytes:
    """A number of Avro, in zigzag."""
    rest = (number << 1) ^ (number >> 63)
    rest &= 2**64 - 1
    found = bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


@functools.cache
def uncompiled() -> ModuleType:
    """`avro.values` over a kernel that runs as plain Python."""
    names = ["encode.binary_column"]
    names += [
        f"tables.values.columnar.{name}"
        for name in ("byte_reader", "columns", "row_kernel", "column_tree", "memory", "reading")
    ]
    names += [f"tables.values.avro.{name}" for name in ("kernel", "program", "values")]
    module = load_uncompiled(names)
    # As if it was compiled: the reference would be taken.
    vars(module)["row_kernel"].COMPILED = True
    return module


def reading_of(schema: dict[str, Any], *, is_compiled: bool) -> KernelReading:
    """The kernel's reading of a schema, for values with a header."""
    return _reading_of(json.dumps(schema), is_compiled=is_compiled)


@functools.lru_cache(maxsize=64)
def _reading_of(text: str, *, is_compiled: bool) -> KernelReading:
    module = compiled if is_compiled else uncompiled()
    found = module._compiled(text, "s", (), skip=5, schema_id=1).read
    assert type(found).__name__ == "KernelReading", text
    reading: KernelReading = found
    return reading


def check(schema: dict[str, Any], bodies: Sequence[bytes], *, is_compiled: bool) -> int:
    """The kernel and the reference agree on each value; how many doubts there are."""
    reading = reading_of(schema, is_compiled=is_compiled)
    header = struct.pack(">bI", 0, 1)
    # Sliced, so that the first row is not the first of the buffers.
    values = pa.array([b"x", None, *(header + one for one in bodies)], pa.binary()).slice(2)
    wanted: Parsed = reading._reference(values)
    rows, numbers, doubts = reading.by_kernel(values)
    rows.validate(full=True)
    assert sorted([*numbers.to_pylist(), *doubts.to_pylist()]) == list(range(len(bodies)))
    by_number = dict(zip(_numbers(wanted), exact(wanted.rows.to_struct_array()), strict=True))
    for number, row in zip(numbers.to_pylist(), exact(rows.to_struct_array()), strict=True):
        assert number in by_number, f"{bodies[number].hex()} is a row: {wanted.rejects}"
        assert row == by_number[number], bodies[number].hex()
    parsed = reading(values)
    assert parsed.rejects == tuple(sorted(wanted.rejects, key=lambda one: one.row))
    assert exact(parsed.rows.to_struct_array()) == list(by_number.values())
    return len(doubts)


def written(schema: dict[str, Any], rows: Sequence[object]) -> list[bytes]:
    """Values that fastavro wrote."""
    parsed = fastavro.parse_schema(schema)
    found = []
    for row in rows:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, row)
        found.append(stream.getvalue())
    return found


def _numbers(parsed: Parsed) -> list[int]:
    assert parsed.row_numbers is not None
    found: list[int] = parsed.row_numbers.to_pylist()
    return found
