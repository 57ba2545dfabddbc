"""A day of a pipeline in some minutes: a batch every 60 simulated seconds, and maintenance.

Real files, the real committer and the real maintenance; only the clock is set. Files, snapshots and
the cost of planning a scan must stay as in the first hours. Every half hour a batch is abandoned
after its files were written, as by a crash. Without maintenance the same bounds are exceeded.

`make crash` runs three hours, `python tools/prove.py --only table-day` the whole day.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import process_time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import clear_manifest_cache

from penstock.spark.tables.commit.decisions import Offer
from penstock.spark.tables.commit.note import CommitCounts
from penstock.spark.tables.commit.steps import Committed
from penstock.spark.tables.definition.model import MaintenanceSettings
from penstock.spark.tables.files.data_files import FileReceipt, write_files
from penstock.spark.tables.files.file_partitions import PartitionField, Transform
from penstock.spark.tables.files.maintenance import HOUR_MS, MaintenancePolicy
from penstock.spark.tables.formats.delta.maintenance import plain_properties
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.run.events import MaintenanceDone
from penstock.spark.tables.run.maintenance import TableMaintenance
from tests.spark.tables.table_kinds import (
    DeltaKind,
    IcebergKind,
    SetClock,
    batch_ranges,
    offsets_in,
    rows_of,
    span,
)

pytestmark = pytest.mark.crash

IS_PROOF = os.environ.get("PENSTOCK_PROOF") == "1"
HOURS = 24 if IS_PROOF else 3
HOURS_WITHOUT = 6 if IS_PROOF else 2
CASES = [("delta", "none"), ("iceberg", "day")]
if IS_PROOF:
    CASES += [("delta", "day"), ("iceberg", "none")]
SETTLED = 2
"""The hour after which snapshots expire: what is there then is what a table has."""
PARTITIONS = 4
ROWS = 20
"""Of a partition, in a batch."""
ABANDONED_EVERY = 30
SETTINGS = MaintenanceSettings(expire_snapshots_ms=HOUR_MS)
POLICY = MaintenancePolicy(orphan_interval_ms=HOUR_MS, orphan_age_ms=HOUR_MS)
"""As a pipeline has it, except that orphans are young: a day has no file of three days."""

LIVE_FILES_MAX = 100
"""Ten minutes of new files, and what is on its way to a larger size, in up to two partitions."""
SNAPSHOTS_MAX = 90
"""An hour, a tenth of it, and those of care."""
STORED_FILES_MAX = 1_000
"""Files of rows and of metadata, also of the snapshots that are kept."""
TOMBSTONES_MAX = 500
"""Removed files in a checkpoint of Delta, which a user may have forgotten earlier than it does."""
PLANNING_GROWTH_MAX = 1.5
"""From when the table has settled to the end."""
PLANNING_SLACK_MS = 5.0
PLANNINGS = 7


@dataclass(frozen=True)
class Hour:
    """The state of a table at the end of an hour."""

    number: int
    live_files: int
    snapshots: int
    stored_files: int
    stored_kib: int
    planning_ms: float

    def __str__(self) -> str:
        return (
            f"hour {self.number:2}: {self.live_files} live files, {self.snapshots} snapshots, "
            f"{self.stored_files} files stored ({self.stored_kib} KiB), "
            f"planning {self.planning_ms:.1f} ms of CPU"
        )


@dataclass
class Day:
    """One pipeline, and the hours it has seen."""

    kind: DeltaKind | IcebergKind
    clock: SetClock
    hours: list[Hour] = field(default_factory=list)
    cares: list[MaintenanceDone] = field(default_factory=list)

    def run(self, hours: int, fields: Sequence[PartitionField], *, is_cared_for: bool) -> None:
        self.table = self.kind.create(fields)
        if isinstance(self.kind, DeltaKind):
            set_life_of_tombstones(self.kind, self.clock)
        self.committer = TableCommitter(self.table, "orders", "run-a")
        self.committer.take()
        settings = SETTINGS if is_cared_for else MaintenanceSettings(is_enabled=False)
        maintenance = TableMaintenance(self.committer, settings, self.clock, POLICY)
        for minute in range(hours * 60):
            self._batch(minute)
            done = maintenance.after_batch()
            if done is not None:
                assert not done.problem, done.problem
                self.cares.append(done)
            if minute % 60 == 59:
                self.hours.append(self._measured(minute // 60 + 1))
                print(f"  {self.hours[-1]}", flush=True)

    def _batch(self, minute: int) -> None:
        if minute % ABANDONED_EVERY == ABANDONED_EVERY - 1:
            before = set(self._stored())
            self._files(minute)
            for path in set(self._stored()) - before:
                os.utime(path, (self.clock.time_ms / 1_000,) * 2)
        found = [(n, minute * ROWS, (minute + 1) * ROWS) for n in range(PARTITIONS)]
        counts = CommitCounts(PARTITIONS * ROWS)
        offer = Offer(self.committer.driver, batch_ranges(*found), counts)
        self.clock.advance(minutes=1)
        assert isinstance(self.committer.commit(offer, self._files(minute)), Committed)

    def _files(self, minute: int) -> list[FileReceipt]:
        layout = self.table.layout(self.table.schema())
        now = datetime.fromtimestamp(self.clock.time_ms / 1_000, UTC)
        times = pa.array([now + timedelta(seconds=n) for n in range(ROWS)]).cast(
            pa.timestamp("us", "UTC")
        )
        return [
            receipt
            for n in range(PARTITIONS)
            for receipt in write_files(
                [rows_of(n, minute * ROWS, (minute + 1) * ROWS, _kafka_timestamp=times)],
                layout,
                f"task-{n}",
            )
        ]

    def _stored(self) -> list[Path]:
        ends = (".parquet", ".json", ".avro")
        return [one for one in self.kind.folder.rglob("*") if one.name.endswith(ends)]

    def _measured(self, number: int) -> Hour:
        stored = self._stored()
        return Hour(
            number,
            len(self.table.live_files()),
            self.table.snapshots().count,
            len(stored),
            sum(one.stat().st_size for one in stored) // 1_024,
            min(self._planning_ms() for _ in range(PLANNINGS)),
        )

    def tombstones(self) -> int:
        """Removed files that a reader of a Delta table has to read of."""
        checkpoints = sorted(self.kind.folder.rglob("*.checkpoint.parquet"))
        if not checkpoints:
            return 0
        return sum(one is not None for one in pq.read_table(checkpoints[-1])["remove"].to_pylist())

    def _planning_ms(self) -> float:
        """Of CPU, from nothing to the files of a scan, by the format's own library."""
        begun = process_time()
        if isinstance(self.kind, DeltaKind):
            files = DeltaTable(self.kind.uri).file_uris()
        else:
            clear_manifest_cache()
            catalog = load_catalog("default", **self.kind.catalog)
            table = catalog.load_table("shop.orders")
            files = [task.file.file_path for task in table.scan().plan_files()]
            catalog.close()
        assert files
        return (process_time() - begun) * 1_000


