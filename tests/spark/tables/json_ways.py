"""Every way that a JSON value may go, beside the reference; and values at the edges of all types.

A way is sure of itself or leaves a row to the next one, and which rows it leaves depends on the
values and on how many they are. Here each way gets every value.
"""

import base64
import functools
import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pyarrow as pa

from penstock.spark.tables.definition.ddl import parse_ddl
from penstock.spark.tables.values.json.buffers import takes
from penstock.spark.tables.values.json.values import JsonValues, _Reading
from penstock.spark.tables.values.parser import Parsed
from penstock.spark.tables.values.row_batches import together
from tests.spark.tables.json_kernels import ODD_NUMBERS, ODD_TEXTS, exact, expected

LEAVES: Final = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary"),
    *("date", "timestamp", "timestamp_ntz", "decimal(9,2)", "decimal(18,2)", "decimal(20,4)"),
    *("decimal(38,20)", "decimal(38,0)", "decimal(5,5)"),
)
NESTED: Final = (
    "array<{}>",
    "map<string, {}>",
    "struct<x: {}, y: string>",
    "array<struct<x: {}, y: double>>",
    "map<string, array<{}>>",
    "struct<s: struct<x: {}>, y: decimal(20,4)>",
    "array<array<{}>>",
    "array<map<string, {}>>",
)
FLAT: Final = ", ".join(f"x{number} {leaf}" for number, leaf in enumerate(LEAVES))
KERNEL: Final = ", ".join(
    f"x{number} {leaf}"
    for number, leaf in enumerate(LEAVES)
    if leaf != "binary" and "decimal" not in leaf
)
SCHEMAS: Final = (
    FLAT,
    KERNEL,
    *(f"x {nested.format(leaf)}, y string" for nested in NESTED for leaf in LEAVES),
)


@functools.lru_cache(maxsize=8)
def parser(ddl: str, way: str) -> JsonValues:
    """One for each schema: making it takes longer than reading a few values."""
    found = JsonValues(parse_ddl(ddl))
    if way != "kernel":
        found._kernel = None
    return found


def _one_by_one(ddl: str, values: pa.Array) -> Parsed:
    one, count = parser(ddl, "database"), len(values)
    reading = _Reading(doubts=list(range(count)))
    one._one_by_one(values, reading)
    return together(reading.parts, one.schema, count)


WAYS: Final[Mapping[str, Callable[[str, pa.Array], Parsed]]] = {
    "kernel": lambda ddl, values: parser(ddl, "kernel").parse(values),
    "database": lambda ddl, values: parser(ddl, "database").parse(values),
    "one by one": _one_by_one,
}


def check_ways(ddl: str, given: Sequence[bytes | None]) -> int:
    """All ways agree with the reference on each value; how many are rows."""
    values = pa.array([b"{}", *given], pa.binary()).slice(1)
    wanted, schema = expected(ddl, values), parse_ddl(ddl)
    rows = [one for one in wanted if isinstance(one, dict)]
    kept = exact(pa.array(rows, pa.struct(list(schema))))
    errors = {row: one for row, one in enumerate(wanted) if not isinstance(one, dict)}
    places = [row for row in range(len(wanted)) if row not in errors]
    for way, parse in WAYS.items():
        if way == "kernel" and not takes(schema):
            continue
        parsed = parse(ddl, values)
        parsed.rows.validate(full=True)
        found = exact(parsed.rows.to_struct_array())
        numbers = places if parsed.row_numbers is None else parsed.row_numbers.to_pylist()
        told = {one.row: one.error for one in parsed.rejects}
        assert told == errors, f"{way}: {_first_difference(given, told, errors)}"
        assert numbers == places
        for row, one, other in zip(places, found, kept, strict=True):
            assert one == other, f"{way}: {given[row]!r} of {ddl}"
    return len(rows)


def _first_difference(
    given: Sequence[bytes | None], told: Mapping[int, object], errors: Mapping[int, object]
) -> str:
    row = next(one for one in range(len(given)) if told.get(one) != errors.get(one))
    return f"{given[row]!r} is {told.get(row)}, and {errors.get(row)} in the reference"


def number_text(chance: random.Random) -> str:
    """A number of JSON of up to 45 digits, or of thousands."""
    if chance.random() < 0.02:
        zeros = "0" * chance.randrange(5_000)
        return chance.choice((f"1{zeros}", f"0.{zeros}1", f"1.{zeros}1", f"1{zeros}.5"))
    size = chance.choice((1, 3, 9, 16, 17, 20, 38, 39))
    whole = str(chance.randrange(10**size))
    text = chance.choice(("", "-")) + whole
    if chance.random() < 0.6:
        digits = chance.choice((1, 2, 4, 5, 15, 17, 20, 40))
        text += "." + str(chance.randrange(10**digits)).rjust(digits, chance.choice("09"))
    if chance.random() < 0.15:
        power = chance.choice((0, 1, 3, 5, 15, 16, 20, 21, 22, 38, 300, 400, 5_000, 10**19))
        text += chance.choice("eE") + chance.choice(("", "+", "-")) + str(power)
    return text


