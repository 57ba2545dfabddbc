"""The kinds of table that a contract is tried on: the fake, Delta and Iceberg, each from nothing.

A kind makes a table, opens further handles on it, and reads its rows in a way of its own that does
not go through the code under test.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.clock import Clock, SystemClock
from penstock.spark.tables.commit.decisions import (
    Commit,
    Driver,
    Offer,
    TableState,
    decide,
    take_over,
)
from penstock.spark.tables.commit.note import BatchRanges, CommitCounts, PartitionRange
from penstock.spark.tables.commit.stops import Stop
from penstock.spark.tables.definition.model import Upserts
from penstock.spark.tables.files.data_files import FileReceipt, write_files
from penstock.spark.tables.files.file_partitions import PartitionField
from penstock.spark.tables.formats.port import Table
from tests.spark.tables.fake_table import FakeTable, Store

SCHEMA = pa.schema(
    [
        pa.field("_kafka_topic", pa.string()),
        pa.field("_kafka_partition", pa.int32()),
        pa.field("_kafka_offset", pa.int64()),
        pa.field("_kafka_timestamp", pa.timestamp("us", "UTC")),
        pa.field("amount", pa.int32()),
        pa.field("name", pa.string()),
    ]
)
START = datetime(2026, 1, 31, 22, 30, tzinfo=UTC)


@dataclass
class SetClock:
    """A clock whose date a test sets; durations are real."""

    time_ms: int = int(START.timestamp() * 1_000)

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic(self) -> float:
        return SystemClock().monotonic()

    def advance(self, **parts: float) -> None:
        self.time_ms += int(timedelta(**parts).total_seconds() * 1_000)


class Kind(Protocol):
    """One format, in a folder of its own."""

    name: str
    folder: Path

    def create(self, partitions: Sequence[PartitionField] = ()) -> Table: ...

    def open(self) -> Table: ...

    def read(self) -> pa.Table: ...


@dataclass
class FakeKind:
    folder: Path
    name: str = "fake"
    schema: pa.Schema = SCHEMA
    clock: Clock = field(default_factory=SystemClock)
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.store = Store(str(self.folder), clock=self.clock)

    def create(self, partitions: Sequence[PartitionField] = ()) -> Table:
        return FakeTable(self.store, self.schema)

    def open(self) -> Table:
        return FakeTable(self.store, self.schema)

    def read(self) -> pa.Table:
        table = FakeTable(self.store, self.schema)
        table.load()
        parts = [pq.read_table(self.folder / one.path) for one in table.live_files()]
        return (
            pa.concat_tables(parts, promote_options="permissive")
            if parts
            else self.schema.empty_table()
        )


@dataclass
class DeltaKind:
    folder: Path
    name: str = "delta"
    schema: pa.Schema = SCHEMA
    partitions: Sequence[PartitionField] = ()
    clock: Clock = field(default_factory=SystemClock)

    @property
    def uri(self) -> str:
        return str(self.folder / "orders")

    def create(self, partitions: Sequence[PartitionField] = ()) -> Table:
        from penstock.spark.tables.formats.delta.table import DeltaLakeTable

        self.partitions = partitions
        return DeltaLakeTable.create(self.uri, self.schema, partitions=partitions, clock=self.clock)

    def open(self) -> Table:
        from penstock.spark.tables.formats.delta.table import DeltaLakeTable

        return DeltaLakeTable(self.uri, partitions=self.partitions, clock=self.clock)

    def read(self) -> pa.Table:
        from deltalake import DeltaTable

        return DeltaTable(self.uri).to_pyarrow_table()


@dataclass
class IcebergKind:
    folder: Path
    name: str = "iceberg"
    schema: pa.Schema = SCHEMA
    partitions: Sequence[PartitionField] = ()
    clock: Clock = field(default_factory=SystemClock)
    upserts: Upserts = Upserts.COPY_ON_WRITE

    @property
    def catalog(self) -> dict[str, str]:
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.folder}/catalog.db",
            "warehouse": f"file://{self.folder}/warehouse",
        }

    def create(self, partitions: Sequence[PartitionField] = ()) -> Table:
        from penstock.spark.tables.formats.iceberg.table import IcebergTable

        self.partitions = partitions
        return IcebergTable.create(
            self.catalog,
            "shop.orders",
            self.schema,
            partitions=partitions,
            clock=self.clock,
            upserts=self.upserts,
        )

    def open(self) -> Table:
        from penstock.spark.tables.formats.iceberg.table import IcebergTable

        return IcebergTable(self.catalog, "shop.orders", clock=self.clock, upserts=self.upserts)

    def read(self) -> pa.Table:
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog("default", **self.catalog)
        try:
            return catalog.load_table("shop.orders").scan().to_arrow()
        finally:
            catalog.close()


@dataclass
class MergeOnReadKind(IcebergKind):
    """Iceberg with position deletes; not another format."""

    upserts: Upserts = Upserts.MERGE_ON_READ


def rows_of(partition: int, start: int, end: int, **extra: pa.Array) -> pa.RecordBatch:
    """A record for each offset, a minute apart."""
    offsets = list(range(start, end))
    columns = {
        "_kafka_topic": pa.array(["orders"] * len(offsets)),
        "_kafka_partition": pa.array([partition] * len(offsets), pa.int32()),
        "_kafka_offset": pa.array(offsets, pa.int64()),
        "_kafka_timestamp": pa.array(
            [START + timedelta(minutes=n) for n in offsets], pa.timestamp("us", "UTC")
        ),
        "amount": pa.array([n % 7 - 3 for n in offsets], pa.int32()),
        "name": pa.array([None if n % 5 == 0 else f"name {n}" for n in offsets]),
    } | extra
    return pa.RecordBatch.from_pydict(columns)


def batch_ranges(*found: tuple[int, int, int]) -> BatchRanges:
    """(partition, start, end) each."""
    return BatchRanges(
        tuple(PartitionRange("orders", *one, 1) for one in found), {"orders": "t1"}, "c1"
    )


def written(table: Table, *found: tuple[int, int, int]) -> list[FileReceipt]:
    """Files with these offsets, as tasks write them."""
    layout = table.layout(table.schema())
    return [
        receipt
        for one in found
        for receipt in write_files([rows_of(*one)], layout, f"task-{one[0]}")
    ]


def taken(table: Table, run: str, pipeline: str = "orders") -> tuple[Driver, TableState]:
    commit = take_over(table.load(), pipeline, run)
    assert not isinstance(commit, Stop)
    state = table.append(commit, [])
    return Driver(pipeline, run, commit.note.epoch), state


def commit_of(state: TableState, driver: Driver, *found: tuple[int, int, int]) -> Commit:
    rows = sum(end - start for _, start, end in found)
    decision = decide(state, Offer(driver, batch_ranges(*found), CommitCounts(rows)))
    assert isinstance(decision, Commit), decision
    return decision


def offsets_in(table: pa.Table) -> list[tuple[int, int]]:
    """(partition, offset) of each row, in order; a double is there twice."""
    return sorted(
        zip(table["_kafka_partition"].to_pylist(), table["_kafka_offset"].to_pylist(), strict=True)
    )


def span(partition: int, start: int, end: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(start, end)]
