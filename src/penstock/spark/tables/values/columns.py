"""The columns of a table: those of the value, and the metadata of its record (pure).

Guarantees: `table_schema` returns the value's columns first and then the metadata of the record:
one struct `_kafka`, a flat column for each of its fields, or none. Rows always have the metadata
until they are written, so that rules and functions can use it. A column of a value or of a function
with a reserved name is rejected, in upper or lower case, because tables compare names without case.
`fit` converts rows to exactly the table's schema: columns in its order, narrower numbers widened,
missing columns null.
"""

from collections.abc import Collection, Iterable
from typing import Final

import pyarrow as pa

from penstock.spark.decode.buffers import HEADERS
from penstock.spark.option_values import shown
from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.definition.model import KAFKA, METADATA_FIELDS, Metadata
from penstock.spark.tables.values.nested_arrays import list_of, map_of, struct_of

_FIELDS: Final = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("key", pa.binary()),
    pa.field("headers", HEADERS),
]
assert tuple(one.name for one in _FIELDS) == METADATA_FIELDS
_STRUCT: Final = pa.schema([pa.field(KAFKA, pa.struct(_FIELDS))])
_FLAT: Final = pa.schema([one.with_name(f"{KAFKA}_{one.name}") for one in _FIELDS])
VALUE: Final = pa.field("_value", pa.binary())
"""The bytes of a record, kept with its row as long as the row may still be quarantined."""
CHANGE_PREFIX: Final = "_change_"
"""The prefix of the additional columns of rows for an upsert."""
ICEBERG_NAMES: Final = frozenset(
    {
        "_file",
        "_pos",
        "_deleted",
        "_spec_id",
        "_partition",
        "_row_id",
        "_last_updated_sequence_number",
        "_commit_snapshot_id",
    }
)
"""Iceberg's own metadata columns: `SELECT *` in Spark fails on a table that has one of them. They
are rejected for Delta too, so that a pipeline can change its format in one word."""
FEED_NAMES: Final = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})
"""Columns that Delta adds to a change data feed. A table that has one of them is no longer readable
as a feed."""
_FORMAT_NAMES: Final = ", ".join(sorted((ICEBERG_NAMES | FEED_NAMES) - {"_change_type"}))
RAW_COLUMN: Final = "value"
"""The only column of values that are not parsed."""


def metadata_columns(form: Metadata) -> pa.Schema:
    """Return the metadata of rows before they are written; with `NONE` the table has none."""
    return _FLAT if form is Metadata.FLAT else _STRUCT


def record_columns(form: Metadata) -> pa.Schema:
    """Return the columns that are needed to rebuild a whole record."""
    return pa.schema([*metadata_columns(form), VALUE])


def with_metadata_columns(value: pa.Schema, form: Metadata) -> pa.Schema:
    """Return the columns for rules and functions."""
    return pa.schema([*value, *metadata_columns(form)])


def table_schema(value: pa.Schema, form: Metadata) -> pa.Schema:
    """Return the schema of a table for such values."""
    taken = reserved_among(value.names)
    if taken is not None:
        raise SchemaError(
            "the schema of the values",
            f"the column {shown(taken)} has the name of a column that rows or the table format "
            "need.",
            f"Rename it: {KAFKA}*, {VALUE.name}, {CHANGE_PREFIX}* and {_FORMAT_NAMES} are not for "
            "values.",
        )
    return pa.schema(list(value)) if form is Metadata.NONE else with_metadata_columns(value, form)


def reserved_among(names: Iterable[str], derived: Collection[str] = ()) -> str | None:
    """Return the first of these names that is reserved; None if none is.

    `derived` are the names of columns that the table's partitions add.
    """
    taken = {VALUE.name} | {name.lower() for name in derived}
    return next(
        (
            name
            for name in names
            if name.lower() in taken or name.lower().startswith(KAFKA) or _is_of_format(name)
        ),
        None,
    )


def require_free_names(names: Iterable[str], function: str) -> None:
    """Raise `SchemaError` if a function returns a column name that an upsert or a format needs.

    `_kafka*` is allowed, unlike for values: the function gets these columns and may return them.
    """
    taken = next(filter(_is_of_format, names), None)
    if taken is not None:
        raise SchemaError(
            f"the columns that {function} returns",
            f"the column {shown(taken)} has the name of a column that upserts or the table format "
            "need.",
            f"Rename it: {CHANGE_PREFIX}* and {_FORMAT_NAMES} are not for columns of a table.",
        )


def _is_of_format(name: str) -> bool:
    lower = name.lower()
    return lower in ICEBERG_NAMES | FEED_NAMES or lower.startswith(CHANGE_PREFIX)


def with_metadata(values: pa.RecordBatch, source: pa.RecordBatch, form: Metadata) -> pa.RecordBatch:
    """Return the parsed rows with the metadata of their records."""
    assert values.num_rows == source.num_rows, "a row for each record"
    columns = [_source_column(source, one) for one in _FIELDS]
    if form is not Metadata.FLAT:
        columns = [pa.StructArray.from_arrays(columns, fields=_FIELDS)]
    schema = with_metadata_columns(values.schema, form)
    return pa.RecordBatch.from_arrays([*values.columns, *columns], schema=schema)


def _source_column(source: pa.RecordBatch, field: pa.Field) -> pa.Array:
    """Return a column of the source; the headers may not have been read."""
    if field.name not in source.schema.names:
        return pa.nulls(source.num_rows, field.type)
    return source.column(field.name)


def with_record(rows: pa.RecordBatch, source: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with the bytes of their records."""
    assert rows.num_rows == source.num_rows, "a row for each record"
    return rows.append_column(VALUE, source.column("value"))


def records_of(rows: pa.RecordBatch, form: Metadata) -> pa.RecordBatch:
    """Return the records of the rows, with the names and types of the source's columns."""
    *metadata, value = fit(rows, record_columns(form)).columns
    if form is not Metadata.FLAT:
        metadata = metadata[0].flatten()
    names = [*METADATA_FIELDS, "value"]
    return pa.RecordBatch.from_arrays([*metadata, value], names=names)


def fit(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows in this schema, which has all their columns, each as wide or wider."""
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
