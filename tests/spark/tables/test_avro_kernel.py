"""The Avro kernel against fastavro, compiled and uncompiled, on random and hostile values."""

import datetime
import json
import random
from decimal import Decimal
from unittest.mock import patch

import pyarrow as pa
import pytest

from penstock.spark.tables.values.avro import program
from penstock.spark.tables.values.avro.kernel import AvroKernel
from penstock.spark.tables.values.avro.program import SYMBOL_BYTES_MAX, avro_kernel
from penstock.spark.tables.values.avro.schema import avro_columns
from penstock.spark.tables.values.avro.values import avro_file_values
from penstock.spark.tables.values.columnar import memory
from tests.spark.tables.avro_kernels import (
    bytes_of,
    check,
    reading_of,
    schema_of,
    varint,
    written,
)
from tests.spark.tables.test_avro_values import record

BOTH = pytest.mark.parametrize("is_compiled", [True, False], ids=["compiled", "uncompiled"])
ORDERS = record(
    ("id", "long"),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}),
    ("price", ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]),
    ("kind", {"type": "enum", "name": "Kind", "symbols": ["NEW", "PAID"]}),
    (
        "lines",
        {
            "type": "array",
            "items": {
                "type": "record",
                "name": "Line",
                "fields": [
                    {"name": "sku", "type": "string"},
                    {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
                ],
            },
        },
    ),
    ("notes", {"type": "map", "values": "double"}),
)


def order(number: int, lines: int = 2, text: str = "x") -> dict[str, object]:
    return {
        "id": -number,
        "at": datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC),
        "price": None if number % 3 == 0 else Decimal(number - 5) / 4,
        "kind": ("NEW", "PAID")[number % 2],
        "lines": [{"sku": f"{text}{one}", "tags": [None, "ä"][: one % 3]} for one in range(lines)],
        "notes": {f"n{one}": one / 3 for one in range(number % 4)},
    }


@BOTH
def test_usual_values_are_no_doubts(is_compiled: bool) -> None:
    values = written(ORDERS, [order(number) for number in range(300)])
    assert check(ORDERS, values, is_compiled=is_compiled) == 0


@BOTH
@pytest.mark.parametrize("seed", range(30))
def test_random_schemas_and_values(seed: int, is_compiled: bool) -> None:
    chance = random.Random(seed)
    schema = schema_of(chance)
    check(schema, [bytes_of(schema, chance, odd=0) for _ in range(20)], is_compiled=is_compiled)
    values = [bytes_of(schema, chance, odd=0.15) for _ in range(20)]
    for one in list(values):
        at = chance.randrange(len(one) + 1)
        values += [one[:at], one + b"\x00", one[:at] + chance.randbytes(1) + one[at + 1 :]]
    check(schema, values, is_compiled=is_compiled)


@BOTH
def test_a_value_cut_anywhere(is_compiled: bool) -> None:
    (whole,) = written(ORDERS, [order(7)])
    cut = [whole[:end] for end in range(len(whole))]
    assert check(ORDERS, cut, is_compiled=is_compiled) == len(cut)


@BOTH
def test_items_and_texts_get_more_room(is_compiled: bool) -> None:
    rows = [
        order(1, lines=3_000),
        order(2, lines=0),
        order(3, text="y" * 20_000),
        order(4, lines=9_000, text="longer text"),
    ]
    values = written(ORDERS, rows)
    assert check(ORDERS, values * 2, is_compiled=is_compiled) == 0
    assert check(ORDERS, values[1:2], is_compiled=is_compiled) == 0


@BOTH
def test_nulls_of_a_row_in_doubt_are_forgotten(is_compiled: bool) -> None:
    """A row that fails after a null leaves its bit; the next row has a value there."""
    schema = record(
        ("a", ["null", "long"]),
        ("items", {"type": "array", "items": ["null", "int"]}),
        ("end", "boolean"),
    )
    nothing = varint(0)
    bad = nothing + varint(2) + nothing + nothing + nothing + b"\x07"
    good = varint(1) + varint(5) + varint(2) + (varint(1) + varint(6)) * 2 + nothing + b"\x01"
    assert check(schema, [bad, good, bad, good], is_compiled=is_compiled) == 2