def text_of_time(chance: random.Random) -> str:
    year = chance.choice((0, 1, 999, 1582, 1969, 1970, 2000, 2026, 9999))
    day = f"{year:04d}-{chance.randrange(1, 14):02d}-{chance.choice((1, 10, 28, 29, 30, 31)):02d}"
    if chance.random() < 0.4:
        return day
    hour, minute = chance.choice((0, 12, 23, 24)), chance.choice((0, 30, 59, 60))
    text = f"{day}{chance.choice('T T')}{hour:02d}:{minute:02d}"
    if chance.random() < 0.8:
        text += f":{chance.choice((0, 5, 59, 60)):02d}"
        if chance.random() < 0.5:
            text += "." + "".join(chance.choices("0123456789", k=chance.randrange(0, 11)))
    zones = ("", "", "Z", "z", "+00:00", "-18:00", "+18:59", "+19:00", "+0530", "-03", "+05:60")
    return text + chance.choice(zones)


def plain_text(chance: random.Random) -> str:
    kind = chance.randrange(6)
    if kind == 0:
        return base64.b64encode(chance.randbytes(chance.randrange(7))).decode()
    if kind == 1:
        return "".join(chance.choices("Aa+/=-_ \n", k=chance.randrange(9)))
    if kind == 2:
        words = ("NaN", "nan", "Infinity", "-INF", "1_000", "true", "null", "+1", ".5", "1.", "")
        return chance.choice((*words, " 1.5 ", "1e3", "٣", "0x1", "--1", "1,5"))
    letters = '"\\/\b\f\n\r\t\x00\x1f\x7f\x80ab ä\u2028😀\U0010ffff{}[]:,'
    return "".join(chance.choices(letters, k=chance.choice((0, 1, 5, 40))))


def leaf_value(chance: random.Random, leaf: str) -> str:
    """Mostly what such a column takes."""
    if chance.random() < 0.03:
        return chance.choice((*ODD_TEXTS, *ODD_NUMBERS)).decode("utf-8", "replace")
    if chance.random() < 0.03:
        return chance.choice(("null", "true", "[]", "{}", "-0", "nan", "-Inf", "NaN", "[1,]"))
    if leaf == "boolean":
        return chance.choice(("true", "false"))
    if leaf.endswith("int"):
        power = chance.choice((7, 8, 15, 31, 53, 63, 64, 70))
        return str(chance.choice((-1, 1)) * (2**power - chance.choice((0, 1, 2, 2**power))))
    if leaf in ("date", "timestamp", "timestamp_ntz"):
        if chance.random() < 0.1:
            return str(chance.randrange(-(10**14), 10**14))
        return json.dumps(text_of_time(chance))
    number = number_text(chance)
    if leaf in ("float", "double") or leaf.startswith("decimal"):
        return json.dumps(number) if chance.random() < 0.2 else number
    if leaf == "string" and chance.random() < 0.5:
        inner = ",".join(f"{json.dumps(plain_text(chance))}:{number}" for _ in range(2))
        return chance.choice((number, f"{{{inner}}}", f"[{number} , {number}]", "true"))
    return json.dumps(plain_text(chance), ensure_ascii=chance.random() < 0.3)


def value_of(chance: random.Random, kind: str) -> str:
    """The JSON of a value of a type, as it is written in `SCHEMAS`."""
    if kind.startswith("array<"):
        inner = kind[6:-1]
        return f"[{','.join(value_of(chance, inner) for _ in range(chance.randrange(4)))}]"
    if kind.startswith("map<string, "):
        inner = kind[12:-1]
        names = [plain_text(chance) for _ in range(chance.randrange(3))]
        names += names[:1] if chance.random() < 0.05 else []
        return f"{{{','.join(member(chance, name, inner) for name in names)}}}"
    if kind.startswith("struct<"):
        return document(chance, _fields(kind[7:-1], ": "))
    return leaf_value(chance, kind)


def member(chance: random.Random, name: str, kind: str) -> str:
    space = chance.choice(("", "", " ", "\n\t"))
    text = json.dumps(name, ensure_ascii=chance.random() < 0.5)
    if name and name[0] in "xys" and chance.random() < 0.1:
        text = f'"\\u00{ord(name[0]):02x}{name[1:]}"'
    return f"{text}{space}:{space}{value_of(chance, kind)}"


def document(chance: random.Random, fields: Sequence[tuple[str, str]]) -> str:
    given = [one for one in fields if chance.random() < 0.8]
    given += given[:1] if chance.random() < 0.05 else []
    if chance.random() < 0.1:
        given.append(("unknown", chance.choice(("double", "string", "array<double>"))))
    comma = chance.choice((",", ",", " , "))
    end = "," if given and chance.random() < 0.03 else ""
    return f"{{{comma.join(member(chance, *one) for one in given)}{end}}}"


@functools.cache
def _fields(ddl: str, between: str) -> tuple[tuple[str, str], ...]:
    """Names and types, split at the commas that are not inside of a type."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(f"{ddl},"):
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append(ddl[start:place].strip())
            start = place + 1
    return tuple((one.split(between, 1)[0], one.split(between, 1)[1]) for one in parts)


def documents(chance: random.Random, ddl: str, count: int) -> list[bytes]:
    """Values for a schema of `SCHEMAS`."""
    fields = _fields(ddl, " ")
    if len(fields) < 5:
        return [document(chance, fields).encode("utf-8", "replace") for _ in range(count)]
    # Of many columns a few each, or else one that refuses its value hides all others.
    return [
        document(chance, chance.sample(fields, chance.choice((1, 2, 5)))).encode("utf-8", "replace")
        for _ in range(count)
    ]
