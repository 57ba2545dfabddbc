"""Results of the JSON kernel beside those of the reference, and values that are hard to read."""

import functools
import json
import random
import struct
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

import pyarrow as pa

from penstock.spark.tables.definition.ddl import parse_ddl
from penstock.spark.tables.values.json import buffers as compiled
from penstock.spark.tables.values.json.database import DatabaseReader
from penstock.spark.tables.values.json.rows import JsonRows
from penstock.spark.tables.values.parser import ErrorClass, RowError
from tests.spark.decode.uncompiled import load_uncompiled

FLAT = (
    "b boolean, y tinyint, h smallint, i int, l bigint, f float, d double, t string, a date,"
    " m timestamp, z timestamp_ntz, `a longer name` string, `ä` bigint,"
    " s struct<i: int, t: string, s: struct<d: double, i: int>>"
)
REQUIRED = "i int, l bigint NOT NULL, t string NOT NULL, s struct<i: int NOT NULL, t: string>"
NESTED = (
    "l bigint, t string, n array<int>, k map<string, bigint>, v array<array<string>>,"
    " o array<struct<i: int NOT NULL, t: string, n: array<double>>>,"
    " u map<string, struct<i: int, k: map<string, string>>>,"
    " p decimal(9,2), q decimal(38,10), w array<decimal(5,0)> NOT NULL,"
    " s struct<i: int, n: array<date>, p: decimal(20,19)>"
)
ODD_TEXTS = (
    b'""',
    b'"1.005"',
    b'"-12.5"',
    b'" 1"',
    b'"+1"',
    b'"1e3"',
    b'"007"',
    b'"-0.00"',
    b'"text"',
    b'"12345678"',
    b'"a longer text than one word"',
    '"ä€😀"'.encode(),
    b'"\\u00e4\\n\\ud83d\\ude00\\/\\b"',
    b'"1234567\\t90"',
    b'"\\ud83d"',
    b'"\\ud83d\\u0041"',
    b'"\\ude00"',
    b'"\\u0000"',
    b'"\\u12g4"',
    b'"\\x"',
    b'"\\',
    b'"a\nb"',
    b'"\x00"',
    b'"\x7f"',
    b'"\xff"',
    b'"\xc0\x80"',
    b'"\xe0\x80\x80"',
    b'"\xed\xa0\x80"',
    b'"\xf4\x90\x80\x80"',
    b'"\xf0\x8f\xbf\xbf"',
    b'"\xe2\x82"',
    b'"open',
    b'"NaN"',
    b'"Infinity"',
    b'"-INF"',
    b'"inf"',
    b'"2026-01-31"',
    b'"2026-02-30"',
    b'"0000-01-01"',
    b'"2024-02-29T23:59:59.1234567+05:30"',
    b'"2026-01-31 01:02"',
    b'"2026-01-31T01:02:03Z"',
    b'"2026-01-31T01:02:03.-1"',
    b'"\\u0032026-01-31"',
)
ODD_NUMBERS = (
    b"0",
    b"-0",
    b"-0.0",
    b"0.0",
    b"1",
    b"-1",
    b"127",
    b"128",
    b"-128",
    b"-129",
    b"32768",
    b"-32768",
    b"2147483647",
    b"2147483648",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775808",
    b"-9223372036854775809",
    b"18446744073709551615",
    b"18446744073709551616",
    b"9223372036855",
    b"1.5",
    b"1.50",
    b"1e2",
    b"1E+2",
    b"1e-2",
    b"0.1",
    b"0.30000000000000004",
    b"0.012345678901234567",
    b"9007199254740993",
    b"9007199254740993.0",
    b"1e22",
    b"1e23",
    b"1e308",
    b"1e400",
    b"-1e400",
    b"1e-400",
    b"4.9e-324",
    b"3.4028234663852886e38",
    b"3.4028235e38",
    b"3.4028236e38",
    b"1e39",
    b"123456789012345678901234567890",
    b"0." + b"0" * 40 + b"1",
    b"1e99999",
    b"01",
    b"-01",
    b"1.",
    b".5",
    b"+1",
    b"1e",
    b"1e+",
    b"-",
    b"0x10",
    b"1_000",
    b"NaN",
    b"nan",
    b"-Infinity",
    b"Infinity",
    b"inf",
)
ODD_VALUES = (
    *ODD_TEXTS,
    *ODD_NUMBERS,
    b"true",
    b"false",
    b"null",
    b"True",
    b"tru",
    b"nul",
    b"nulll",
    b"[]",
    b"{}",
    b"[1,]",
    b"[1, 2 , [3]]",
    b'{"i":1}',
    b'{"i":1,"t":"x","s":{"d":1.5,"i":"x"}}',
    b'{"i":1,"i":2}',
    b'{"i":null,"s":null}',
    b'{"i":1,}',
    b'{"x":[{"y":[[]]}],"t":"\\n"}',
    b"[1,null,2]",
    b"[null]",
    b'["x","y\\n"]',
    b'[["x"],[],null,["\\u00e4","1"]]',
    b'[{"i":1,"t":"x","n":[1.5]},{"i":2},{"i":3,"n":[]}]',
    b'[{"i":1},{"t":"no i"}]',
    b'[{"i":1,"i":2}]',
    b'[{"i":1},null]',
    b"[1,,2]",
    b"[1;2]",
    b"[1,2",
    b"[,]",
    b'{"a":1,"b":null,"c":3}',
    b'{"a":1,"a":2}',
    b'{"\\u0061":1,"a":2}',
    b'{"a":{"i":1,"k":{"x":"y","z":null}},"b":{}}',
    b'{"a":{"k":{"x":1,"x":2}}}',
    b'{"a":1,}',
    b'{"a" 1}',
    b"{%b}" % b",".join(b'"%d":%d' % (number, number) for number in range(70)),
    b"99999.994",
    b"9999999.995",
    b"9999999.994999",
    b"-0.005",
    b"0.0049999999999999999",
    b"12345678901234567890123456789",
    b"1e27",
    b"1e28",
    b"9.9999999999999999e18",
    b"[" * 59 + b"]" * 59,
    b"[" * 70 + b"]" * 70,
    b"[" * 70,
    b"[}",
    b"{]",
    b"[1 2]",
    b'{"a" 1}',
    b"{1:2}",
    b"/* */ 1",
    b"",
)
ODD_DOCUMENTS = (
    b"",
    b"  ",
    b"\n",
    b"\x00",
    b"\xef\xbb\xbf{}",
    b"{}",
    b" {} ",
    b"{}{}",
    b"{} x",
    b"{}\x00",
    b"{}\x0b",
    b"{",
    b"}",
    b"{,}",
    b'{"i"}',
    b'{"i":}',
    b'{"i":1',
    b'{"i":1,',
    b"{'i':1}",
    b"{i:1}",
    b'{"i":1,}',
    b'{"i":1;"l":2}',
    b'{"i" : 1 , "l" :\t2}',
    b'{"\\u0069":1}',
    b'{"\xff":1}',
    '{"ä":1,"ö":2}'.encode(),
    b'{"":1}',
    b"[]",
    b'["i"]',
    b'"text"',
    b"1",
    b"-1",
    b"+1",
    b"true",
    b"null",
    b"nan",
    b"NaN",
    b"Inf",
    b"-inf",
    b"nothing",
    b"hello",
    b"<xml/>",
    b"// comment\n{}",
    b"{}// comment",
    b'{"i":1/**/}',
    b"{\x00}",
    b"\x00\x00\x00\x00\x01",
    b"{\x00}\x00",
    b"[" * 2_000,
)
NAMES = ("b", "y", "h", "i", "l", "f", "d", "t", "a", "m", "z", "a longer name", "ä", "s", "x", "B")
NESTED_NAMES = ("l", "t", "n", "o", "k", "u", "v", "p", "q", "w", "s", "x")


