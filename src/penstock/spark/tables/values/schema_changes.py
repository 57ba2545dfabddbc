"""Changes of a table's schema for new rows: none, added, widened, or incompatible (pure).

Guarantees: a change never drops a column, never narrows one and never changes the meaning of stored
rows, and a required column stays required. Added columns are nullable, since existing rows have no
value. A column that the new rows lack stays.

| table | rows | the change |
| --- | --- | --- |
| (none) | a column | it is added, nullable |
| a column | (none) | it stays; incompatible if it is required |
| required | nullable | it stays required: a row without a value is a reject |
| required, within a column | nullable | incompatible |
| int8 < int16 < int32 < int64 | a wider one | widened |
| float | double | widened |
| decimal(p, s) | decimal(more, s) | widened |
| wider | narrower of the same kind | nothing: the rows are widened |
| struct, list, map | the same | by its parts, with the same rules; a key never changes |
| anything else | | incompatible |

Two names that differ in their case only are the same to Spark, so the second one is incompatible.

A column whose name is the path of another one (`a.b`, beside a struct `a` with a field `b`) is the
same to Iceberg, so it is incompatible there.

Delta (`may_widen` is false) adds only: a column is not widened, and types in a map stay unchanged,
because `deltalake` cannot read the older files. A column whose name Spark rejects is not added: the
owner could no longer change the table.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.spark.tables.definition.ddl import type_name

INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
"""From narrow to wide."""
FLOATS: Final = (pa.float32(), pa.float64())
_RARE: Final = frozenset(" ,;{}()\n\t=")
"""Spark cannot alter a Delta table without column mapping if a column's name has one of these."""


@dataclass(frozen=True, slots=True)
class Added:
    """A new column; the path names it and the structs that it is in."""

    path: tuple[str, ...]
    type: pa.DataType
    is_in_map: bool = False


@dataclass(frozen=True, slots=True)
class Widened:
    """A column with a wider type after the change."""

    path: tuple[str, ...]
    before: pa.DataType
    after: pa.DataType


Step = Added | Widened


@dataclass(frozen=True, slots=True)
class Change:
    """The changes in the commit of the rows; none if `steps` is empty."""

    schema: pa.Schema
    """The table's schema afterwards; the rows must be fitted to it."""
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Incompatible:
    """The rows do not fit into this table."""

    reasons: tuple[str, ...]
    """One sentence for each column that does not fit."""


def change_of(
    table: pa.Schema, rows: pa.Schema, *, may_widen: bool = True
) -> Change | Incompatible:
    """Return the change of the table's schema for rows of this schema."""
    merging = _Merging()
    merged = merging.fields((), list(table), list(rows))
    reasons = list(merging.reasons)
    if not may_widen:
        reasons += [reason for reason in map(_refused, merging.steps) if reason is not None]
    elif any(isinstance(step, Added) for step in merging.steps):
        reasons += _double_paths(merged)
    if reasons:
        return Incompatible(tuple(reasons))
    return Change(pa.schema(merged, metadata=table.metadata), tuple(merging.steps))


def all_nullable(schema: pa.Schema) -> pa.Schema:
    """Return the same columns, nullable at every level."""
    return pa.schema([pa.field(one.name, _all_nullable(one.type)) for one in schema])


def column_count(kinds: Iterable[pa.Field]) -> int:
    """Return the number of columns, including those in structs."""
    return sum(1 + column_count(_fields_in(one.type)) for one in kinds)


