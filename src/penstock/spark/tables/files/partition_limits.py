"""Values that the partitions of a table cannot hold: such rows are rejects (pure).

| what | why |
| --- | --- |
| an empty text by which a Delta table is partitioned | it is how Delta spells null there |
| a number without a truncated value in its type | engines disagree about its partition |

Guarantees: a reader that skips partitions finds each of the other rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.tables.files.data_files import FileLayout
from penstock.spark.tables.files.file_partitions import (
    PartitionField,
    Transform,
    column_at,
    field_at,
)
from penstock.spark.tables.files.partition_transforms import untruncatable
from penstock.spark.tables.values.limits import empty_rejects
from penstock.spark.tables.values.parser import ErrorClass, Reject


@dataclass(frozen=True, slots=True)
class PartitionLimits:
    """The columns that a table's partitions limit."""

    filled: tuple[str, ...] = ()
    """Columns in which the table cannot hold an empty text."""
    truncated: tuple[PartitionField, ...] = ()
    """Truncated columns."""

    def __bool__(self) -> bool:
        return bool(self.filled or self.truncated)


NO_LIMITS: Final = PartitionLimits()


def limits_of(layout: FileLayout) -> PartitionLimits:
    """Return the limits of a table whose files have this layout."""
    cut = tuple(one for one in layout.partitions if one.transform is Transform.TRUNCATE)
    return PartitionLimits(tuple(sorted(layout.left_out)), cut)


def partition_rejects(rows: pa.RecordBatch, limits: PartitionLimits) -> list[Reject]:
    """Return the rows that no partition can hold, by their numbers."""
    found = {one.row: one for one in _untruncatable_rejects(rows, limits)}
    found.update((one.row, one) for one in empty_rejects(rows, limits.filled))
    return list(found.values())


def _untruncatable_rejects(rows: pa.RecordBatch, limits: PartitionLimits) -> Iterator[Reject]:
    for field in limits.truncated:
        if field_at(rows.schema, field.column) is None:
            continue
        column = column_at(rows, field.column)
        mask = untruncatable(column, field.width)
        if mask is None:
            continue
        for number in pc.indices_nonzero(mask).to_pylist():
            yield Reject(
                number,
                ErrorClass.TYPE_MISMATCH,
                f"column '{field.column}' holds {column[number].as_py()}, and the table is "
                f"partitioned by {field}: the type {column.type} has no multiple of {field.width} "
                "below it. Produce a greater number or null.",
            )
