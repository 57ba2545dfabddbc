"""Converts DuckDB's texts to dates, times, decimals and bytes, at any depth.

Guarantees: a converted text has the result of `json.rows`; every other text is a doubt. Nulls
inside lists and maps, and nulls in required columns, are doubts too; and fields of structs there,
if fewer fields have a value than in the JSON. The resulting columns have exactly the types of the
schema.
"""

from collections.abc import Mapping
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.tables.values.database import answer_of, registered
from penstock.spark.tables.values.json.shape import elements_place, field_place

_DAY: Final = "[12][0-9]{3}-[01][0-9]-[0-3][0-9]"
_CLOCK: Final = r"[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_OFFSET: Final = "[+-](?:0[0-9]|1[0-7]):[0-5][0-9]"
_CONVERSIONS: Final[Mapping[pa.DataType, str]] = {
    pa.date32(): f"CASE WHEN regexp_full_match(text, '{_DAY}') THEN TRY_CAST(text AS DATE) END",
    pa.timestamp("us"): (
        f"CASE WHEN regexp_full_match(text, '{_DAY}{_CLOCK}') THEN TRY_CAST(text AS TIMESTAMP) END"
    ),
    pa.timestamp("us", tz="UTC"): (
        # The cast ignores an offset, so it is subtracted afterwards.
        f"CASE WHEN regexp_full_match(text, '{_DAY}{_CLOCK}Z?') THEN TRY_CAST(text AS TIMESTAMP) "
        f"WHEN regexp_full_match(text, '{_DAY}{_CLOCK}{_OFFSET}') THEN "
        "TRY_CAST(text[:-7] AS TIMESTAMP) - to_minutes(CAST(text[-6:-4] AS INTEGER) * 60 + "
        "CAST(text[-6] || text[-2:] AS INTEGER)) END"
    ),
    pa.binary(): (
        "CASE WHEN length(text) % 4 = 0 AND "
        "regexp_full_match(text, '[A-Za-z0-9+/]*={0,2}') THEN TRY(from_base64(text)) END"
    ),
}
_NUMBER: Final = r"-?[0-9]{1,38}(?:\.[0-9]{1,38})?"


