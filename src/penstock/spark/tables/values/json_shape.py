"""How DuckDB is asked for the columns of a schema, and which answers are beyond doubt (pure).

DuckDB's `from_json` takes more than our rules do: 1.5 becomes the integer 2, the text "3" a number,
and what does not fit becomes null without a word. So it is asked a second question, what is there
in the JSON (`json_type`), and a row is beyond doubt only if both answers say that every column got
what `json_rows` takes. Every other row is read by `json_rows`.

Inside lists and maps the same is asked with wildcards, and a null there is always a doubt.
"""

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
"""By the column's type: the type that DuckDB reads, and what may be in the JSON for it."""
_TEXT: Final = pa.string()


@dataclass(frozen=True, slots=True)
class Check:
    """One place in the JSON that must hold one of some types."""

    place: str
    """A JSON pointer; a path with wildcards inside lists and maps, empty if there is none."""
    types: tuple[str, ...]
    result: str | None
    """The column that must not be null then, as SQL; None inside lists and maps."""


def structure(kind: pa.DataType) -> object:
    """What `from_json` is told to read, as JSON."""
    if pa.types.is_struct(kind):
        return {field.name: structure(field.type) for field in kind}
    if pa.types.is_map(kind):
        return f"MAP(VARCHAR, {_sql_type(kind.item_type)})"
    if pa.types.is_list(kind):
        return [structure(kind.value_type)]
    return _leaf(kind)


def checks(schema: pa.Schema) -> list[Check]:
    """The places outside of lists and maps."""
    return list(_struct_checks(list(schema), "", "parsed"))


def inner_checks(schema: pa.Schema) -> list[Check]:
    """The places inside lists and maps."""
    return list(_inner(list(schema), "$", is_inside=False))


def is_text(kind: pa.DataType) -> bool:
    """Whether a column takes whatever is there."""
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
        # A quote cannot be written in a path: then nothing inside is ever beyond doubt.
        is_askable = path and not set(field.name) & {'"', "\\"}
        place = f'{path}."{field.name}"' if is_askable else ""
        if is_inside and not is_text(field.type):
            yield Check(place, _json_types(field.type), None)
        yield from _deeper(field.type, place, is_inside=is_inside)


def _deeper(kind: pa.DataType, place: str, *, is_inside: bool) -> Iterator[Check]:
    if pa.types.is_struct(kind):
        yield from _inner(list(kind), place, is_inside=is_inside)
        return
    if pa.types.is_map(kind):
        inner, place = kind.item_type, place and f"{place}.*"
    elif pa.types.is_list(kind):
        inner, place = kind.value_type, place and f"{place}[*]"
    else:
        return
    if not is_text(inner):
        yield Check(place, _json_types(inner), None)
    yield from _deeper(inner, place, is_inside=True)


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