def test_a_row_without_room_is_read_by_the_reference() -> None:
    values = written(ORDERS, [order(1), order(2, lines=5_000), order(3)])
    given = pa.array([b"\x00\x00\x00\x00\x01" + one for one in values], pa.binary())
    reading = reading_of(ORDERS, is_compiled=True)
    with patch.object(memory, "BYTES_MAX", 50_000):
        assert reading.by_kernel(given)[2].to_pylist() == [1]
        parsed = reading(given)
    assert parsed.rejects == ()
    assert [len(one) for one in parsed.rows.column("lines").to_pylist()] == [2, 5_000, 2]


@BOTH
def test_large_counts_of_items_cost_nothing(is_compiled: bool) -> None:
    schema = record(("items", {"type": "array", "items": "boolean"}))
    values = [varint(count) + b"\x01" * 20 for count in (2**40, 2**62, -(2**40), -(2**63))]
    values.append(varint(-(2**40)) + varint(20) + b"\x01" * 20)
    assert check(schema, values, is_compiled=is_compiled) == len(values)


@BOTH
def test_keys_that_repeat_and_many_keys(is_compiled: bool) -> None:
    schema = record(("notes", {"type": "map", "values": "int"}))

    def entries(keys: list[bytes]) -> bytes:
        items = b"".join(varint(len(key)) + key + varint(7) for key in keys)
        return varint(len(keys)) + items + varint(0)

    names = [b"%03d" % number for number in range(65)]
    values = [
        entries([b"a", b"b", b"a"]),
        entries(names[:64]),
        entries(names),
        entries([b"", b"x"]),
    ]
    assert check(schema, values, is_compiled=is_compiled) == 2


def test_schemas_without_a_kernel() -> None:
    long_symbol = "S" * (SYMBOL_BYTES_MAX + 1)
    schema = record(("x", {"type": "enum", "name": "E", "symbols": [long_symbol]}))
    assert avro_kernel(schema, {}, avro_columns(schema, "s")) is None
    # The columns of another schema.
    assert avro_kernel(record(("x", "int")), {}, avro_columns(record(("y", "int")), "s")) is None
    assert avro_kernel(record(("x", "string")), {}, avro_columns(record(("x", "int")), "s")) is None


def text(value: bytes) -> bytes:
    return varint(len(value)) + value


@BOTH
@pytest.mark.parametrize("name", ["string", "bytes", "int"])
def test_a_type_that_is_called_like_a_primitive(name: str, is_compiled: bool) -> None:
    """The name of a primitive stands for it, as in fastavro."""
    primitives = {"string": text(b"x"), "bytes": text(b"y"), "int": varint(7)}
    schema = record(
        ("a", {"type": "enum", "name": name, "namespace": "", "symbols": ["A", "B"]}),
        ("b", name),
        ("c", ["null", name]),
    )
    value = varint(1) + primitives[name] + varint(1) + primitives[name]
    assert check(schema, [value, value[:-1]], is_compiled=is_compiled) == 1


@BOTH
@pytest.mark.parametrize("name", ["record", "array", "map", "enum", "fixed", "error", "R"])
def test_a_record_that_is_called_like_a_kind(name: str, is_compiled: bool) -> None:
    inner = {"type": "record", "name": name, "fields": [{"name": "z", "type": "long"}]}
    schema = {**record(("x", "int"), ("y", inner)), "namespace": ""}
    assert check(schema, [varint(3) + varint(4)], is_compiled=is_compiled) == 0
    outer = {"type": "record", "name": name, "fields": [{"name": "x", "type": "int"}]}
    assert check(outer, [varint(3)], is_compiled=is_compiled) == 0


def test_a_type_that_contains_only_itself_has_no_kernel() -> None:
    columns = avro_columns(record(("x", "int")), "s")
    assert avro_kernel({"type": "a"}, {"a": {"type": "b"}, "b": {"type": "a"}}, columns) is None


def test_fields_of_one_enum_share_its_symbols() -> None:
    symbols = [f"S{number}" for number in range(100)]
    first = {"type": "enum", "name": "E", "symbols": symbols}
    others = [(f"e{number}", "E") for number in range(50)]
    schema = record(("e", first), *others, ("f", {**first, "name": "F"}))
    value = b"".join(varint(number) for number in range(52))
    assert check(schema, [value, value[:-1] + varint(100)], is_compiled=True) == 1
    kernel = reading_of(schema, is_compiled=True)._kernel
    assert isinstance(kernel, AvroKernel)
    assert len(kernel.symbol_sizes) == 200
    with patch.object(program, "SYMBOLS_MAX", 199):
        read = avro_file_values(json.dumps(schema), "s")._compiled.read
    assert type(read).__name__ != "KernelReading"