class TextReader:
    """Converts the columns of one batch after the other."""

    def __init__(self, database: duckdb.DuckDBPyConnection) -> None:
        self._database = database
        self._doubts: list[pa.Array] = []
        self._rows = 0
        self._counts: Mapping[str, pa.Array] = {}

    def columns(
        self, parsed: pa.StructArray, schema: pa.Schema, counts: Mapping[str, pa.Array]
    ) -> tuple[list[pa.Array], list[pa.Array]]:
        """Return the columns, and booleans by row: true for a doubt.

        `counts` has, by place and row, the number of fields in lists and maps of the JSON.
        """
        self._doubts, self._rows, self._counts = [], len(parsed), counts
        found = [
            self._field(child, field) for child, field in zip(parsed.flatten(), schema, strict=True)
        ]
        doubts, self._doubts = self._doubts, []
        return found, doubts

    def _field(self, column: pa.Array, field: pa.Field) -> pa.Array:
        if not field.nullable and column.null_count:
            self._doubt(pc.is_null(column), None)
        return self._converted(column, field.type, field_place("$", field.name), None)

    def _converted(
        self, column: pa.Array, kind: pa.DataType, place: str, parents: pa.Array | None
    ) -> pa.Array:
        """Return the column in its type; `parents` has the row of each element inside a list."""
        if pa.types.is_struct(kind):
            return self._struct(column, kind, place, parents)
        if pa.types.is_map(kind) or pa.types.is_list(kind):
            return self._list(column, kind, place, parents)
        if pa.types.is_floating(kind):
            # A number that is too large: DuckDB reads it as infinity.
            is_infinite = pc.fill_null(pc.is_inf(column), fill_value=False)
            if pc.any(is_infinite, min_count=0).as_py():
                self._doubt(is_infinite, parents)
        if kind not in _CONVERSIONS and not pa.types.is_decimal(kind):
            return column
        converted = self._from_text(column, kind)
        if converted.null_count != column.null_count:
            self._doubt(pc.and_(pc.is_null(converted), pc.is_valid(column)), parents)
        return converted

    def _struct(
        self, column: pa.StructArray, kind: pa.DataType, place: str, parents: pa.Array | None
    ) -> pa.Array:
        children = [
            self._converted(child, field.type, field_place(place, field.name), parents)
            for child, field in zip(column.flatten(), kind, strict=True)
        ]
        for child, field in zip(children, kind, strict=True):
            # A null inside of a null struct is not a doubt.
            if child.null_count <= column.null_count:
                continue
            if not field.nullable:
                self._doubt(pc.and_(pc.is_null(child), pc.is_valid(column)), parents)
            counts = self._counts.get(field_place(place, field.name))
            if counts is not None and parents is not None:
                self._doubts.append(pc.not_equal(counts, self._valid(child, parents)))
        return pa.Array.from_buffers(
            kind, len(column), [column.buffers()[0]], column.null_count, children=children
        )

    def _valid(self, column: pa.Array, parents: pa.Array) -> pa.Array:
        """Return the number of values that are not null, by row."""
        found = parents.filter(pc.is_valid(column)).value_counts()
        numbers = pa.array(range(self._rows), parents.type)
        places = pc.index_in(numbers, value_set=found.field("values"))
        return pc.fill_null(found.field("counts").take(places), 0)

    def _list(
        self, column: pa.Array, kind: pa.DataType, place: str, parents: pa.Array | None
    ) -> pa.Array:
        place = elements_place(place, kind)
        rows = pc.list_parent_indices(column.cast(_as_list(column.type)))
        rows = rows if parents is None else parents.take(rows)
        if pa.types.is_map(kind):
            values = self._elements(column.items, kind.item_type, place, rows)
            fields = [kind.key_field, kind.item_field]
            child = pa.StructArray.from_arrays([column.keys, values], fields=fields)
        else:
            child = self._elements(column.values, kind.value_type, place, rows)
        validity, offsets = column.buffers()[:2]
        return pa.Array.from_buffers(
            kind, len(column), [validity, offsets], column.null_count, children=[child]
        )

    def _elements(
        self, values: pa.Array, kind: pa.DataType, place: str, rows: pa.Array
    ) -> pa.Array:
        if values.null_count and kind != pa.string():
            self._doubt(pc.is_null(values), rows)
        return self._converted(values, kind, place, rows)

    def _from_text(self, column: pa.Array, kind: pa.DataType) -> pa.Array:
        sql = (
            f"CASE WHEN regexp_full_match(text, '{_NUMBER}') "
            f"THEN TRY_CAST(text AS DECIMAL({kind.precision}, {kind.scale})) END"
            if pa.types.is_decimal(kind)
            else _CONVERSIONS[kind]
        )
        with registered(self._database, "leaf", pa.table({"text": column})):
            answer = answer_of(self._database, f"SELECT {sql} AS found FROM leaf")  # noqa: S608 - ours
        return _column(answer, "found", kind)

    def _doubt(self, is_doubtful: pa.Array, parents: pa.Array | None) -> None:
        if parents is None:
            self._doubts.append(is_doubtful)
            return
        rows = parents.filter(is_doubtful).unique()
        self._doubts.append(pc.is_in(pa.array(range(self._rows), rows.type), value_set=rows))


def _as_list(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_map(kind):
        return pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
    return kind


def _column(table: pa.Table, name: str, kind: pa.DataType) -> pa.Array:
    """Return the column in one chunk and in its type; a table without rows has no chunk."""
    pieces = table.column(name).chunks
    if not pieces:
        return pa.array([], kind)
    return pieces[0] if pieces[0].type == kind else pieces[0].cast(kind)
