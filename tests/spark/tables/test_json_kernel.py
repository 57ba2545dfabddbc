"""The JSON kernel against the reference, compiled and uncompiled, on odd and hostile values."""

import decimal
import random
import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.table_values import DDL, value
from penstock.spark.tables.definition.ddl import parse_ddl
from penstock.spark.tables.values.json import kernel as json_kernel
from penstock.spark.tables.values.json.buffers import takes
from penstock.spark.tables.values.json.double import DoubleReader
from penstock.spark.tables.values.json.values import JsonValues
from penstock.spark.tables.values.parser import ErrorClass
from tests.spark.tables.json_kernels import (
    FLAT,
    NAMES,
    ODD_DOCUMENTS,
    ODD_VALUES,
    REQUIRED,
    check,
    odd_document,
    reader,
    uncompiled,
)

BOTH = pytest.mark.parametrize("is_compiled", [True, False], ids=["compiled", "uncompiled"])
SCHEMAS = pytest.mark.parametrize("ddl", [FLAT, REQUIRED])


@BOTH
@SCHEMAS
def test_odd_documents(ddl: str, is_compiled: bool) -> None:
    check(ddl, [None, *ODD_DOCUMENTS], is_compiled=is_compiled)


@BOTH
@SCHEMAS
@pytest.mark.parametrize("name", NAMES)
def test_odd_values_in_each_column(ddl: str, name: str, is_compiled: bool) -> None:
    key = f'"{name}":'.encode()
    values = [b"{%b%b}" % (key, one) for one in ODD_VALUES]
    # Also as the last of several, after spaces, and inside of a struct.
    values += [b'{"l":1,"t":"x", %b %b, "x":[]}' % (key, one) for one in ODD_VALUES]
    values += [b'{"l":1,"t":"x","s":{"i":1,%b%b}}' % (key, one) for one in ODD_VALUES]
    check(ddl, values, is_compiled=is_compiled)


@BOTH
@SCHEMAS
def test_a_value_cut_anywhere(ddl: str, is_compiled: bool) -> None:
    whole = (
        '{"b":true,"l":12,"d":-1.5e3,"t":"a\\n\\u00e4ä€😀","x":[1,{"y":null}],'
        '"a":"2026-01-31","s":{"i":1,"t":""}}'
    ).encode()
    doubts = check(ddl, [whole[:end] for end in range(len(whole))], is_compiled=is_compiled)
    assert doubts < 30


@BOTH
@SCHEMAS
@pytest.mark.parametrize("seed", range(4))
def test_random_documents(ddl: str, seed: int, is_compiled: bool) -> None:
    chance = random.Random(seed)
    for _ in range(3):
        values = [odd_document(chance) for _ in range(300)]
        doubts = check(ddl, values, is_compiled=is_compiled)
        assert doubts < len(values) / 2


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=12) | st.text(alphabet='{}[]":,0-1.eE\\utn ä', max_size=30)))
def test_any_bytes_in_a_member(contents: list[bytes | str]) -> None:
    texts = [one.encode() if isinstance(one, str) else one for one in contents]
    values = [b'{"l":%b}' % text for text in texts] + [b'{"t":"%b"}' % text for text in texts]
    for is_compiled in (True, False):
        check(FLAT, [*values, *texts], is_compiled=is_compiled)


@settings(max_examples=100, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 2**64 - 1), st.data())
def test_doubles_are_rounded_as_python_rounds_them(
    number: float, digits: int, data: st.DataObject
) -> None:
    exponent = data.draw(st.integers(-280, 280))
    for text in (repr(number), f"{digits}e{exponent}", f"{digits >> 11}e{exponent // 10}"):
        sign, parts, power = decimal.Decimal(text).as_tuple()
        mantissa = int("".join(map(str, parts)))
        assert isinstance(power, int)
        for doubles in (DoubleReader(), uncompiled_doubles()):
            if mantissa < 2**64 and doubles.read(mantissa, power, bool(sign)):
                assert struct.pack("<d", doubles.value) == struct.pack("<d", float(text))


def uncompiled_doubles() -> DoubleReader:
    return reader("d double", is_compiled=False)._kernel.columns.doubles


