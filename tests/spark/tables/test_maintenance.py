"""Maintenance of tables that others have created, and a table's own retention."""

from pathlib import Path

import pytest
from deltalake import DeltaTable, Schema
from pyiceberg.catalog import load_catalog

from penstock.core.clock import SystemClock
from penstock.spark.tables.commit.decisions import Offer
from penstock.spark.tables.commit.note import CommitCounts
from penstock.spark.tables.definition.model import MaintenanceSettings
from penstock.spark.tables.files.maintenance import HOUR_MS
from penstock.spark.tables.files.table_facts import Retention
from penstock.spark.tables.formats.delta.maintenance import FILES_KEY, LOG_KEY, interval_ms
from penstock.spark.tables.formats.iceberg.maintenance import AGE_KEY, COUNT_KEY
from penstock.spark.tables.formats.port import Table, TableError
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.run.maintenance import NOT_OURS, TableMaintenance
from tests.spark.tables.table_kinds import (
    SCHEMA,
    DeltaKind,
    IcebergKind,
    SetClock,
    batch_ranges,
    written,
)

pytestmark = pytest.mark.slow

DAY_MS = 24 * HOUR_MS
FORMATS = pytest.mark.parametrize("format_", ["delta", "iceberg"])


def foreign(
    folder: Path, format_: str, properties: dict[str, str], clock: SetClock
) -> DeltaKind | IcebergKind:
    """A table that somebody else has created."""
    if format_ == "delta":
        kind = DeltaKind(folder, clock=clock)
        DeltaTable.create(kind.uri, Schema.from_arrow(SCHEMA), configuration=properties)
        return kind
    own = IcebergKind(folder, clock=clock)
    with load_catalog("default", **own.catalog) as catalog:
        catalog.create_namespace("shop")
        catalog.create_table("shop.orders", SCHEMA, properties=properties)
    return own


class Writer:
    """A driver that commits ten offsets a minute by its clock, and its maintenance."""

    def __init__(self, table: Table, clock: SetClock, settings: MaintenanceSettings) -> None:
        self._committer = TableCommitter(table, "orders", "run")
        self._committer.take()
        self._clock = clock
        self._at = 0
        self.maintenance = TableMaintenance(self._committer, settings, clock)

    def commit(self) -> None:
        place = (0, self._at, self._at + 10)
        files = written(self._committer.table, place)
        offer = Offer(self._committer.driver, batch_ranges(place), CommitCounts(10))
        self._committer.commit(offer, files)
        self._at += 10
        self._clock.advance(minutes=1)


@FORMATS
def test_a_table_of_another_owner_is_left_alone(tmp_path: Path, format_: str) -> None:
    """Its snapshots were expired and its files put together without a word."""
    clock = SetClock(SystemClock().now_ms())
    table = foreign(tmp_path, format_, {}, clock).open()
    assert table.retention() == Retention(is_own=False)
    writer = Writer(table, clock, MaintenanceSettings())
    for _ in range(12):
        writer.commit()
        clock.advance(days=2)
        assert writer.maintenance.after_batch() is None
    count = table.snapshots().count
    assert writer.maintenance.maintain_now().problem == NOT_OURS
    assert table.snapshots().count == count
    assert len(table.live_files()) == 12


@FORMATS
def test_it_is_maintained_when_the_definition_asks(tmp_path: Path, format_: str) -> None:
    clock = SetClock(SystemClock().now_ms())
    writer = Writer(
        foreign(tmp_path, format_, {}, clock).open(), clock, MaintenanceSettings(is_enabled=True)
    )
    for _ in range(12):
        writer.commit()
    clock.advance(days=2)
    done = writer.maintenance.after_batch()
    assert done is not None
    assert (done.problem, done.compacted_files > 0, done.expired_snapshots > 0) == ("", True, True)


