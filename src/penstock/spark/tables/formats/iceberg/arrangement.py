"""The arrangement of rows in an Iceberg table's files: partition specs and sort orders.

A table has one default spec and one default sort order, for new files. Older ones stay in its
metadata, and each file names its own. So a change of the arrangement is a change of metadata alone.
A partition field that the table had before keeps its id and its name.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField as IcebergPartitionField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import (
    UNSORTED_SORT_ORDER,
    NullOrder,
    SortDirection,
    SortOrder,
)
from pyiceberg.table.sorting import SortField as IcebergSortField
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSortOrderUpdate,
    AssertDefaultSortOrderId,
    AssertLastAssignedPartitionId,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.transforms import Transform as IcebergTransform

from penstock.spark.tables.files.file_order import SortField
from penstock.spark.tables.files.file_partitions import PartitionField, Transform, text_of
from penstock.spark.tables.files.table_facts import Partition
from penstock.spark.tables.formats.port import Arrangement, TableError

_TIMES: Final[dict[Transform, type]] = {
    Transform.IDENTITY: IdentityTransform,
    Transform.HOUR: HourTransform,
    Transform.DAY: DayTransform,
    Transform.MONTH: MonthTransform,
    Transform.YEAR: YearTransform,
}
"""The transforms without a number."""
NEWEST: Final = -1
"""The id of the spec or the order that the same commit adds."""
_PARTITION_ID_FIRST: Final = 1000
"""The first id of Iceberg's partition fields."""


def new_spec(schema: Schema, fields: Sequence[PartitionField]) -> PartitionSpec:
    """Return the partitioning of a new table."""
    return PartitionSpec(
        *(
            IcebergPartitionField(
                source_id=schema.find_field(one.column).field_id,
                field_id=_PARTITION_ID_FIRST + number,
                transform=_stored_transform(one),
                name=one.name,
            )
            for number, one in enumerate(fields)
        )
    )


def new_sort_order(schema: Schema, fields: Sequence[SortField]) -> SortOrder:
    """Return the sort order of a new table."""
    return SortOrder(*_sort_fields(schema, fields)) if fields else UNSORTED_SORT_ORDER


def _stored_transform(field: PartitionField) -> IcebergTransform[Any, Any]:
    if field.transform is Transform.BUCKET:
        return BucketTransform(num_buckets=field.width)
    if field.transform is Transform.TRUNCATE:
        return TruncateTransform(width=field.width)
    stored: IcebergTransform[Any, Any] = _TIMES[field.transform]()
    return stored


def _sort_fields(schema: Schema, fields: Sequence[SortField]) -> list[IcebergSortField]:
    return [
        IcebergSortField(
            source_id=schema.find_field(one.column).field_id,
            transform=IdentityTransform(),
            direction=SortDirection.DESC if one.is_descending else SortDirection.ASC,
            null_order=NullOrder.NULLS_FIRST if one.nulls_first else NullOrder.NULLS_LAST,
        )
        for one in fields
    ]


def fields_of(table: Table) -> tuple[PartitionField, ...]:
    """Return the table's partitioning; raise `TableError` if Penstock cannot write it."""
    schema = table.schema()
    return tuple(
        PartitionField(_path_of(schema, one.source_id), *_transform_of(one.transform, table))
        for one in table.spec().fields
    )


def _path_of(schema: Schema, field_id: int) -> str:
    path = schema.find_column_name(field_id)
    assert path is not None, "a partition is of a column that the table has"
    return path


def _transform_of(transform: IcebergTransform[Any, Any], table: Table) -> tuple[Transform, int]:
    """Return the transform and its number."""
    if isinstance(transform, BucketTransform):
        return Transform.BUCKET, transform.num_buckets
    if isinstance(transform, TruncateTransform):
        return Transform.TRUNCATE, transform.width
    for known, kind in _TIMES.items():
        if isinstance(transform, kind):
            return known, 0
    raise TableError(
        f"table {'.'.join(table.name())} is partitioned by {transform}, which Penstock does not "
        "write. Change the table's partitions, which Iceberg does without writing data again, or "
        "name another table."
    )


