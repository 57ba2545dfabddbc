"""Each way to read JSON has the result of the reference, for all types and at their edges."""

import decimal
import random
import time

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.spark.tables.definition.ddl import parse_ddl
from penstock.spark.tables.values.json.database import DatabaseReader
from penstock.spark.tables.values.json.decoding import decoded, json_text
from penstock.spark.tables.values.json.rows import JsonRows
from tests.spark.tables.json_ways import FLAT, KERNEL, LEAVES, SCHEMAS, WAYS, check_ways, documents

pytestmark = pytest.mark.slow

LONG = "1234567890123456.7891"
EVERY_WAY = pytest.mark.parametrize("way", WAYS)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("ddl", [FLAT, KERNEL], ids=["all", "kernel"])
def test_thousands_of_values_of_all_types(ddl: str, seed: int) -> None:
    values = documents(random.Random(seed), ddl, 1_500)
    assert check_ways(ddl, values) > 500


@pytest.mark.parametrize("number", range(len(LEAVES)), ids=LEAVES)
def test_nested_values(number: int) -> None:
    chance = random.Random(number)
    for ddl in SCHEMAS[2 + number :: len(LEAVES)]:
        check_ways(ddl, [None, *documents(chance, ddl, 30)])


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(SCHEMAS), st.integers(0, 2**64))
def test_values_of_any_seed(ddl: str, seed: int) -> None:
    check_ways(ddl, documents(random.Random(seed), ddl, 4))


NUMBERS = st.builds(
    lambda sign, whole, fraction, power: f"{sign}{whole}{fraction}{power}",
    st.sampled_from(("", "-")),
    st.integers(0, 10**40),
    st.just("") | st.integers(0, 10**40).map(lambda digits: f".{digits}"),
    st.just("") | st.integers(-50, 50).map(lambda power: f"e{power}"),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=5))
@example([LONG, f"-{LONG}", "0.10000000000000000001", "0.0049999999999999999999", "1E-5", "1e15"])
def test_no_digit_of_a_decimal_is_lost(texts: list[str]) -> None:
    with decimal.localcontext(prec=500, rounding=decimal.ROUND_HALF_UP):
        exact = [decimal.Decimal(text).quantize(decimal.Decimal("1e-20")) for text in texts]
    fitting = [
        (text, number) for text, number in zip(texts, exact, strict=True) if abs(number) < 10**18
    ]
    values = pa.array([f'{{"x":{text},"y":[{text}]}}'.encode() for text, _ in fitting], pa.binary())
    for parse in WAYS.values():
        rows = parse("x decimal(38,20), y array<decimal(38,20)>", values).rows
        assert rows.column("x").to_pylist() == [number for _, number in fitting]
        assert rows.column("y").to_pylist() == [[number] for _, number in fitting]


@EVERY_WAY
@pytest.mark.parametrize(
    ("ddl", "value"),
    [
        ("decimal(20,4)", LONG),
        ("array<decimal(20,4)>", f"[1, {LONG}]"),
        ("array<array<decimal(20,4)>>", f"[[ {LONG}]]"),
        ("map<string, decimal(20,4)>", f'{{"any name":{LONG}}}'),
        ("struct<m: decimal(20,4)>", f'{{"m" :\n{LONG}}}'),
        ("struct<m: decimal(20,4)>", f'{{"\\u006d":{LONG}}}'),
        ('struct<`ä"/`: decimal(20,4)>', f'{{"ä\\"\\/":{LONG}}}'),
        ("struct<`ä.*`: decimal(20,4)>", f'{{"ä.*":{LONG}}}'),
        ("map<string, array<struct<m: decimal(20,4)>>>", f'{{"a":[{{"m":{LONG}}}]}}'),
    ],
)
def test_decimals_are_exact_wherever_they_are(ddl: str, value: str, way: str) -> None:
    document = f'{{"y":0.30000000000000004,"x":{value},}}'.encode()
    parsed = WAYS[way](f"x {ddl}, y double", pa.array([document], pa.binary()))
    assert f"Decimal('{LONG}')" in repr(parsed.rows.to_pylist())


def test_long_numbers_of_other_columns_are_no_doubts() -> None:
    schema = parse_ddl("m decimal(20,4), d double, l bigint, t string, x array<double>")
    value = b'{"m":12.5,"d":0.30000000000000004,"l":1234567890123456789,"t":"%b","x":[%b]}'
    texts = [value % (LONG.encode(), LONG.encode()), value % (b"1.5", b""), value % (b"\\n", b"1")]
    is_sure = DatabaseReader(schema).read(pa.array(texts, pa.binary()))[1]
    assert is_sure.to_pylist() == [True, True, True]


