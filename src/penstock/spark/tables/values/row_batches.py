"""Converts rows of Python values to a record batch; finds rows that Arrow rejects (pure).

Guarantees: every row is either in the batch or among the errors; the batch keeps the order.
"""

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.tables.values.parser import ErrorClass, Parsed, Reject, RowError, short

_REFUSED: Final = (pa.ArrowException, OverflowError, TypeError, ValueError)
Value = TypeVar("Value")
_NO_NUMBERS: Final = pa.array([], pa.int64())
_ROW: Final = operator.attrgetter("row")


def read_each(
    values: Iterable[tuple[int, Value]],
    read: Callable[[Value], object],
    schema: pa.Schema,
    schema_id: int | None = None,
) -> Parsed:
    """Read values with these numbers one by one.

    `read` returns the values by column name, for Arrow, and None for a row of nulls; it raises
    `RowError`.
    """
    rows: list[object] = []
    numbers: list[int] = []
    rejects: list[Reject] = []
    for number, value in values:
        try:
            rows.append(read(value))
        except RowError as error:
            rejects.append(Reject(number, error.error, short(error.message), schema_id))
        else:
            numbers.append(number)
    try:
        batch = _batch(rows, schema)
    except _REFUSED:
        batch, numbers, refused = _each_alone(rows, numbers, schema, schema_id)
        rejects += refused
    return Parsed(batch, pa.array(numbers, pa.int64()), tuple(rejects))


def _each_alone(
    rows: Sequence[object], numbers: Sequence[int], schema: pa.Schema, schema_id: int | None
) -> tuple[pa.RecordBatch, list[int], list[Reject]]:
    """Convert each row alone: rarely, a row passes its parser and does not fit."""
    batches, fitting, rejects = [], [], []
    for number, row in zip(numbers, rows, strict=True):
        try:
            batches.append(_batch([row], schema))
            fitting.append(number)
        except _REFUSED as error:
            message = short(f"the value does not fit to the columns: {error}")
            rejects.append(Reject(number, ErrorClass.TYPE_MISMATCH, message, schema_id))
    return joined(batches, schema), fitting, rejects


def null_rows(numbers: pa.Array, schema: pa.Schema) -> Parsed:
    """Return rows of nulls for null values, or rejects if a column is required."""
    required = [field.name for field in schema if not field.nullable]
    if not required:
        nulls = [pa.nulls(len(numbers), field.type) for field in schema]
        return Parsed(_with_rows(nulls, schema, len(numbers)), numbers)
    message = f"the value is null, and column '{required[0]}' is required."
    rejects = (Reject(one, ErrorClass.MISSING_VALUE, message) for one in numbers.to_pylist())
    return Parsed(joined([], schema), _NO_NUMBERS, tuple(rejects))


def in_place(parsed: Parsed, numbers: pa.Array | None) -> Parsed:
    """Return the result of some values; `numbers` are their places in the input, None: all."""
    if numbers is None:
        return parsed
    places = numbers if parsed.row_numbers is None else numbers.take(parsed.row_numbers)
    rejects = tuple(one._replace(row=numbers[one.row].as_py()) for one in parsed.rejects)
    return Parsed(parsed.rows, places, rejects)


def together(parts: Sequence[Parsed], schema: pa.Schema, count: int) -> Parsed:
    """Return all parts of an input of `count` values, each value in one of them, in its order."""
    rejects = tuple(sorted((one for part in parts for one in part.rejects), key=_ROW))
    filled = [part for part in parts if part.rows.num_rows]
    if len(filled) == 1:
        rows, numbers = filled[0].rows, filled[0].row_numbers
    else:
        rows = joined([part.rows for part in filled], schema)
        numbers = pa.concat_arrays([_NO_NUMBERS, *(part.row_numbers for part in filled)])
        order = pc.sort_indices(numbers)
        rows, numbers = rows.take(order), numbers.take(order)
    assert rows.num_rows + len(rejects) == count, "a row is read or rejected"
    return Parsed(rows, numbers if rejects else None, rejects)


def joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return one batch from several of the same schema."""
    return pa.concat_batches(batches) if batches else _empty(schema)


def _with_rows(columns: list[pa.Array], schema: pa.Schema, count: int) -> pa.RecordBatch:
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    # A batch without columns still has rows, which a struct array counts.
    return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], one.type) for one in schema], schema=schema)


def _batch(values: Sequence[object], schema: pa.Schema) -> pa.RecordBatch:
    # Convert one array of structs: Arrow walks a list of dictionaries once, in C++.
    rows = pa.array([{} if value is None else value for value in values], pa.struct(list(schema)))
    return pa.RecordBatch.from_arrays(rows.flatten(), schema=schema)
