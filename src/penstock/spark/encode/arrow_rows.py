"""Converts Arrow arrays to the kernel's columns: casts other types, copies nothing else.

Guarantees: `rows_of` accepts the arrays that Spark sends for the columns of a Kafka sink (binary or
string, also large, view and null types, slices, null lists and null items) and returns `Rows` with
valid buffers, or raises `RowError`.

It chooses no partition and writes nothing: see `encode.kernel`.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.encode.binary_column import BinaryColumn, RowError
from penstock.spark.encode.kernel import Rows

_NO_PARTITION: Final = -1


def rows_of(
    *,
    key: pa.Array | None,
    value: pa.Array,
    headers: pa.Array | None,
    partition: pa.Array | None,
    timestamp_ms: int,
) -> Rows:
    """Return the columns; `value` defines the number of rows."""
    rows = Rows(len(value), timestamp_ms)
    for name, column in (("key", key), ("headers", headers), ("partition", partition)):
        if column is not None and len(column) != len(value):
            raise RowError(f"{len(column)} rows of `{name}` for {len(value)} of `value`")
    fill(rows.values, value)
    if key is not None:
        fill(rows.keys, key)
    if partition is not None:
        rows.set_partitions(_partitions(partition))
    if headers is not None and headers.null_count < len(headers):
        _set_headers(rows, headers)
    return rows


def fill(column: BinaryColumn, array: pa.Array) -> None:
    """Point the column to the buffers of the array."""
    if pa.types.is_null(array.type):
        return
    if not (pa.types.is_binary(array.type) or pa.types.is_string(array.type)):
        array = array.cast(pa.binary())
    validity, offsets, data = array.buffers()
    if offsets is None or len(array) == 0:
        return
    column.attach(
        memoryview(offsets).cast("B").cast("i"),
        memoryview(b"" if data is None else data).cast("B"),
        None if validity is None else memoryview(validity).cast("B"),
        array.offset,
    )


def _partitions(array: pa.Array) -> memoryview:
    """Return one number for each row, -1 for null."""
    lowest = pc.min(array).as_py()
    if lowest is not None and lowest < 0:
        raise RowError(
            f"the column `partition` has {lowest}; it must be null or the number of a partition"
        )
    return _numbers(array.cast(pa.int32()).fill_null(_NO_PARTITION))


def _set_headers(rows: Rows, headers: pa.Array) -> None:
    """Set the headers of all rows; items hidden by a null list are left out."""
    lengths = pc.list_value_length(headers).cast(pa.int32()).fill_null(0)
    names, contents = headers.flatten().flatten()
    keys, values = BinaryColumn(len(names)), BinaryColumn(len(names))
    fill(keys, names)
    fill(values, contents)
    rows.set_headers(_numbers(pc.cumulative_sum(lengths)), keys, values)


def _numbers(array: pa.Array) -> memoryview:
    """Return an array of int32 without nulls."""
    _, data = array.buffers()
    size = array.type.bit_width // 8
    start = array.offset * size
    return memoryview(data).cast("B")[start : start + len(array) * size].cast("i")
