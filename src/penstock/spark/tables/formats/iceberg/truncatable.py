"""Rows that a new truncated partition cannot hold, found before the partitions of a table change.

An upsert by copy on write rewrites old rows in the newest partitions. A number near the least one
of its type has no truncated value (`partition_transforms`): with such a row the upsert would fail
at each start.

Guarantees: no live row of the table has such a number. Files whose lower bound excludes it are not
opened. Of files with a lower or an unknown bound only this column is read, without deleted rows.
"""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.types import NestedField, PrimitiveType

from penstock.spark.errors import OptionError
from penstock.spark.tables.files.file_partitions import (
    PartitionField,
    Transform,
    column_at,
    field_at,
)
from penstock.spark.tables.files.partition_transforms import first_multiple, untruncatable
from penstock.spark.tables.formats.iceberg.rows import IcebergRows
from penstock.spark.tables.formats.iceberg.schema import plain_schema


def require_truncatable(table: Table, fields: Iterable[PartitionField]) -> None:
    """Raise `OptionError` if a row has no truncated value for one of these partitions."""
    for field in fields:
        value = _untruncatable_value(table, field)
        if value is not None:
            raise OptionError(
                "partition_by",
                f"column '{field.column}' of table {'.'.join(table.name())} holds {value}, and its "
                f"type has no multiple of {field.width} below it, so {field} has no partition for "
                "this row.",
                f"Use another transform, such as bucket({field.width}, {field.column}), or delete "
                "such rows, then start the pipeline again.",
            )


def _untruncatable_value(table: Table, field: PartitionField) -> int | Decimal | None:
    """Return such a value of the column; None if there is none."""
    schema = plain_schema(table.schema())
    column = field_at(schema, field.column)
    assert column is not None, "the caller requires the columns"
    if field.transform is not Transform.TRUNCATE:
        return None
    first = first_multiple(column.type, field.width)
    if first is None:
        return None
    source = table.schema().find_field(field.column)
    tasks = [one for one in table.scan().plan_files() if _may_hold_below(one.file, source, first)]
    name = field.column if field.column in schema.names else field.column.partition(".")[0]
    for rows in IcebergRows(table, [name]).batches(tasks):
        values = column_at(rows, field.column)
        if untruncatable(values, field.width) is not None:
            found: int | Decimal = pc.min(values).as_py()
            return found
    return None


def _may_hold_below(file: DataFile, source: NestedField, first: int | Decimal) -> bool:
    """Return whether the file may have a value below the first multiple, by its statistics."""
    raw = (file.lower_bounds or {}).get(source.field_id)
    if raw is None:
        null_count = (file.null_value_counts or {}).get(source.field_id, 0)
        return null_count < file.record_count
    assert isinstance(source.field_type, PrimitiveType), "a struct has no partitions"
    least: Any = from_bytes(source.field_type, raw)
    return bool(least < first)
