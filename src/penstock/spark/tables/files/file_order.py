"""The order of rows in a file, by the sort order of a table (pure).

Guarantees: rows are in the order that Iceberg's specification defines: texts and bytes by their
bytes, floats by their total order (-NaN, -infinity, -0, 0, infinity, NaN), nulls first or last as
the field says. Rows with equal columns stay in their order. Lists, maps and structs have no order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.errors import OptionError
from penstock.spark.tables.files.file_partitions import column_at, required_field


@dataclass(frozen=True, slots=True)
class SortField:
    """One column of a sort order."""

    column: str
    is_descending: bool = False
    nulls_first: bool = True

    def __str__(self) -> str:
        text = f"{self.column} desc" if self.is_descending else self.column
        is_usual = self.nulls_first is not self.is_descending
        return text if is_usual else f"{text} nulls {'first' if self.nulls_first else 'last'}"


def require_sortable(fields: Sequence[SortField], schema: pa.Schema) -> None:
    """Raise `OptionError` if a column is missing or has no order."""
    for one in fields:
        field = required_field("sort_by", schema, one.column)
        if pa.types.is_nested(field.type):
            raise OptionError(
                "sort_by",
                f"column '{one.column}' is of type {field.type}, which has no order.",
                "Sort by columns of numbers, texts, bytes, booleans, dates or times.",
            )


def in_order(rows: pa.Table, fields: Sequence[SortField]) -> pa.Table:
    """Return the rows in this order."""
    keys: list[tuple[pa.Array, str]] = []
    for one in fields:
        keys += _keys_of(column_at(rows, one.column), one)
    named = {str(number): column for number, (column, _) in enumerate(keys)}
    directions = [(str(number), direction) for number, (_, direction) in enumerate(keys)]
    return rows.take(pc.sort_indices(pa.table(named), directions))


def _keys_of(column: pa.ChunkedArray, field: SortField) -> Iterator[tuple[pa.Array, str]]:
    """Return the columns that Arrow sorts by; it puts all nulls last, in both directions."""
    if column.null_count and field.nulls_first:
        yield column.is_null(), "descending"
    values = column.combine_chunks()
    kind = values.type
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif pa.types.is_float64(kind):
        values = _ranks(values.view(pa.int64()), 2**63 - 1)
    elif pa.types.is_float32(kind):
        values = _ranks(values.view(pa.int32()), 2**31 - 1)
    yield values, "descending" if field.is_descending else "ascending"


def _ranks(bits: pa.Array, magnitude: int) -> pa.Array:
    """Return numbers in the total order of the floats with these bits."""
    mask = pa.scalar(magnitude, bits.type)
    inverted = pc.bit_wise_xor(bits, mask)
    return pc.if_else(pc.less(bits, 0), inverted, bits)