@functools.cache
def uncompiled() -> ModuleType:
    """`json.buffers` over a kernel that runs as plain Python."""
    shared = ("byte_reader", "columns", "row_kernel", "column_tree", "memory", "reading")
    parts = ("scan", "field_names", "double", "time", "columns", "kernel", "buffers")
    names = ["encode.binary_column", *(f"tables.values.columnar.{name}" for name in shared)]
    return load_uncompiled([*names, *(f"tables.values.json.{name}" for name in parts)])


@functools.cache
def reader(ddl: str, *, is_compiled: bool) -> compiled.KernelReader:
    found: compiled.KernelReader = (compiled if is_compiled else uncompiled()).KernelReader(
        parse_ddl(ddl)
    )
    return found


@functools.lru_cache(maxsize=8)
def references(ddl: str) -> tuple[DatabaseReader, JsonRows]:
    return DatabaseReader(parse_ddl(ddl)), JsonRows(parse_ddl(ddl))


def expected(ddl: str, values: pa.Array) -> list[object]:
    """For each value its row as the reference gives it, or why there is none."""
    database, rows = references(ddl)
    is_nullable = all(field.nullable for field in parse_ddl(ddl))
    found: list[object] = []
    is_json = database.are_json(values).to_pylist()
    for value, is_read in zip(values.to_pylist(), is_json, strict=True):
        try:
            if value is None:
                found.append({} if is_nullable else ErrorClass.MISSING_VALUE)
            elif not is_read:
                found.append(ErrorClass.MALFORMED)
            else:
                found.append(rows.read(value.decode()))
        except RowError as error:
            found.append(error.error)
    return found