@BOTH
def test_usual_values_are_no_doubts(is_compiled: bool) -> None:
    values: list[bytes | None] = [value(number) for number in range(2_000)]
    assert check(DDL, values, is_compiled=is_compiled) == 0
    usual = [
        b'{"t":"a \\"quoted\\" text\\n","d":0.30000000000000004,"f":1e10,"l":-5}',
        b'{"m":"2026-01-31T01:02:03.123Z","a":"2026-01-31","z":"2026-01-31 01:02:03"}',
        '{"t":"Zürich \\u00e4 😀","s":{"i":1,"s":{"d":1}},"x":[{"a":[1.5,true,null]}]}'.encode(),
        b'{"t":12,"m":1769860800}',
        None,
    ]
    assert check(FLAT, [*usual] * 3, is_compiled=is_compiled) == 0


@BOTH
def test_long_texts_get_more_room(is_compiled: bool) -> None:
    values: list[bytes | None] = [
        b'{"t":"%b","a longer name":"%b"}' % (b"x" * size, b"y" * (10_000 - size))
        for size in (0, 100, 5_000, 9_999)
    ]
    assert check(FLAT, values * 3, is_compiled=is_compiled) == 0
    assert check(FLAT, values[:1], is_compiled=is_compiled) == 0


@BOTH
def test_fields_in_any_order_and_between_unknown_ones(is_compiled: bool) -> None:
    chance = random.Random(5)
    values: list[bytes | None] = []
    for _ in range(200):
        members = [b'"%b":%d' % (name, chance.randrange(99)) for name in (b"y", b"h", b"i", b"l")]
        members += [b'"unknown %d":[]' % number for number in range(chance.randrange(3))]
        chance.shuffle(members)
        values.append(b"{%b}" % b",".join(members))
    assert check(FLAT, values, is_compiled=is_compiled) == 0


def test_many_columns_with_names_that_are_alike() -> None:
    names = [f"column_{number:05d}" for number in range(1_000)]
    ddl = ", ".join(f"{name} int" for name in names)
    row = b"{%b}" % b",".join(b'"%b":%d' % (name.encode(), len(name)) for name in names[::-1])
    assert check(ddl, [row, b"{}", row], is_compiled=True) == 0


def test_which_schemas_are_taken() -> None:
    assert takes(parse_ddl(FLAT))
    for ddl in ("x array<int>", "x map<string, int>", "x decimal(9,2)", "x binary", '`a"b` int'):
        assert not takes(parse_ddl(f"y int, {ddl}")), ddl
    assert not takes(parse_ddl("s struct<x: array<int>>"))
    assert not takes(pa.schema([]))
    assert not takes(pa.schema([(f"column {number}", pa.int8()) for number in range(5_000)]))


def test_both_ways_are_tested() -> None:
    assert uncompiled().JsonKernel is not json_kernel.JsonKernel
    assert vars(uncompiled())["JsonKernel"].__module__ == json_kernel.JsonKernel.__module__


def test_values_that_are_not_for_the_kernel_are_read_all_the_same() -> None:
    parser = JsonValues(parse_ddl("t string, i int"))
    values = pa.array([b'{"t":[1, 2],"i":%d}' % (number % 3) for number in range(2_000)])
    for _ in range(2):
        parsed = parser.parse(values)
        assert parsed.row_numbers is None
        assert parsed.rows.column(0).to_pylist() == ["[1,2]"] * 2_000
        assert parsed.rows.column(1).to_pylist() == [number % 3 for number in range(2_000)]


def test_rows_keep_their_order_around_rows_of_every_kind() -> None:
    kinds = [
        b'{"i":1,"t":"x"}',
        b'{"i":"x"}',
        b'{"i":1',
        b"hello",
        b'{"t":{"a": 1},"i":2}',
        None,
        b'{"i":1,"i":2}',
        b"[1]",
    ]
    values = [kind for kind in kinds for _ in range(3)] * 5
    parsed = JsonValues(parse_ddl("i int, t string")).parse(pa.array(values, pa.binary()))
    assert parsed.row_numbers is not None
    found = dict(zip(parsed.row_numbers.to_pylist(), parsed.rows.to_pylist(), strict=True))
    rejects = {one.row: one.error for one in parsed.rejects}
    assert sorted([*found, *rejects]) == list(range(len(values)))
    assert list(found) == sorted(found)
    assert list(rejects) == sorted(rejects)
    rows = {
        kinds[0]: {"i": 1, "t": "x"},
        kinds[4]: {"i": 2, "t": '{"a":1}'},
        None: {"i": None, "t": None},
        kinds[6]: {"i": 1, "t": None},
    }
    for number, one in enumerate(values):
        assert found.get(number) == rows.get(one)
    malformed = {kinds[2], kinds[3]}
    for number, error in rejects.items():
        assert (error is ErrorClass.MALFORMED) == (values[number] in malformed)