@EVERY_WAY
@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("string", "-0", "0"),
        ("string", "-0.0", "-0.0"),
        ("string", LONG, "1234567890123456.8"),
        ("string", "1e16", "1e+16"),
        ("string", "1e400", "1e400"),
        ("string", "123456789012345678901234567890", "123456789012345678901234567890"),
        ("string", f'{{"a":-0,"b":{LONG}}}', '{"a":0,"b":1234567890123456.8}'),
        ("string", "[1.50, 1e3, 1e20, 1E21]", "[1.5,1000.0,100000000000000000000.0,1e21]"),
        ("string", "[1e-6, 1e-7, 0e5, nan]", "[0.000001,1e-7,0.0,nan]"),
        ("string", '{"a":1,"a":2}', '{"a":1,"a":2}'),
        ("double", "-0", "0.0"),
        ("double", "-0.0", "-0.0"),
        ("double", "nan", "nan"),
        ("float", "3.4028235e38", "3.4028234663852886e+38"),
        ("decimal(9,2)", "0e300", "0.00"),
        ("decimal(9,2)", "1e-99999999999999999999", "0.00"),
        ("timestamp", "-0", "1970-01-01 00:00:00+00:00"),
        ("bigint", "-0", "0"),
    ],
)
def test_unusual_numbers(kind: str, value: str, text: str, way: str) -> None:
    for ddl in (f"x {kind}", f"x {kind}, y array<int>"):
        values = pa.array([f'{{"x":{value}}}'.encode()], pa.binary())
        assert str(WAYS[way](ddl, values).rows.column("x")[0].as_py()) == text


@EVERY_WAY
@pytest.mark.parametrize(
    ("ddl", "value"),
    [
        ("array<struct<a: int>>", '[{"a":1},{"a":2147483648}]'),
        ("array<struct<a: tinyint, b: string>>", '[{"b":"x"},{"a":128}]'),
        ("array<struct<a: float>>", '[{"a":1e39}]'),
        ("map<string, struct<s: struct<a: int>>>", '{"x":{"s":{"a":2147483648}},"y":{}}'),
        ("decimal(9,2)", '"1_000"'),
        ("float", "3.4028236e38"),
    ],
)
def test_what_no_way_takes(ddl: str, value: str, way: str) -> None:
    good, bad = b'{"x":null}', f'{{"x":{value}}}'.encode()
    parsed = WAYS[way](f"x {ddl}", pa.array([good, bad, good], pa.binary()))
    assert [one.row for one in parsed.rejects] == [1]


def test_missing_fields_inside_of_lists_are_no_doubts() -> None:
    schema = parse_ddl("x array<struct<a: int, s: struct<b: bigint>>>")
    texts = [b'{"x":[{"a":1},{},{"s":{}},{"s":{"b":2}}]}', b'{"x":[]}', b"{}", b'{"x":[{}]}']
    is_sure = DatabaseReader(schema).read(pa.array(texts, pa.binary()))[1]
    assert is_sure.to_pylist() == [True] * 4


@settings(max_examples=200)
@given(st.floats(allow_nan=False, allow_infinity=False))
@example(1e-6)
@example(9.999e-7)
@example(1e21)
def test_texts_of_numbers_inside_of_texts_are_those_of_the_same_number(number: float) -> None:
    text = json_text(decoded(repr(number)))
    assert float(text) == number
    assert JsonRows(parse_ddl("x string")).read(f'{{"x":[{number!r}]}}') == {"x": f"[{text}]"}


@pytest.mark.parametrize(
    ("text", "is_json"),
    [
        ('"' + '\\"' * 500_000, False),
        ('"' * 999_999, False),
        ("[" + "," * 999_999, False),
        ("[" + "nan," * 250_000 + "]", True),
        ("[" + ", " * 500_000 + "]", False),
        ('{"a":"nan,]",}', True),
    ],
)
def test_long_texts_that_are_no_json_are_read_in_no_time(text: str, is_json: bool) -> None:
    begun = time.process_time()
    if is_json:
        assert decoded(text)
    else:
        with pytest.raises(ValueError, match="char"):
            decoded(text)
    assert time.process_time() - begun < 15
