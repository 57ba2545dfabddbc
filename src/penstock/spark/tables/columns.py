"""The columns of a table: those of the value, and those that say where a record came from (pure).

Guarantees: `table_schema` gives the value's columns first and then `METADATA`, unless those are
turned off; a value's column that has the name of one that rows get on their way is refused, in
whatever case, because tables compare names without it. `fit` gives rows exactly
the table's schema: columns in its order, narrower numbers widened, what is not there null.
"""

from collections.abc import Collection, Iterable
from typing import Final

import pyarrow as pa

from penstock.spark.decode.buffers import HEADERS
from penstock.spark.option_values import shown
from penstock.spark.tables.definition_errors import SchemaError
from penstock.spark.tables.nested_arrays import list_of, map_of, struct_of

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
CHANGE_PREFIX: Final = "_change_"
"""Of the columns that rows have beside them on their way into an upsert."""
RESERVED: Final = frozenset({*METADATA.names, *RECORD.names})
RAW_COLUMN: Final = "value"
"""The one column of values that are not parsed."""


def table_schema(value: pa.Schema, *, has_metadata: bool) -> pa.Schema:
    """The schema of a table that holds such values."""
    taken = reserved_among(value.names)
    if taken is not None:
        raise SchemaError(
            "the schema of the values",
            f"the column {shown(taken)} has the name of a column that rows have on their way.",
            f"Rename it: {', '.join(sorted(RESERVED))} and {CHANGE_PREFIX}* are not for values.",
        )
    return pa.schema([*value, *METADATA]) if has_metadata else pa.schema(list(value))


def reserved_among(names: Iterable[str], derived: Collection[str] = ()) -> str | None:
    """The first of these names that is not for values; None when all are.

    `derived` are the names of columns that the table's partitions make.
    """
    taken = RESERVED | {name.lower() for name in derived}
    return next(
        (name for name in names if name.lower() in taken or name.lower().startswith(CHANGE_PREFIX)),
        None,
    )


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
        return struct_of(column, kind, children)
    if pa.types.is_map(kind):
        return map_of(
            column,
            kind,
            lambda keys: _fitted(keys, kind.key_type),
            lambda items: _fitted(items, kind.item_type),
        )
    if pa.types.is_list(kind):
        return list_of(column, kind, lambda values: _fitted(values, kind.value_type))
    return column.cast(kind)