def check(ddl: str, given: Sequence[bytes | None], *, is_compiled: bool) -> int:
    """The kernel and the reference agree on each value; how many doubts there are."""
    # Sliced, so that the first row is not the first of the buffers.
    values = pa.array([b"{}", None, *given], pa.binary()).slice(2)
    answer = reader(ddl, is_compiled=is_compiled).read(values)
    answer.rows.validate(full=True)
    wanted, reference = expected(ddl, values), references(ddl)[1]
    numbers = answer.row_numbers.to_pylist()
    assert numbers == sorted(numbers)
    for number in numbers:
        assert isinstance(wanted[number], dict), f"{given[number]!r} is a row: {wanted[number]}"
    rows = pa.array([wanted[number] for number in numbers], pa.struct(list(answer.rows.schema)))
    assert exact(answer.rows.to_struct_array()) == exact(rows)
    for number in [*answer.malformed, *answer.cut]:
        assert wanted[number] is ErrorClass.MALFORMED, f"{given[number]!r}: {wanted[number]}"
    doubts, problems = list(answer.doubts), []
    for number, column, text in answer.problems:
        reason = reference.problem(column, text)
        if reason is None:
            doubts.append(number)
        else:
            problems.append(number)
            assert wanted[number] is reason[0], f"{given[number]!r}: {wanted[number]}, {reason}"
    everything = [*numbers, *answer.malformed, *answer.cut, *doubts, *problems]
    assert sorted(everything) == list(range(len(given)))
    return len(doubts)


def exact(column: pa.StructArray) -> list[str]:
    """Each row as a text that tells 0.0 from -0.0; times as numbers, since not all have a text."""
    return [repr(row) for row in column.cast(as_numbers(column.type)).to_pylist()]