@FORMATS
def test_its_own_retention_is_respected(tmp_path: Path, format_: str) -> None:
    clock = SetClock(SystemClock().now_ms())
    week = {LOG_KEY: "interval 1 week"} if format_ == "delta" else {AGE_KEY: str(7 * DAY_MS)}
    table = foreign(tmp_path, format_, week, clock).open()
    writer = Writer(table, clock, MaintenanceSettings(is_enabled=True))
    for _ in range(12):
        writer.commit()
    clock.advance(days=6)
    done = writer.maintenance.after_batch()
    assert done is not None
    assert (done.problem, done.expired_snapshots) == ("", 0)
    clock.advance(days=2)
    done = writer.maintenance.after_batch()
    assert done is not None
    assert done.expired_snapshots > 0


@FORMATS
def test_the_number_of_snapshots_is_bounded(tmp_path: Path, format_: str) -> None:
    """The cost of a commit to an Iceberg table grows with the snapshots that it has."""
    clock = SetClock(SystemClock().now_ms())
    kind = DeltaKind(tmp_path, clock=clock) if format_ == "delta" else IcebergKind(tmp_path)
    kind.clock = clock
    writer = Writer(kind.create(), clock, MaintenanceSettings(snapshots_max=20))
    counts = []
    for _ in range(60):
        writer.commit()
        done = writer.maintenance.after_batch()
        assert done is None or done.problem == ""
        counts.append(kind.open().snapshots().count)
    assert max(counts) <= 30


def test_what_iceberg_tables_say_of_their_snapshots(tmp_path: Path) -> None:
    properties = {AGE_KEY: "5000", COUNT_KEY: "7"}
    kind = foreign(tmp_path, "iceberg", properties, SetClock())
    assert kind.open().retention() == Retention(is_own=False, age_ms_min=5000, count_min=7)


def test_what_delta_tables_say_of_their_log_and_files(tmp_path: Path) -> None:
    properties = {LOG_KEY: "interval 2 days", FILES_KEY: "interval 3 days"}
    kind = foreign(tmp_path, "delta", properties, SetClock())
    found = kind.open().retention()
    assert found == Retention(is_own=False, age_ms_min=3 * DAY_MS, file_age_ms_min=3 * DAY_MS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, 0), ("interval 1 week", 7 * DAY_MS), ("30 days", 30 * DAY_MS), ("1 day 2 hours", 26)],
)
def test_durations_of_delta(text: str | None, expected: int) -> None:
    assert interval_ms(text) == (expected * HOUR_MS if expected == 26 else expected)


@pytest.mark.parametrize("text", ["soon", "interval 1 month", "interval", "interval days 3"])
def test_a_duration_that_cannot_be_read_expires_nothing(text: str) -> None:
    with pytest.raises(TableError, match="nothing is expired"):
        interval_ms(text)


def test_tags_and_branches_stay_readable(tmp_path: Path) -> None:
    clock = SetClock(SystemClock().now_ms())
    kind = IcebergKind(tmp_path, clock=clock)
    table = kind.create()
    writer = Writer(table, clock, MaintenanceSettings(is_enabled=True, snapshots_max=10))
    for _ in range(5):
        writer.commit()
    with load_catalog("default", **kind.catalog) as catalog:
        there = catalog.load_table("shop.orders")
        current = there.current_snapshot()
        assert current is not None
        assert current.parent_snapshot_id is not None
        change = there.manage_snapshots()
        change.create_tag(current.snapshot_id, "audit").create_branch(
            current.parent_snapshot_id, "test"
        ).commit()
        ancestors = len(there.metadata.snapshots)
        for _ in range(20):
            writer.commit()
        clock.advance(days=3)
        assert writer.maintenance.maintain_now().expired_snapshots > 0
        there.refresh()
        assert there.scan(snapshot_id=current.snapshot_id).to_arrow().num_rows == 50
        assert there.scan().use_ref("test").to_arrow().num_rows == 40
        assert len(there.metadata.snapshots) >= ancestors