def sort_of(metadata: TableMetadata) -> tuple[SortField, ...]:
    """Return the default sort order; nothing if it has transforms, so that files are unsorted."""
    order = metadata.sort_order_by_id(metadata.default_sort_order_id)
    schema = metadata.schema()
    found = []
    for one in () if order is None else order.fields:
        path = schema.find_column_name(one.source_id)
        if path is None or not isinstance(one.transform, IdentityTransform):
            return ()
        found.append(
            SortField(
                path,
                one.direction is SortDirection.DESC,
                one.null_order is NullOrder.NULLS_FIRST,
            )
        )
    return tuple(found)


def partition_reader(table: Table) -> Callable[[DataFile], Partition]:
    """Return a function that returns the partition of a file, as text."""
    fields = fields_of(table)
    names = [one.name for one in table.spec().fields]
    spec_id = table.spec().spec_id

    def partition_of(file: DataFile) -> Partition:
        if file.spec_id != spec_id:  # from before the table's partitioning changed
            return (("partition spec", str(file.spec_id)), ("partition", str(file.partition)))
        return tuple(
            (name, text_of(file.partition[number], field.transform))
            for number, (name, field) in enumerate(zip(names, fields, strict=True))
        )

    return partition_of


def changes_for(
    table: Table, wanted: Arrangement
) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Return the updates of metadata after which new files have this arrangement."""
    updates: list[TableUpdate] = []
    requirements: list[TableRequirement] = []
    metadata = table.metadata
    if set(fields_of(table)) != set(wanted.partitions):
        updates += _spec_updates(metadata, wanted.partitions)
        requirements.append(
            AssertLastAssignedPartitionId.model_validate(
                {"last-assigned-partition-id": metadata.last_partition_id}
            )
        )
    if sort_of(metadata) != wanted.sort:
        updates += _sort_updates(metadata, wanted.sort)
        requirements.append(
            AssertDefaultSortOrderId.model_validate(
                {"default-sort-order-id": metadata.default_sort_order_id}
            )
        )
    return tuple(updates), tuple(requirements)


def _spec_updates(
    metadata: TableMetadata, fields: Sequence[PartitionField]
) -> Iterator[TableUpdate]:
    schema = metadata.schema()
    before = {
        (one.source_id, str(one.transform)): one
        for spec in metadata.specs().values()
        for one in spec.fields
    }
    next_id = max(metadata.last_partition_id or 0, _PARTITION_ID_FIRST - 1) + 1
    found = []
    for field in new_spec(schema, fields).fields:
        held = before.get((field.source_id, str(field.transform)))
        if held is None:
            held = field.model_copy(update={"field_id": next_id})
            next_id += 1
        found.append(held)
    spec = PartitionSpec(*found, spec_id=max(metadata.specs()) + 1)
    for one in metadata.specs().values():
        if one.compatible_with(spec):
            yield SetDefaultSpecUpdate.model_validate({"spec-id": one.spec_id})
            return
    yield AddPartitionSpecUpdate(spec=spec)
    yield SetDefaultSpecUpdate.model_validate({"spec-id": NEWEST})


def _sort_updates(metadata: TableMetadata, fields: Sequence[SortField]) -> Iterator[TableUpdate]:
    wanted = _sort_fields(metadata.schema(), fields)
    for one in metadata.sort_orders:
        if one.fields == wanted:
            yield SetDefaultSortOrderUpdate.model_validate({"sort-order-id": one.order_id})
            return
    number = max((one.order_id for one in metadata.sort_orders), default=0) + 1
    order = SortOrder(*wanted, order_id=number) if wanted else UNSORTED_SORT_ORDER
    yield AddSortOrderUpdate.model_validate({"sort-order": order})
    newest = NEWEST if wanted else order.order_id
    yield SetDefaultSortOrderUpdate.model_validate({"sort-order-id": newest})
