"""The JSON kernel against the reference, compiled and uncompiled, on odd and hostile values."""

import decimal
import random
import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.table_values import DDL, value
from penstock.spark.tables.definition.ddl import parse_ddl
from penstock.spark.tables.values.json.buffers import takes
from penstock.spark.tables.values.json.double import DoubleReader
from tests.spark.tables.json_kernels import (
    FLAT,
    NAMES,
    NESTED,
    NESTED_NAMES,
    ODD_DOCUMENTS,
    ODD_VALUES,
    REQUIRED,
    check,
    odd_document,
    reader,
)

BOTH = pytest.mark.parametrize("is_compiled", [True, False], ids=["compiled", "uncompiled"])
SCHEMAS = pytest.mark.parametrize(
    "ddl", [FLAT, REQUIRED, NESTED], ids=["flat", "required", "nested"]
)


@BOTH
@SCHEMAS
def test_odd_documents(ddl: str, is_compiled: bool) -> None:
    check(ddl, [None, *ODD_DOCUMENTS], is_compiled=is_compiled)


@BOTH
@SCHEMAS
@pytest.mark.parametrize("name", sorted({*NAMES, *NESTED_NAMES}))
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
        values = [
            odd_document(chance, NESTED_NAMES if ddl is NESTED else NAMES) for _ in range(300)
        ]
        doubts = check(ddl, values, is_compiled=is_compiled)
        # A nested value has more parts that may be odd.
        assert doubts < len(values) * (0.6 if ddl is NESTED else 0.5)


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


@BOTH
def test_usual_nested_values_are_no_doubts(is_compiled: bool) -> None:
    usual: list[bytes | None] = [
        b'{"w":[1,2,null],"n":[1,2,3],"o":[{"i":1,"t":"x","n":[1.5]},{"i":2}],"p":"12.34"}',
        b'{"w":[],"k":{"a":1,"b":null},"u":{"a":{"i":1,"k":{"x":"y"}}},"v":[["x"],[],null]}',
        b'{"w":[],"q":1234.5678901234,"p":-0.5,"s":{"n":["2026-01-31"],"p":"1.000000000000000001"}}',
        b'{"w":[],"x":[[[1]],{"y":[]}],"l":1}',
    ]
    assert check(NESTED, usual * 3, is_compiled=is_compiled) == 0


@BOTH
@settings(max_examples=200, deadline=None)
@given(
    digits=st.integers(0, 2**64),
    point=st.integers(0, 25),
    is_negative=st.booleans(),
    is_text=st.booleans(),
)
@example(digits=2**63, point=0, is_negative=False, is_text=False)
@example(digits=2**63, point=10, is_negative=True, is_text=True)
def test_decimals_have_every_digit(
    is_compiled: bool, digits: int, point: int, is_negative: bool, is_text: bool
) -> None:
    """Ten times 2^63 has a lower half of zero."""
    number = decimal.Decimal(digits).scaleb(-point) * (-1 if is_negative else 1)
    text = f"{number:f}".encode()
    text = b'"%b"' % text if is_text else text
    check(NESTED, [b'{"w":[],"q":%b,"p":%b}' % (text, text)], is_compiled=is_compiled)
    check("q decimal(38,10), r decimal(20,0)", [b'{"q":%b}' % text], is_compiled=is_compiled)
    check("r decimal(20,0)", [b'{"r":%b}' % text], is_compiled=is_compiled)


@BOTH
def test_many_items_and_keys_get_more_room(is_compiled: bool) -> None:
    keys = b",".join(b'"key %d":%d' % (number, number) for number in range(64))
    values: list[bytes | None] = [
        b'{"w":[],"n":[%b]}' % b",".join([b"7"] * 5_000),
        b'{"w":[],"o":[%b]}' % b",".join([b'{"i":1,"t":"%b"}' % (b"x" * 50)] * 3_000),
        b'{"w":[],"k":{%b}}' % keys,
    ]
    assert check(NESTED, values * 2, is_compiled=is_compiled) == 0


def test_which_schemas_are_taken() -> None:
    for ddl in (FLAT, REQUIRED, NESTED):
        assert takes(parse_ddl(ddl)), ddl
    for ddl in ("x array<binary>", "x binary", '`a"b` int', "x map<int, int>"):
        assert not takes(parse_ddl(f"y int, {ddl}")), ddl