class _Merging:
    """Walks both schemas, collecting changes and incompatible columns."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.reasons: list[str] = []
        self._maps = 0
        """The number of maps around the current place."""

    def fields(
        self, path: tuple[str, ...], table: list[pa.Field], rows: list[pa.Field]
    ) -> list[pa.Field]:
        incoming = {field.name: field for field in rows}
        merged = [
            self._kept((*path, field.name), field, incoming.get(field.name)) for field in table
        ]
        return [*merged, *self._added(path, table, rows)]

    def _kept(self, path: tuple[str, ...], table: pa.Field, rows: pa.Field | None) -> pa.Field:
        field = table
        if rows is not None:
            field = table.with_type(self._type(path, table.type, rows.type))
        if rows is not None and len(path) == 1:
            return field  # a row without a value is a reject
        if not table.nullable and (rows is None or rows.nullable):
            self.reasons.append(
                f"{_shown(path)} is required in the table and not in the rows, and a required "
                "column stays required."
            )
        return field

    def _added(
        self, path: tuple[str, ...], table: list[pa.Field], rows: list[pa.Field]
    ) -> Iterator[pa.Field]:
        names = {field.name: field.name for field in table}
        cases = {name.lower(): name for name in names}
        for field in rows:
            if field.name in names:
                continue
            other = cases.get(field.name.lower())
            if "\x00" in field.name:
                self.reasons.append(f"{_shown((*path, field.name))} has a zero in its name.")
                continue
            if other is not None:
                self.reasons.append(
                    f"{_shown((*path, field.name))} differs from {_shown((*path, other))} only in "
                    "its case, and to Spark they are one."
                )
                continue
            cases[field.name.lower()] = field.name
            kind = _all_nullable(field.type)
            self.steps.append(Added((*path, field.name), kind, self._maps > 0))
            yield pa.field(field.name, kind)

    def _type(self, path: tuple[str, ...], table: pa.DataType, rows: pa.DataType) -> pa.DataType:
        if table == rows:
            return table
        if pa.types.is_struct(table) and pa.types.is_struct(rows):
            return pa.struct(self.fields(path, list(table), list(rows)))
        if pa.types.is_map(table) and pa.types.is_map(rows):
            if table.key_type != rows.key_type:
                self._refuse((*path, "key"), table.key_type, rows.key_type)
                return table
            self._maps += 1
            item = self._kept((*path, "value"), table.item_field, rows.item_field)
            self._maps -= 1
            return pa.map_(table.key_type, item)
        if pa.types.is_list(table) and pa.types.is_list(rows):
            return pa.list_(self._kept((*path, "element"), table.value_field, rows.value_field))
        return self._number(path, table, rows)

    def _number(self, path: tuple[str, ...], table: pa.DataType, rows: pa.DataType) -> pa.DataType:
        wider = _wider(table, rows)
        if wider is None:
            self._refuse(path, table, rows)
            return table
        if wider != table:
            self.steps.append(Widened(path, table, wider))
        return wider

    def _refuse(self, path: tuple[str, ...], table: pa.DataType, rows: pa.DataType) -> None:
        self.reasons.append(
            f"{_shown(path)} is {type_name(table)} in the table and {type_name(rows)} in the rows, "
            "and neither holds the other."
        )


def _refused(step: Step) -> str | None:
    """Return the reason why a Delta table cannot have this change; None if it can."""
    match step:
        case Widened(path, before, after):
            return (
                f"{_shown(path)} is {type_name(before)} in the table and {type_name(after)} in the "
                "rows, and columns of a Delta table are not widened."
            )
        case Added(path, _, is_in_map=True):
            return (
                f"{_shown(path)} is not in the table, and what lies in a map of a Delta table "
                "gets no further columns."
            )
        case Added(path, kind):
            paths = (path, *_paths_in(path, kind))
            rare = [one for one in paths if not _RARE.isdisjoint(one[-1])]
            return _unnameable(rare[0]) if rare else None


def _unnameable(path: tuple[str, ...]) -> str:
    return (
        f"{_shown(path)} is not in the table, and its name has a space, a tab, a line break or one "
        "of ,;{}()=. With such a column no Spark could change the columns or the properties of a "
        "Delta table any more."
    )


def _paths_in(path: tuple[str, ...], kind: pa.DataType) -> Iterator[tuple[str, ...]]:
    """Return the fields of structs inside this type."""
    for one in _fields_in(kind):
        yield (*path, one.name)
        yield from _paths_in((*path, one.name), one.type)


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    for ladder in (INTEGERS, FLOATS):
        if one in ladder and other in ladder:
            return max(one, other, key=ladder.index)
    if pa.types.is_decimal(one) and pa.types.is_decimal(other) and one.scale == other.scale:
        return max(one, other, key=lambda kind: int(kind.precision))
    return None


def _all_nullable(kind: pa.DataType) -> pa.DataType:
    """Return the type with nullable parts: later rows may lack parts of a new column."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _all_nullable(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _all_nullable(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_all_nullable(kind.value_type))
    return kind


def _double_paths(fields: Iterable[pa.Field]) -> list[str]:
    """Return one sentence for each path that two columns have."""
    counted = Counter(path for one in fields for path in _paths(one.name, one.type))
    return [
        f"two columns have the path '{path}', and to Iceberg they are one."
        for path, count in counted.items()
        if count > 1
    ]


def _paths(path: str, kind: pa.DataType) -> Iterator[str]:
    """Return the paths of a column and of all fields in it, as Iceberg writes them."""
    yield path
    if pa.types.is_struct(kind):
        inside = [(one.name, one.type) for one in kind]
    elif pa.types.is_map(kind):
        inside = [("key", kind.key_type), ("value", kind.item_type)]
    elif pa.types.is_list(kind):
        inside = [("element", kind.value_type)]
    else:
        return
    for name, inner in inside:
        yield from _paths(f"{path}.{name}", inner)


def _fields_in(kind: pa.DataType) -> Iterable[pa.Field]:
    """Return the fields of this struct, or of the struct inside this list or map."""
    while pa.types.is_list(kind) or pa.types.is_map(kind):
        kind = kind.item_type if pa.types.is_map(kind) else kind.value_type
    return list(kind) if pa.types.is_struct(kind) else ()


def _shown(path: tuple[str, ...]) -> str:
    return f"column '{'.'.join(path)}'"
