"""Converts Spark's DDL for a schema to Arrow and back, without a JVM (pure).

Guarantees: Spark accepts every text that `parse_ddl` accepts, with the same types; a test compares
with Spark. Nesting, columns and text are bounded. `to_ddl` returns a text that `parse_ddl` parses
to the same schema.

| Spark | Arrow |
| --- | --- |
| boolean, tinyint, smallint, int, bigint | bool, int8, int16, int32, int64 |
| float, double, decimal(p, s) | float, double, decimal128(p, s) |
| string, varchar(n), char(n) | string (the length is not kept) |
| binary, date | binary, date32 |
| timestamp, timestamp_ntz | timestamp[us, UTC], timestamp[us] |
| array<t>, map<k, v>, struct<a: t> | list, map, struct |

Not supported: intervals, VARIANT, collations, generated and default columns; no table of ours has
them.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

import pyarrow as pa

from penstock.spark.option_values import shown
from penstock.spark.tables.definition.errors import SchemaError

CHARACTERS_MAX: Final = 100_000
COLUMNS_MAX: Final = 2_000
"""The number of columns in all levels; Parquet files and table metadata grow with each."""
NESTING_MAX: Final = 16
DECIMAL_DIGITS_MAX: Final = 38
LENGTH_MAX: Final = 2**31 - 1

_SIMPLE: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_NAMES: Final[Mapping[pa.DataType, str]] = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}
_DECIMALS: Final = ("decimal", "dec", "numeric")
_TEXTS: Final = ("varchar", "char", "character")
_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>[0-9]+)
      | `(?P<quoted>(?:[^`]|``)+)`
      | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*")
      | (?P<mark>[<>(),:])
    )""",
    re.VERBOSE,
)
_BARE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_ddl(text: str) -> pa.Schema:
    """Return the schema of a DDL text such as `id bigint, tags array<string>`."""
    parser = _Parser(text)
    fields = parser.fields(end="")
    _require_unique("the schema", fields)
    return pa.schema(fields)


def to_ddl(schema: pa.Schema) -> str:
    """Return the schema in Spark's DDL."""
    return ", ".join(_column(field, " ") for field in schema)


