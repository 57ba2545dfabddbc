"""The columns of a Delta table: those of its rows, and those of its partitions (pure).

Delta has no transforms and no partitions by fields of structs, so a partition by day, hour, month
or field is a separate column, named `<column>_day` and so on. Its values are from the partition and
never from a row: a column of the rows that has its name is rejected (`require_partitionable`).
"""

from collections.abc import Sequence

import pyarrow as pa

from penstock.spark.tables.files.file_partitions import (
    PartitionField,
    Transform,
    derived_names,
    field_at,
    text_of,
    values_of,
)
from penstock.spark.tables.formats.port import SchemaRefusedError
from penstock.spark.tables.values.schema_changes import Incompatible, change_of


def derived_fields(partitions: Sequence[PartitionField], schema: pa.Schema) -> list[pa.Field]:
    """Return the columns that these partitions add to rows with this schema."""
    return [pa.field(one.name, _derived_type(one, schema)) for one in partitions if one.is_derived]


def derived_column(column: pa.Array, field: PartitionField) -> pa.Array:
    """Return the values of a partition's own column: dates, or texts."""
    values = values_of(column, field.transform)
    if field.transform is Transform.IDENTITY:
        return values
    if field.transform is Transform.DAY:
        return values.cast(pa.date32())
    encoded = values.dictionary_encode()
    texts = [text_of(one, field.transform) for one in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)


def columns_to_add(
    held: pa.Schema, wanted: pa.Schema, partitions: Sequence[PartitionField]
) -> pa.Schema:
    """Return the columns that a table needs for such rows; raise if it cannot get them.

    `held` are its columns without those of partitions.
    """
    reserved = {name.lower() for name in derived_names(partitions)}
    more = []
    for field in wanted:
        if field.name.lower() in reserved:
            raise SchemaRefusedError(
                f"column '{field.name}' has the name of a column that a partition of the Delta "
                "table has added, which would be read in its place. Rename the column, or name "
                "another table."
            )
        index = held.get_field_index(field.name)
        if index < 0:
            more.append(pa.field(field.name, field.type))
        elif not _is_same_type(held.field(index).type, field.type):
            more.append(_grown(held.field(index), field))
    return pa.schema(more)


def _grown(held: pa.Field, field: pa.Field) -> pa.Field:
    """Return the column with the additional fields inside."""
    change = change_of(pa.schema([held]), pa.schema([field]), may_widen=False)
    if isinstance(change, Incompatible):
        raise SchemaRefusedError(
            f"column '{field.name}' is {held.type} in the Delta table and {field.type} in the new "
            f"schema: {' '.join(change.reasons)[:500]} Give the column its widest type when the "
            "table is created, or name another table."
        )
    return change.schema.field(0)


def _derived_type(field: PartitionField, schema: pa.Schema) -> pa.DataType:
    if field.transform is Transform.IDENTITY:
        found = field_at(schema, field.column)
        assert found is not None, "the partitions were checked"
        return found.type
    return pa.date32() if field.transform is Transform.DAY else pa.string()


def _is_same_type(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether Delta has the same type: one unit of time, and only signed numbers."""
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(other):
        return (one.tz is None) == (other.tz is None)
    return bool(one == other)
