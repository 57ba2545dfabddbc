"""Converts receipts to entries of Iceberg's manifests, and chooses the files to compact.

Statistics are from the Parquet footer in the receipt, by pyiceberg's own rules, so nothing is read
again. A compaction chooses files of one partition that are well below the target, and reads a
bounded number of bytes so that it ends soon; the next one continues.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, Final

from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    pyarrow_to_schema,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, TimestampType, TimestamptzType

from penstock.spark.tables.files.data_files import FileReceipt
from penstock.spark.tables.files.file_partitions import PartitionValue
from penstock.spark.tables.files.maintenance import SMALL_SHARE, is_worn
from penstock.spark.tables.formats.iceberg.arrangement import sort_of
from penstock.spark.tables.formats.iceberg.rows import READ_FORMATS
from penstock.spark.tables.formats.port import LayoutChangedError

COMPACTION_BYTES_MAX: Final = 512 * 2**20
"""The maximum bytes read by one compaction: some seconds, during which nothing is committed."""
_EPOCH: Final = date(1970, 1, 1)


def data_files(
    receipts: Iterable[FileReceipt], metadata: TableMetadata, schema: Schema, directory: str
) -> list[DataFile]:
    """Return the files as entries of a manifest; `schema` is the one of their commit."""
    plan = compute_statistics_plan(schema, metadata.properties)
    mapping = parquet_path_to_id_mapping(schema)
    sort = sort_of(metadata)
    return [
        DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{directory}/{one.path}",
            file_format=FileFormat.PARQUET,
            partition=Record(*map(_stored, one.partition)),
            file_size_in_bytes=one.size_bytes,
            # An unsorted file has no sort order id, whatever the table's order is.
            sort_order_id=metadata.default_sort_order_id if one.sort and one.sort == sort else None,
            spec_id=metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **_statistics(one, plan, mapping),
        )
        for one in receipts
    ]


def _statistics(
    receipt: FileReceipt, plan: Mapping[int, StatisticsCollector], mapping: dict[str, int]
) -> dict[str, Any]:
    """Return statistics by pyiceberg's rules, without bounds for NaN and times outside Python's.

    Bounds in Iceberg do not include NaN. Spark sorts it above all numbers, and would skip it.
    """
    nan_counts = {mapping[path]: count for path, count in receipt.nan_counts}
    nothing = MetricsMode(MetricModeTypes.NONE)
    chosen = {
        number: replace(one, mode=nothing) if nan_counts.get(number) else one
        for number, one in plan.items()
    }
    metadata = receipt.metadata()
    try:
        found = data_file_statistics_from_parquet_metadata(metadata, chosen, mapping)
    except OverflowError:  # a time outside of Python's years, from another writer's file
        counts = MetricsMode(MetricModeTypes.COUNTS)
        for number, one in chosen.items():
            if isinstance(one.iceberg_type, DateType | TimestampType | TimestamptzType):
                chosen[number] = replace(one, mode=counts)
        found = data_file_statistics_from_parquet_metadata(metadata, chosen, mapping)
    found.nan_value_counts.update(nan_counts)
    return found.to_serialized_dict()


def require_fitting(
    receipts: Iterable[FileReceipt], schema: Schema, partition_names: Sequence[str]
) -> None:
    """Raise `LayoutChangedError` if files were written for other columns or partitions.

    Ids of new columns are planned before the files are written. If another writer adds a column in
    the meantime, it gets the id, and the file's values would be read as that column. Values of
    other partitions would hide rows from queries.
    """
    wanted = parquet_path_to_id_mapping(schema)
    for receipt in receipts:
        if receipt.partition_names != tuple(partition_names):
            raise LayoutChangedError(
                f"{receipt.path} was written for partitions {list(receipt.partition_names)}, and "
                f"the table has {list(partition_names)} by now"
            )
        optional = {one.name for one in _schema_of(receipt).fields if not one.required}
        for name in (one.name for one in schema.fields if one.required):
            if name in optional:
                raise LayoutChangedError(
                    f"column '{name}' was written as one that may be null, and the table requires "
                    "it by now"
                )
        for path, found in _ids_of(receipt).items():
            if wanted.get(path) != found:
                raise LayoutChangedError(
                    f"column '{path}' was written with id {found}, and the table has "
                    f"{wanted.get(path)}: its schema was changed meanwhile"
                )


def _ids_of(receipt: FileReceipt) -> dict[str, int]:
    """Return the ids of all columns with values, by their paths in Parquet."""
    return dict(parquet_path_to_id_mapping(_schema_of(receipt)))


def _schema_of(receipt: FileReceipt) -> Schema:
    return pyarrow_to_schema(receipt.metadata().schema.to_arrow_schema())


def _stored(value: PartitionValue) -> PartitionValue:
    return (value - _EPOCH).days if isinstance(value, date) else value


def groups_to_merge(
    tasks: Iterable[tuple[FileScanTask, int]], spec_id: int, target_bytes: int
) -> list[list[FileScanTask]]:
    """Return groups of files to rewrite; each file has the number of its deleted rows.

    Small files are merged: two or more, of one partition, up to the target in all. A file with many
    deleted rows is rewritten alone.
    """
    by_partition: dict[Record, list[FileScanTask]] = {}
    worn: list[FileScanTask] = []
    for task, deleted in tasks:
        file = task.file
        if file.spec_id != spec_id or file.file_format not in READ_FORMATS:
            continue
        if is_worn(file.record_count - deleted, deleted):
            worn.append(task)
        elif file.file_size_in_bytes < target_bytes * SMALL_SHARE:
            by_partition.setdefault(file.partition, []).append(task)
    groups: list[list[FileScanTask]] = []
    budget = COMPACTION_BYTES_MAX
    for task in worn:
        if task.file.file_size_in_bytes <= budget or not groups:
            groups.append([task])
            budget -= task.file.file_size_in_bytes
    for found in by_partition.values():
        # By size: if any two fit together, the two smallest do.
        found.sort(key=lambda one: one.file.file_size_in_bytes)
        for group in _packed(found, target_bytes):
            size = sum(one.file.file_size_in_bytes for one in group)
            if len(group) > 1 and size <= budget:
                groups.append(group)
                budget -= size
    return groups


def _packed(tasks: Sequence[FileScanTask], target_bytes: int) -> list[list[FileScanTask]]:
    groups: list[list[FileScanTask]] = [[]]
    size = 0
    for task in tasks:
        if groups[-1] and size + task.file.file_size_in_bytes > target_bytes:
            groups.append([])
            size = 0
        groups[-1].append(task)
        size += task.file.file_size_in_bytes
    return groups
