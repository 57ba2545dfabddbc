"""The queries to DuckDB for the columns of a schema, and the checks of their results (pure).

DuckDB's `from_json` accepts more than our rules: 1.5 becomes the integer 2, the text "3" a number,
and a value that does not fit silently becomes null. So a second query reads the types in the JSON
(`json_type`), and a row is certain only if both results show that `json.rows` accepts the value of
every column. Every other row is read by `json.rows`.

Inside lists and maps the query uses wildcards, and a null there is always a doubt. Fields of
structs may be missing there, so the existing ones are counted.

DuckDB reads every number with a fraction as a double. A decimal column may need more digits than a
double has, so a third query searches the value's bytes, if there is such a column: for a number of
16 digits or more that may belong to the column.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

_INTEGERS: Final = ("UBIGINT", "BIGINT")
_NUMBERS: Final = (*_INTEGERS, "DOUBLE")
_TAKEN: Final[Mapping[pa.DataType, tuple[str, tuple[str, ...]]]] = {
    pa.bool_(): ("BOOLEAN", ("BOOLEAN",)),
    pa.int8(): ("TINYINT", _INTEGERS),
    pa.int16(): ("SMALLINT", _INTEGERS),
    pa.int32(): ("INTEGER", _INTEGERS),
    pa.int64(): ("BIGINT", _INTEGERS),
    pa.float32(): ("FLOAT", _NUMBERS),
    pa.float64(): ("DOUBLE", _NUMBERS),
    pa.date32(): ("VARCHAR", ("VARCHAR",)),
    pa.timestamp("us", tz="UTC"): ("VARCHAR", ("VARCHAR",)),
    pa.timestamp("us"): ("VARCHAR", ("VARCHAR",)),
    pa.binary(): ("VARCHAR", ("VARCHAR",)),
}
"""By the column's type: the type for DuckDB, and the allowed JSON types."""
_TEXT: Final = pa.string()
_DIGITS_EXACT: Final = 15
"""Every double preserves this number of decimal digits."""
_SPACE: Final = r"[ \t\r\n]*"
_COLON: Final = f"{_SPACE}:{_SPACE}"
_ESCAPED_KEY: Final = rf'\\.[^"\\]*"{_COLON}'
"""The end of a key with an escape, which may be any name."""
_ELEMENT: Final = rf"[\[,]{_SPACE}"


@dataclass(frozen=True, slots=True)
class Check:
    """One place in the JSON that must have one of some types."""

    place: str
    """A JSON pointer; inside lists and maps a path with wildcards; empty if there is none."""
    types: tuple[str, ...]
    result: str | None
    """The column that must then not be null, as SQL; None inside lists and maps."""
    is_counted: bool = False
    """Whether it is a field that may be missing, so that a null alone proves nothing."""


def structure(kind: pa.DataType) -> object:
    """Return the structure argument of `from_json`, as JSON."""
    if pa.types.is_struct(kind):
        return {field.name: structure(field.type) for field in kind}
    if pa.types.is_map(kind):
        return f"MAP(VARCHAR, {_sql_type(kind.item_type)})"
    if pa.types.is_list(kind):
        return [structure(kind.value_type)]
    return _leaf(kind)


def checks(schema: pa.Schema) -> list[Check]:
    """Return the places outside of lists and maps."""
    return list(_struct_checks(list(schema), "", "parsed"))


def inner_checks(schema: pa.Schema) -> list[Check]:
    """Return the places inside lists and maps."""
    return list(_inner(list(schema), "$", is_inside=False))


def rounded_numbers(schema: pa.Schema) -> str | None:
    """Return an RE2 pattern for numbers of decimal columns that are not exact as doubles.

    None if there is no such column. The pattern has false positives: names are the same at every
    depth.
    """
    places = dict.fromkeys(_decimal_places(list(schema)))
    if not places:
        return None
    return f"(?:{'|'.join([*places, _ESCAPED_KEY])})-?{_long_fraction()}"


def _decimal_places(fields: list[pa.Field]) -> Iterator[str]:
    """Return patterns of the text before the numbers of decimal columns."""
    for field in fields:
        yield from _decimals_inside(field.type, f'"{re.escape(field.name)}"{_COLON}')


def _decimals_inside(kind: pa.DataType, place: str) -> Iterator[str]:
    if pa.types.is_struct(kind):
        yield from _decimal_places(list(kind))
    elif pa.types.is_map(kind):
        yield from _decimals_inside(kind.item_type, _COLON)
    elif pa.types.is_list(kind):
        yield from _decimals_inside(kind.value_type, _ELEMENT)
    elif pa.types.is_decimal(kind):
        yield place


def _long_fraction() -> str:
    """Return a pattern for a number with a point or an exponent, and more digits than are exact."""
    found = "[0-9]*[.eE]"
    for after_point in range(1, _DIGITS_EXACT + 1):
        found = rf"(?:\.[0-9]{{{after_point}}}|[0-9]{found})"
    return f"[0-9]{found}"


def field_place(place: str, name: str) -> str:
    """Return the path of a field; a name with a quote has none."""
    return f'{place}."{name}"' if place and not set(name) & {'"', "\\"} else ""


def elements_place(place: str, kind: pa.DataType) -> str:
    """Return the path of the elements of a list or a map."""
    wildcard = ".*" if pa.types.is_map(kind) else "[*]"
    return place and f"{place}{wildcard}"


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column accepts any value."""
    return bool(kind == _TEXT)


def _leaf(kind: pa.DataType) -> str:
    return _TAKEN[kind][0] if kind in _TAKEN else "VARCHAR"


def _sql_type(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return f"STRUCT({', '.join(f'{_name(one.name)} {_sql_type(one.type)}' for one in kind)})"
    if pa.types.is_map(kind):
        return f"MAP(VARCHAR, {_sql_type(kind.item_type)})"
    if pa.types.is_list(kind):
        return f"{_sql_type(kind.value_type)}[]"
    return _leaf(kind)


def _json_types(kind: pa.DataType) -> tuple[str, ...]:
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return ("OBJECT",)
    if pa.types.is_list(kind):
        return ("ARRAY",)
    if pa.types.is_decimal(kind):
        return (*_NUMBERS, "VARCHAR")
    return _TAKEN[kind][1]


def _struct_checks(fields: list[pa.Field], pointer: str, result: str) -> Iterator[Check]:
    for field in fields:
        place = f"{pointer}/{field.name.replace('~', '~0').replace('/', '~1')}"
        column = f"{result}.{_name(field.name)}"
        if not is_text(field.type):
            yield Check(place, _json_types(field.type), column)
        if pa.types.is_struct(field.type):
            yield from _struct_checks(list(field.type), place, column)


def _inner(fields: list[pa.Field], path: str, *, is_inside: bool) -> Iterator[Check]:
    for field in fields:
        # Without a path nothing inside is ever certain.
        place = field_place(path, field.name)
        if is_inside and not is_text(field.type):
            yield Check(place, _json_types(field.type), None, is_counted=True)
        yield from _deeper(field.type, place, is_inside=is_inside)


def _deeper(kind: pa.DataType, place: str, *, is_inside: bool) -> Iterator[Check]:
    if pa.types.is_struct(kind):
        yield from _inner(list(kind), place, is_inside=is_inside)
    elif pa.types.is_map(kind) or pa.types.is_list(kind):
        inner = kind.item_type if pa.types.is_map(kind) else kind.value_type
        place = elements_place(place, kind)
        if not is_text(inner):
            yield Check(place, _json_types(inner), None)
        yield from _deeper(inner, place, is_inside=True)


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
