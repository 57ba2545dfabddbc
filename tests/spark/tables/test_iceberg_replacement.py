"""Replaced files of an Iceberg table are found while other threads look at other manifests."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestFile, PartitionFieldSummary
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField, StringType

from penstock.spark.tables.formats.iceberg.change import Change
from penstock.spark.tables.formats.iceberg.replacement import replacement

FIELDS = ("country", "city")
SPEC = PartitionSpec(
    *(
        PartitionField(source_id=at, field_id=1000 + at, transform=IdentityTransform(), name=name)
        for at, name in enumerate(FIELDS, start=1)
    )
)


class Interrupted:
    """The summaries of a manifest; before the first one is read, another thread works."""

    def __init__(self, summaries: list[PartitionFieldSummary], other: Callable[[], object]) -> None:
        self.summaries = summaries
        self.other = other

    def __getitem__(self, index: int) -> PartitionFieldSummary:
        if index == 0:
            self.other()
        return self.summaries[index]


def summaries(*values: str) -> list[PartitionFieldSummary]:
    return [PartitionFieldSummary(False, False, value.encode(), value.encode()) for value in values]


def manifest(partitions: list[PartitionFieldSummary] | Interrupted) -> ManifestFile:
    return ManifestFile.from_args(partition_spec_id=0, partitions=partitions)


def test_manifests_are_looked_at_side_by_side(tmp_path: Path) -> None:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("shop")
    columns = Schema(
        *(NestedField(at, name, StringType()) for at, name in enumerate(FIELDS, start=1))
    )
    table = catalog.create_table("shop.orders", columns, partition_spec=SPEC)
    table.append(pa.table({"country": ["DE", "FR"], "city": ["Bonn", "Lyon"]}))
    producer = replacement(Change(table).update_snapshot())
    [task] = table.scan("country = 'DE'").plan_files()
    producer.delete_data_file(task.file)
    producer._build_delete_files_partition_predicate()
    has_removed = producer._build_manifest_evaluator(0)
    other = manifest(summaries("FR", "Lyon"))
    wanted = manifest(Interrupted(summaries("DE", "Bonn"), lambda: has_removed(other)))
    assert has_removed(wanted)
    assert not has_removed(other)
    catalog.close()
