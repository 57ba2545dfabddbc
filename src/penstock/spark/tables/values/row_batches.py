"""Converts rows of Python values to a record batch; finds rows that Arrow rejects (pure).

Guarantees: every row is either in the batch or among the errors; the batch keeps the order.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.tables.values.parser import ErrorClass, Parsed, Reject, short

_REFUSED = (pa.ArrowException, OverflowError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Row:
    """One parsed value."""

    number: int
    """The number in the input."""
    value: object
    """The values by column name, for Arrow; None is a row of nulls."""


def batch_of(
    rows: Sequence[Row], schema: pa.Schema, schema_id: int | None = None
) -> tuple[pa.RecordBatch, list[int], list[Reject]]:
    """Return the rows, their numbers, and the rows that the schema rejects."""
    try:
        return _batch([row.value for row in rows], schema), [row.number for row in rows], []
    except _REFUSED:
        pass
    # Rare: a row passed the parser and does not fit, so try each row alone.
    batches, numbers, rejects = [], [], []
    for row in rows:
        try:
            batches.append(_batch([row.value], schema))
            numbers.append(row.number)
        except _REFUSED as error:
            message = short(f"the value does not fit to the columns: {error}")
            rejects.append(Reject(row.number, ErrorClass.TYPE_MISMATCH, message, schema_id))
    return joined(batches, schema), numbers, rejects


def null_rows(
    numbers: Sequence[int], schema: pa.Schema
) -> tuple[pa.RecordBatch, list[int], list[Reject]]:
    """Return rows of nulls for null values, or rejects if a column is required."""
    required = [field.name for field in schema if not field.nullable]
    if not required:
        nulls = [pa.nulls(len(numbers), field.type) for field in schema]
        return _with_rows(nulls, schema, len(numbers)), list(numbers), []
    message = f"the value is null, and column '{required[0]}' is required."
    rejects = [Reject(number, ErrorClass.MISSING_VALUE, message) for number in numbers]
    return _empty(schema), [], rejects


def joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return one batch from several of the same schema."""
    return pa.concat_batches(batches) if batches else _empty(schema)


def in_order(
    rows: pa.RecordBatch, numbers: Sequence[int], rejects: Sequence[Reject], count: int
) -> Parsed:
    """Return a parser's result: rows and rejects in the order of the input of `count` rows."""
    assert len(numbers) + len(rejects) == count, "a row is read or rejected"
    ordered = tuple(sorted(rejects, key=lambda one: one.row))
    places = pa.array(numbers, pa.int64())
    if any(one > other for one, other in itertools.pairwise(numbers)):
        order = pc.sort_indices(places)
        rows, places = rows.take(order), places.take(order)
    return Parsed(rows, places if ordered else None, ordered)


def _with_rows(columns: list[pa.Array], schema: pa.Schema, count: int) -> pa.RecordBatch:
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    # A batch without columns still has rows, which a struct array counts.
    return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], one.type) for one in schema], schema=schema)


def _batch(values: list[object], schema: pa.Schema) -> pa.RecordBatch:
    # Convert one array of structs: Arrow walks a list of dictionaries once, in C++.
    rows = pa.array([{} if value is None else value for value in values], pa.struct(list(schema)))
    return pa.RecordBatch.from_arrays(rows.flatten(), schema=schema)