def as_numbers(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([(one.name, as_numbers(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, as_numbers(kind.item_type))
    return pa.list_(as_numbers(kind.value_type)) if pa.types.is_list(kind) else kind


def odd_document(chance: random.Random, all_names: Sequence[str] = NAMES) -> bytes | None:
    """A value that is JSON, nearly JSON, or not."""
    kind = chance.randrange(20)
    if kind == 0:
        return chance.choice((None, *ODD_DOCUMENTS))
    if kind == 1:
        return chance.randbytes(chance.randrange(20))
    space = chance.choice((b"", b"", b" ", b"\r\n\t"))
    names = [name for name in all_names if chance.random() < 0.6]
    if chance.random() < 0.2:
        chance.shuffle(names)
    if chance.random() < 0.05:
        names += names[:1]
    members = [
        json.dumps(name, ensure_ascii=chance.random() < 0.02).encode()
        + space
        + b":"
        + space
        + odd_value(chance, name)
        for name in names
    ]
    text = space + b"{" + space + (space + b"," + space).join(members) + space + b"}" + space
    if chance.random() < 0.1:
        at = chance.randrange(len(text))
        return text[:at] + chance.choice((b"", chance.randbytes(1), text[at + 2 :]))
    return text


def odd_value(chance: random.Random, name: str) -> bytes:
    """Mostly what the field takes."""
    if chance.random() < 0.06:
        return chance.choice(ODD_VALUES)
    if name in ("i", "y", "h", "l", "ä"):
        return str(chance.randrange(-(2 ** chance.choice((3, 7))), 2**7)).encode()
    if name in ("d", "f"):
        number = struct.unpack("<d", chance.randbytes(8))[0]
        other = chance.choice((chance.random(), chance.randrange(10**6) / 100, number))
        return (repr(other) if other - other == 0 else "0.5").encode()
    if name == "b":
        return chance.choice((b"true", b"false", b"null"))
    if name in _NESTED_VALUES:
        return _NESTED_VALUES[name](chance)
    if name == "s":
        inner = odd_value(chance, "d"), odd_value(chance, "t")
        return b'{"t":%b, "s":{"d":%b}}' % (inner[1], inner[0])
    if name in ("a", "m", "z"):
        return b'"%04d-%02d-%02d"' % (
            chance.randrange(1, 9999),
            chance.randrange(1, 13),
            chance.randrange(1, 29),
        )
    text = "".join(chance.choices('abc 0"\\/ä€😀\n', k=chance.choice((0, 3, 9, 40))))
    return json.dumps(text, ensure_ascii=chance.random() < 0.3).encode()


def _array(chance: random.Random, name: str) -> bytes:
    items = [odd_value(chance, name) for _ in range(chance.choice((0, 1, 2, 5)))]
    if chance.random() < 0.2:
        items.append(b"null")
    return b"[%b]" % chance.choice((b",", b" , ")).join(items)


def _object(chance: random.Random, name: str) -> bytes:
    keys = chance.sample(("a", "b", "ä\n", "", "long key of a map"), chance.randrange(4))
    return b"{%b}" % b",".join(
        json.dumps(key, ensure_ascii=chance.random() < 0.5).encode()
        + b":"
        + odd_value(chance, name)
        for key in keys
    )


def _number(chance: random.Random) -> bytes:
    number = b"%d.%02d" % (chance.randrange(-(10**6), 10**6), chance.randrange(100))
    return chance.choice((number, number, b'"%b"' % number, b"%d" % chance.randrange(10**5)))


def _struct(chance: random.Random) -> bytes:
    inner = odd_value(chance, "i"), odd_value(chance, "t"), _array(chance, "d")
    return b'{"i":%b,"t":%b,"n":%b}' % inner


_NESTED_VALUES: Mapping[str, Callable[[random.Random], bytes]] = {
    "n": lambda chance: _array(chance, "i"),
    "o": lambda chance: b"[%b]" % b",".join(_struct(chance) for _ in range(chance.randrange(4))),
    "k": lambda chance: _object(chance, "l"),
    "u": lambda chance: _object(chance, "s"),
    "v": lambda chance: (
        b"[%b]" % b",".join(_array(chance, "t") for _ in range(chance.randrange(4)))
    ),
    "p": _number,
    "q": _number,
    "w": lambda chance: b"[%b]" % b",".join(_number(chance) for _ in range(chance.randrange(4))),
}