def type_name(kind: pa.DataType) -> str:
    """Return one type in Spark's DDL."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(_column(field, ': ') for field in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)}, {type_name(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    found = _NAMES.get(kind)
    if found is None:
        raise SchemaError(
            f"type {kind}", "a table has no such column.", "Cast it to one of Spark's types."
        )
    return found


def _column(field: pa.Field, between: str) -> str:
    name = field.name if _BARE.fullmatch(field.name) else f"`{field.name.replace('`', '``')}`"
    return f"{name}{between}{type_name(field.type)}{'' if field.nullable else ' NOT NULL'}"


def _require_unique(what: str, fields: list[pa.Field]) -> None:
    names = [field.name.lower() for field in fields]
    twice = [name for number, name in enumerate(names) if name in names[:number]]
    if twice:
        raise SchemaError(
            what,
            f"the column {shown(twice[0])} is there twice.",
            "Rename one; names that differ only in their case are the same to Spark.",
        )


class _Parser:
    """Reads tokens from left to right; each method stops after its part."""

    def __init__(self, text: str) -> None:
        if len(text) > CHARACTERS_MAX:
            raise SchemaError(
                "the schema",
                f"it has {len(text)} characters.",
                f"At most {CHARACTERS_MAX} are read; give a file instead.",
            )
        self._text = text
        self._tokens = self._split(text)
        self._next = 0
        self._columns = 0
        self._nesting = 0

    def fields(self, end: str) -> list[pa.Field]:
        """Return columns, separated by commas, up to the end."""
        found = [self._field()]
        while (token := self._take("a comma"))[1] == ",":
            found.append(self._field())
        if token[1] != end:
            self._fail(token, "a comma or the end of the list" if end else "a comma")
        return found

    def _field(self) -> pa.Field:
        token = self._take("a column")
        if token[0] not in {"name", "quoted"}:
            self._fail(token, "the name of a column")
        self._columns += 1
        if self._columns > COLUMNS_MAX:
            raise SchemaError(
                "the schema",
                f"it has more than {COLUMNS_MAX} columns.",
                "Put what is rarely read into one column of type string.",
            )
        if self._peek()[1] == ":":
            self._next += 1
        kind = self._type()
        is_nullable = True
        if self._word() == "not":
            self._next += 1
            null = self._take("NULL")
            if null[1].lower() != "null":
                self._fail(null, "NULL")
            is_nullable = False
        if self._word() == "comment":
            self._next += 1
            comment = self._take("a comment")
            if comment[0] != "text":
                self._fail(comment, "a comment in quotes")
        return pa.field(token[1], kind, nullable=is_nullable)

    def _type(self) -> pa.DataType:
        token = self._take("a type")
        word = token[1].lower()
        nested: dict[str, Callable[[], pa.DataType]] = {
            "array": self._array,
            "map": self._map,
            "struct": self._struct,
        }
        if token[0] == "name" and word in nested:
            self._nesting += 1
            if self._nesting > NESTING_MAX:
                raise SchemaError(
                    "the schema",
                    f"it is nested deeper than {NESTING_MAX}.",
                    "Flatten it, or take the inner part as one column of type string.",
                )
            self._expect("<")
            kind = nested[word]()
            self._nesting -= 1
            return kind
        if token[0] == "name" and word in _DECIMALS:
            return self._decimal(token)
        if token[0] == "name" and word in _TEXTS:
            self._length(token)
            return pa.string()
        if token[0] != "name" or word not in _SIMPLE:
            self._fail(token, "a type of Spark, such as bigint, double, string or array<string>")
        return _SIMPLE[word]

    def _array(self) -> pa.DataType:
        kind = self._type()
        self._expect(">")
        return pa.list_(pa.field("element", kind))

    def _map(self) -> pa.DataType:
        key = self._type()
        self._expect(",")
        value = self._type()
        self._expect(">")
        return pa.map_(key, value)

    def _struct(self) -> pa.DataType:
        if self._peek()[1] == ">":
            self._fail(self._peek(), "a column: a table cannot hold an empty struct")
        fields = self.fields(end=">")
        _require_unique("a struct", fields)
        return pa.struct(fields)

    def _decimal(self, token: tuple[str, str, int]) -> pa.DataType:
        if self._peek()[1] != "(":
            return pa.decimal128(10, 0)
        self._next += 1
        precision, scale = self._number(), 0
        if self._peek()[1] == ",":
            self._next += 1
            scale = self._number()
        self._expect(")")
        if not 1 <= precision <= DECIMAL_DIGITS_MAX or scale > precision:
            raise SchemaError(
                "the schema",
                f"there is no {token[1]}({precision},{scale}), at character {token[2] + 1}.",
                f"Write 1 to {DECIMAL_DIGITS_MAX} digits in all, and no more of them behind the "
                "point: decimal(10,2).",
            )
        return pa.decimal128(precision, scale)

    def _length(self, token: tuple[str, str, int]) -> None:
        self._expect("(")
        length = self._number()
        if not 1 <= length <= LENGTH_MAX:
            raise SchemaError(
                "the schema",
                f"there is no {token[1]}({length}), at character {token[2] + 1}.",
                "Write a length of 1 or more, or string.",
            )
        self._expect(")")

    def _number(self) -> int:
        token = self._take("a number")
        if not token[1].isdecimal() or len(token[1]) > 10:
            self._fail(token, "a number")
        return int(token[1])

    def _expect(self, mark: str) -> None:
        token = self._take(f"'{mark}'")
        if token[:2] != ("mark", mark):
            self._fail(token, f"'{mark}'")

    def _word(self) -> str:
        kind, text, _ = self._peek()
        return text.lower() if kind == "name" else ""

    def _peek(self) -> tuple[str, str, int]:
        return self._tokens[self._next]

    def _take(self, wanted: str) -> tuple[str, str, int]:
        token = self._tokens[self._next]
        if token[0] == "end" and wanted != "a comma":
            self._fail(token, wanted)
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _split(self, text: str) -> list[tuple[str, str, int]]:
        tokens = []
        position, end = 0, len(text.rstrip())
        while position < end:
            found = _TOKEN.match(text, position)
            if found is None:
                raise SchemaError(
                    "the schema",
                    f"{shown(text[position : position + 20].strip())} at character {position + 1} "
                    "cannot be read.",
                    "Write columns as in Spark: id bigint, amount double. Put other names in `.",
                )
            kind = found.lastgroup
            assert kind is not None, "each branch of the expression has a name"
            tokens.append((kind, found.group(kind).replace("``", "`"), found.start(kind)))
            position = found.end()
        return [*tokens, ("end", "", len(text))]

    def _fail(self, token: tuple[str, str, int], wanted: str) -> NoReturn:
        seen = shown(token[1]) if token[0] != "end" else "the end"
        raise SchemaError(
            "the schema",
            f"{seen} is at character {token[2] + 1}, where {wanted} is expected.",
            "Write columns as in Spark: id bigint, amount double, tags array<string>.",
        )
