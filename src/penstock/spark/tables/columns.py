"""The columns of a table: those of the value, and those that say where a record came from (pure).

Guarantees: `table_schema` gives the value's columns first and then `METADATA`, unless those are
turned off; a value's column that has the name of one of them is refused. `fit` gives rows exactly
the table's schema: columns in its order, narrower numbers widened, what is not there null.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.decode.buffers import HEADERS
from penstock.spark.option_values import shown
from penstock.spark.tables.definition_errors import SchemaError

METADATA: Final = pa.schema(
    [
        pa.field("_topic", pa.string()),
        pa.field("_partition", pa.int32()),
        pa.field("_offset", pa.int64()),
        pa.field("_timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("_key", pa.binary()),
    ]
)
"""Where a row came from; each is named after the column of the source that it is a copy of."""
TIMESTAMP: Final = METADATA.names[3]
RECORD: Final = pa.schema([pa.field("_value", pa.binary()), pa.field("_headers", HEADERS)])
"""The rest of a record, beside its row for as long as the row may still be quarantined."""
RAW_COLUMN: Final = "value"
"""The one column of values that are not parsed."""


def table_schema(value: pa.Schema, *, has_metadata: bool) -> pa.Schema:
    """The schema of a table that holds such values."""
    reserved = {*METADATA.names, *RECORD.names}
    for name in value.names:
        if name.lower() in reserved:
            raise SchemaError(
                "the schema of the values",
                f"the column {shown(name)} has the name of a column that rows have on their way.",
                f"Rename it: {', '.join(sorted(reserved))} are not for values.",
            )
    return pa.schema([*value, *METADATA]) if has_metadata else pa.schema(list(value))


def with_metadata(values: pa.RecordBatch, source: pa.RecordBatch) -> pa.RecordBatch:
    """The parsed rows beside the metadata of the records that they were parsed from."""
    assert values.num_rows == source.num_rows, "a row for each record"
    columns = [source.column(name.removeprefix("_")) for name in METADATA.names]
    return pa.RecordBatch.from_arrays(
        [*values.columns, *columns], schema=pa.schema([*values.schema, *METADATA])
    )


def with_record(rows: pa.RecordBatch, source: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with the bytes that they were parsed from."""
    assert rows.num_rows == source.num_rows, "a row for each record"
    columns = [source.column(name.removeprefix("_")) for name in RECORD.names]
    return pa.RecordBatch.from_arrays(
        [*rows.columns, *columns], schema=pa.schema([*rows.schema, *RECORD])
    )


def fit(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows in this schema, which has all their columns, each as wide or wider."""
    return pa.RecordBatch.from_arrays(
        [_fitted_column(rows, field) for field in schema], schema=schema
    )


def _fitted_column(rows: pa.RecordBatch, field: pa.Field) -> pa.Array:
    number = rows.schema.get_field_index(field.name)
    if number < 0:
        return pa.nulls(rows.num_rows, field.type)
    return _fitted(rows.column(number), field.type)


def _fitted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if pa.types.is_struct(kind):
        inner = {
            column.type.field(number).name: child for number, child in enumerate(column.flatten())
        }
        children = [
            _fitted(inner[one.name], one.type)
            if one.name in inner
            else pa.nulls(len(column), one.type)
            for one in kind
        ]
        return pa.StructArray.from_arrays(
            children, fields=list(kind), mask=column.is_null() if column.null_count else None
        )
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        return _fitted_list(column, kind)
    return column.cast(kind)


def _fitted_list(column: pa.Array, kind: pa.DataType) -> pa.Array:
    is_map = pa.types.is_map(kind)
    # A map is a list of entries, which Arrow has more functions for.
    entries = column.cast(_entries_type(column.type)) if is_map else column
    mask = column.is_null() if column.null_count else None
    # From lengths, not from offsets: a slice has offsets that do not begin at zero.
    lengths = pc.fill_null(pc.list_value_length(entries), 0).cast(pa.int32())
    starts = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    values = entries.flatten()
    if not is_map:
        fitted = _fitted(values, kind.value_type)
        return pa.ListArray.from_arrays(starts, fitted, type=kind, mask=mask)
    return pa.MapArray.from_arrays(
        starts,
        _fitted(values.field(0), kind.key_type),
        _fitted(values.field(1), kind.item_type),
        type=kind,
        mask=mask,
    )


def _entries_type(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