def set_life_of_tombstones(kind: DeltaKind, clock: SetClock) -> None:
    """Delta's own week goes by the machine's clock, which does not see the simulated hours."""
    life = {"delta.deletedFileRetentionDuration": "interval 1 seconds"}
    DeltaTable(kind.uri).alter.set_table_properties(
        life,
        raise_if_not_exists=False,
        commit_properties=plain_properties(clock.now_ms()),
    )


def new_day(name: str, folder: Path) -> Day:
    clock = SetClock()
    kind = DeltaKind(folder, clock=clock) if name == "delta" else IcebergKind(folder, clock=clock)
    return Day(kind, clock)


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(("name", "by"), CASES)
def test_with_care_nothing_grows(name: str, by: str, tmp_path: Path) -> None:
    fields = (PartitionField("_kafka_timestamp", Transform.DAY),) if by == "day" else ()
    day = new_day(name, tmp_path)
    print(f"\n{name}, partition_by {by}, with care")
    day.run(HOURS, fields, is_cared_for=True)
    settled, last = day.hours[SETTLED - 1], day.hours[-1]
    print(
        f"{name}, partition_by {by}: {HOURS} simulated hours, {HOURS * 60} batches: at most "
        f"{max(one.live_files for one in day.hours)} live files, "
        f"{max(one.snapshots for one in day.hours)} snapshots, "
        f"{max(one.stored_files for one in day.hours)} files stored; planning "
        f"{settled.planning_ms:.1f} ms after {SETTLED} hours, {last.planning_ms:.1f} ms of CPU "
        f"at the end; {sum(one.compacted_files for one in day.cares)} files put together, "
        f"{sum(one.expired_snapshots for one in day.cares)} snapshots expired, "
        f"{sum(one.removed_orphans for one in day.cares)} orphans removed, longest care "
        f"{max(one.duration_ms for one in day.cares):.0f} ms",
        flush=True,
    )
    for hour in day.hours:
        assert hour.live_files <= LIVE_FILES_MAX
        assert hour.snapshots <= SNAPSHOTS_MAX
        assert hour.stored_files <= STORED_FILES_MAX
    assert day.tombstones() <= TOMBSTONES_MAX
    assert last.planning_ms <= settled.planning_ms * PLANNING_GROWTH_MAX + PLANNING_SLACK_MS
    expected = sorted(one for n in range(PARTITIONS) for one in span(n, 0, HOURS * 60 * ROWS))
    assert offsets_in(day.kind.read()) == expected
    abandoned = (HOURS - 2) * 60 // ABANDONED_EVERY * PARTITIONS
    assert sum(one.removed_orphans for one in day.cares) >= abandoned


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_without_care_the_bounds_are_passed(name: str, tmp_path: Path) -> None:
    day = new_day(name, tmp_path)
    print(f"\n{name}, without care")
    day.run(HOURS_WITHOUT, (), is_cared_for=False)
    first, last = day.hours[0], day.hours[-1]
    print(
        f"{name} without care: {HOURS_WITHOUT} simulated hours: {last.live_files} live files, "
        f"{last.snapshots} snapshots, {last.stored_files} files stored; planning "
        f"{first.planning_ms:.1f} ms after the first hour, {last.planning_ms:.1f} ms of CPU at "
        "the end",
        flush=True,
    )
    assert last.live_files > LIVE_FILES_MAX
    assert last.snapshots > SNAPSHOTS_MAX
    if IS_PROOF:  # in two hours Iceberg's merging of manifests outweighs the files
        assert last.planning_ms > first.planning_ms
