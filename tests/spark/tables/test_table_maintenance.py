"""Maintenance of tables: the contract of the port, and the tasks, for all three kinds of table."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from penstock.spark.tables.commit.decisions import Offer
from penstock.spark.tables.commit.note import CommitCounts
from penstock.spark.tables.commit.steps import Committed, Load, Step
from penstock.spark.tables.definition.model import MaintenanceSettings
from penstock.spark.tables.files.data_files import FileReceipt
from penstock.spark.tables.files.file_partitions import PartitionField, Transform
from penstock.spark.tables.files.maintenance import DAY_MS, HOUR_MS, MaintenancePolicy
from penstock.spark.tables.files.orphans import OrphansUnclearError
from penstock.spark.tables.files.table_facts import Partition
from penstock.spark.tables.formats.delta import log as delta_log
from penstock.spark.tables.formats.delta import maintenance as delta_maintenance
from penstock.spark.tables.formats.iceberg import maintenance as iceberg_maintenance
from penstock.spark.tables.formats.port import Table
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.run.maintenance import TableMaintenance
from tests.spark.tables.table_kinds import (
    DeltaKind,
    FakeKind,
    IcebergKind,
    Kind,
    SetClock,
    batch_ranges,
    offsets_in,
    span,
    written,
)

pytestmark = pytest.mark.slow

LATER_MS = 4_000_000_000_000
MISSING = r"(?i)not found|no such file|does not exist"
SETTINGS = MaintenanceSettings(expire_snapshots_ms=HOUR_MS)
BY_NAME = (PartitionField("name"), PartitionField("_kafka_timestamp", Transform.DAY))


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture(params=[FakeKind, DeltaKind, IcebergKind], ids=["fake", "delta", "iceberg"])
def kind(request: pytest.FixtureRequest, tmp_path: Path, clock: SetClock) -> Kind:
    made: Kind = request.param(tmp_path, clock=clock)
    return made


only_real = pytest.mark.parametrize(
    "kind", [DeltaKind, IcebergKind], ids=["delta", "iceberg"], indirect=True
)


class Pipeline:
    """A driver that commits batches of ten offsets, a minute apart by its clock."""

    def __init__(
        self, kind: Kind, clock: SetClock, partitions: Sequence[PartitionField] = ()
    ) -> None:
        self.clock = clock
        self.table: Table = kind.create(partitions)
        self.committer = TableCommitter(self.table, "orders", "run-a")
        self.committer.take()
        self.at = 0

    def files(self) -> list[FileReceipt]:
        return written(self.table, (0, self.at, self.at + 10))

    def commit(self, files: Sequence[FileReceipt]) -> None:
        ranges = batch_ranges((0, self.at, self.at + 10))
        offer = Offer(self.committer.driver, ranges, CommitCounts(10))
        assert isinstance(self.committer.commit(offer, files), Committed)
        self.at += 10
        self.clock.advance(minutes=1)

    def batches(self, count: int) -> None:
        for _ in range(count):
            self.commit(self.files())


def stored(kind: Kind, *ends: str) -> set[Path]:
    """Files of rows on disk, or those that end in another way."""
    return {
        one
        for one in kind.folder.rglob("*")
        if one.is_file() and one.name.endswith(ends or ".parquet") and "_delta_log" not in one.parts
    }


def states_of(kind: Kind) -> list[list[tuple[int, int]]]:
    """The rows of each state that can be read, by the format's own reader, the oldest first."""
    if isinstance(kind, DeltaKind):
        versions = sorted(one["version"] for one in DeltaTable(kind.uri).history())
        tables = [DeltaTable(kind.uri, version=one) for one in versions]
        return [offsets_in(one.to_pyarrow_table()) for one in tables]
    assert isinstance(kind, IcebergKind)
    catalog = load_catalog("default", **kind.catalog)
    table = catalog.load_table("shop.orders")
    try:
        return [
            offsets_in(table.scan(snapshot_id=one.snapshot_id).to_arrow())
            for one in sorted(table.snapshots(), key=lambda one: one.sequence_number or 0)
        ]
    finally:
        catalog.close()


def set_times(paths: Iterable[Path], time_ms: int) -> None:
    for path in paths:
        os.utime(path, (time_ms / 1_000, time_ms / 1_000))


# --- Snapshots and expiry ---


def test_snapshots_are_counted_with_the_time_of_our_clock(kind: Kind, clock: SetClock) -> None:
    begun_ms = clock.time_ms
    pipeline = Pipeline(kind, clock)
    before = pipeline.table.snapshots()
    pipeline.batches(5)
    facts = pipeline.table.snapshots()
    assert facts.count == before.count + 5
    pipeline.table.expire(older_than_ms=begun_ms + 90_000, keep_count=1)
    assert pipeline.table.snapshots().oldest_ms == begun_ms + 120_000


def test_expiry_goes_by_age_and_keeps_the_newest(kind: Kind, clock: SetClock) -> None:
    pipeline = Pipeline(kind, clock)
    pipeline.batches(10)
    assert pipeline.table.expire(older_than_ms=0, keep_count=1).removed_count == 0
    count = pipeline.table.snapshots().count
    assert pipeline.table.expire(older_than_ms=LATER_MS, keep_count=50).removed_count == 0
    done = pipeline.table.expire(older_than_ms=LATER_MS, keep_count=3)
    assert done.removed_count == count - 3
    assert done.state == kind.open().load()
    assert pipeline.table.snapshots().count <= 4  # Delta's expiry makes an entry


@only_real
def test_expiry_removes_the_files_that_only_old_states_had(kind: Kind, clock: SetClock) -> None:
    pipeline = Pipeline(kind, clock)
    pipeline.batches(6)
    pipeline.table.compact(pipeline.table.load(), target_bytes=2**20)
    pipeline.committer.reload()
    pipeline.batches(2)
    assert len(stored(kind)) == 6 + 1 + 2
    pipeline.table.expire(older_than_ms=LATER_MS, keep_count=1)
    assert len(stored(kind)) == 3
    assert offsets_in(kind.read()) == span(0, 0, 80)
    if isinstance(kind, IcebergKind):
        assert len(stored(kind, ".avro")) <= 4  # one list and its manifests
    else:
        entries = sorted((kind.folder / "orders" / "_delta_log").glob("*.json"))
        assert len(entries) == 2


@only_real
def test_every_state_that_is_kept_can_be_read(kind: Kind, clock: SetClock) -> None:
    pipeline = Pipeline(kind, clock)
    for number in range(12):
        pipeline.batches(1)
        if number % 4 == 3:
            pipeline.table.compact(pipeline.table.load(), target_bytes=2**20)
            pipeline.committer.reload()
    for kept in (9, 7, 5, 2):
        pipeline.table.expire(older_than_ms=LATER_MS, keep_count=kept)
        states = states_of(kind)
        assert len(states) >= kept
        assert all(one == span(0, 0, len(one)) for one in states)
        assert states[-1] == span(0, 0, 120)


@only_real
def test_without_what_is_kept_an_expiry_takes_files_of_kept_states(
    kind: Kind, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard of the test before, taken away."""
    pipeline = Pipeline(kind, clock)
    pipeline.batches(8)
    pipeline.committer.compact(target_bytes=2**20, partitions=[()])
    taken_out = delta_maintenance._taken_out
    monkeypatch.setattr(
        delta_maintenance, "_taken_out", lambda log, listing, _: taken_out(log, listing, 2**60)
    )
    monkeypatch.setattr(delta_maintenance, "live_names", lambda _: set())
    monkeypatch.setattr(iceberg_maintenance, "_first_of_each_line", lambda _: [])
    pipeline.table.expire(older_than_ms=LATER_MS, keep_count=3)
    with pytest.raises(Exception, match=MISSING):
        states_of(kind)


@only_real
def test_files_that_a_rollback_restored_stay(kind: Kind, clock: SetClock) -> None:
    pipeline = Pipeline(kind, clock)
    pipeline.batches(4)
    before = pipeline.committer.state.version
    pipeline.committer.compact(target_bytes=2**20, partitions=[()])
    if isinstance(kind, DeltaKind):
        DeltaTable(kind.uri).restore(before)
    else:
        assert isinstance(kind, IcebergKind)
        catalog = load_catalog("default", **kind.catalog)
        table = catalog.load_table("shop.orders")
        table.manage_snapshots().rollback_to_snapshot(before).commit()
        catalog.close()
    again = kind.open()
    again.expire(older_than_ms=LATER_MS, keep_count=1)
    again.remove_orphans(older_than_ms=LATER_MS)
    assert offsets_in(kind.read()) == span(0, 0, 40)
    assert all(one == span(0, 0, len(one)) for one in states_of(kind))


@only_real
def test_a_crash_within_an_expiry_leaves_orphans_that_are_cleaned(
    kind: Kind, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(kind, clock)
    pipeline.batches(6)
    pipeline.table.compact(pipeline.table.load(), target_bytes=2**20)

    def crash(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(iceberg_maintenance, "_removed", crash)
    monkeypatch.setattr(delta_log.DeltaLog, "remove", crash)
    with pytest.raises(KeyboardInterrupt):
        pipeline.table.expire(older_than_ms=LATER_MS, keep_count=1)
    monkeypatch.undo()
    again = kind.open()
    again.load()
    assert len(stored(kind)) == 7
    again.expire(older_than_ms=LATER_MS, keep_count=1)
    again.remove_orphans(older_than_ms=LATER_MS)
    assert len(stored(kind)) == 1
    assert offsets_in(kind.read()) == span(0, 0, 60)


def test_a_crash_between_the_log_and_the_files_of_delta_leaves_orphans(
    tmp_path: Path, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = DeltaKind(tmp_path, clock=clock)
    pipeline = Pipeline(kind, clock)
    pipeline.batches(6)
    pipeline.table.compact(pipeline.table.load(), target_bytes=2**20)
    remove = delta_log.DeltaLog.remove

    def only_log(log: delta_log.DeltaLog, names: Iterable[str]) -> int:
        return remove(log, [one for one in names if one.startswith("_delta_log")])

    monkeypatch.setattr(delta_log.DeltaLog, "remove", only_log)
    pipeline.table.expire(older_than_ms=LATER_MS, keep_count=1)
    assert len(stored(kind)) == 7
    monkeypatch.undo()
    assert kind.open().remove_orphans(older_than_ms=LATER_MS) == 6
    assert offsets_in(kind.read()) == span(0, 0, 60)


# --- Orphans ---


@pytest.mark.parametrize("partitions", [(), BY_NAME], ids=["plain", "partitioned"])
def test_only_old_files_that_nothing_refers_to_are_removed(
    kind: Kind, clock: SetClock, partitions: Sequence[PartitionField]
) -> None:
    pipeline = Pipeline(kind, clock, partitions)
    pipeline.batches(3)
    pipeline.table.compact(pipeline.table.load(), target_bytes=2**20)
    known = stored(kind)
    set_times(known, clock.time_ms - 10 * DAY_MS)
    old = {one.path for one in pipeline.files()}
    abandoned = stored(kind) - known
    assert len(abandoned) == len(old)
    set_times(abandoned, clock.time_ms - 4 * DAY_MS)
    pipeline.files()
    young = stored(kind) - known - abandoned
    set_times(young, clock.time_ms - 2 * DAY_MS)
    removed = pipeline.table.remove_orphans(older_than_ms=clock.time_ms - 3 * DAY_MS)
    assert removed == len(abandoned)
    assert stored(kind) == known | young
    assert offsets_in(kind.read()) == span(0, 0, 30)
    if kind.name != "fake":
        assert all(one == span(0, 0, len(one)) for one in states_of(kind))


def test_metadata_of_iceberg_that_nobody_refers_to_is_removed(
    tmp_path: Path, clock: SetClock
) -> None:
    kind = IcebergKind(tmp_path, clock=clock)
    pipeline = Pipeline(kind, clock)
    pipeline.batches(3)
    known = stored(kind, ".avro", ".json")
    folder = next(iter(known)).parent
    left = [folder / "00009-left.metadata.json", folder / "left-m0.avro"]
    others = [folder / "statistics.puffin", folder / "version-hint.text"]
    for one in (*left, *others):
        one.write_bytes(b"x")
    assert pipeline.table.remove_orphans(older_than_ms=LATER_MS) == 2
    assert stored(kind, ".avro", ".json") == known
    assert all(one.exists() for one in others)


def test_files_of_an_iceberg_table_that_others_use_are_left(
    tmp_path: Path, clock: SetClock
) -> None:
    kind = IcebergKind(tmp_path, clock=clock)
    pipeline = Pipeline(kind, clock)
    catalog = load_catalog("default", **kind.catalog)
    table = catalog.load_table("shop.orders")
    table.transaction().set_properties({"gc.enabled": "false"}).commit_transaction()
    catalog.close()
    pipeline.committer.reload()
    pipeline.batches(4)
    pipeline.committer.compact(target_bytes=2**20, partitions=[()])
    pipeline.files()
    assert pipeline.committer.expire(older_than_ms=LATER_MS, keep_count=1).removed_count > 0
    assert pipeline.table.remove_orphans(older_than_ms=LATER_MS) == 0
    assert len(stored(kind)) == 4 + 1 + 1


@pytest.mark.parametrize(
    "age_ms", [MaintenancePolicy().orphan_age_ms, -HOUR_MS], ids=["guard", "none"]
)
@only_real
def test_the_age_keeps_the_files_of_a_running_batch(
    kind: Kind, clock: SetClock, age_ms: int
) -> None:
    """Another pipeline's batch runs while this one cleans; without the age its rows are lost."""
    pipeline = Pipeline(kind, clock)
    pipeline.batches(2)
    running = pipeline.files()
    set_times(stored(kind), clock.time_ms)
    other = TableCommitter(kind.open(), "backfill", "run-x")
    other.take()
    policy = MaintenancePolicy(orphan_age_ms=age_ms)
    done = TableMaintenance(other, SETTINGS, clock, policy).maintain_now()
    assert not done.problem
    pipeline.commit(running)
    if age_ms > 0:
        assert done.removed_orphans == 0
        assert offsets_in(kind.read()) == span(0, 0, 30)
    else:
        assert done.removed_orphans == 1
        with pytest.raises(Exception, match=MISSING):
            kind.read()


@only_real
def test_names_that_do_not_fit_stop_the_cleaning(
    kind: Kind, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this guard a storage with another spelling would lose everything."""
    pipeline = Pipeline(kind, clock)
    pipeline.batches(2)
    known = stored(kind)
    monkeypatch.setattr(
        "penstock.spark.tables.formats.delta.log.stored_name", lambda path: f"./{path}"
    )
    monkeypatch.setattr(iceberg_maintenance._Storage, "name", lambda _, location: f"./{location}")
    with pytest.raises(OrphansUnclearError, match="No orphan was removed"):
        pipeline.table.remove_orphans(older_than_ms=LATER_MS)
    assert stored(kind) == known


# --- Tasks ---


def test_nothing_is_due_until_the_interval_is_over(kind: Kind, clock: SetClock) -> None:
    pipeline = Pipeline(kind, clock)
    maintenance = TableMaintenance(pipeline.committer, MaintenanceSettings(), clock)
    pipeline.batches(1)
    first = maintenance.after_batch()
    assert first is not None
    assert (first.problem, first.live_files, first.compacted_files) == ("", 1, 0)
    pipeline.batches(9)
    assert maintenance.after_batch() is None
    clock.advance(minutes=1)
    done = maintenance.after_batch()
    assert done is not None
    assert (done.compacted_files, done.written_files, done.live_files) == (10, 1, 1)
    assert done.live_bytes > 0
    assert done.oldest_snapshot_ms == SetClock().time_ms
    assert offsets_in(kind.read()) == span(0, 0, 100)


def test_care_that_is_turned_off_is_only_done_when_asked(kind: Kind, clock: SetClock) -> None:
    pipeline = Pipeline(kind, clock)
    off = MaintenanceSettings(is_enabled=False)
    maintenance = TableMaintenance(pipeline.committer, off, clock)
    pipeline.batches(9)
    assert maintenance.after_batch() is None
    assert maintenance.maintain_now().compacted_files == 9


def test_the_next_batch_knows_what_the_care_committed(
    kind: Kind, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(kind, clock)
    maintenance = TableMaintenance(pipeline.committer, SETTINGS, clock)
    pipeline.batches(20)
    clock.advance(hours=2)
    done = maintenance.maintain_now()
    assert done.compacted_files == 20
    assert done.expired_snapshots > 0
    assert pipeline.committer.state == kind.open().load()

    do = TableCommitter._do

    def must_not_load(committer: TableCommitter, step: Step, batch: object) -> object:
        assert not isinstance(step, Load), "the state is known"
        return do(committer, step, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(TableCommitter, "_do", must_not_load)
    pipeline.batches(1)


@only_real
def test_partitions_are_put_together_each_for_itself(kind: Kind, clock: SetClock) -> None:
    days = (PartitionField("_kafka_timestamp", Transform.DAY),)
    pipeline = Pipeline(kind, clock, days)
    policy = MaintenancePolicy(files_min=4)
    maintenance = TableMaintenance(pipeline.committer, SETTINGS, clock, policy)
    pipeline.batches(12)  # from 22:30 on, nine of them to midnight
    done = maintenance.maintain_now()
    assert (done.problem, done.compacted_files, done.live_files) == ("", 9, 1 + 3)
    assert maintenance.maintain_now().compacted_files == 3  # a day without new files gets its rest
    assert maintenance.maintain_now().compacted_files == 0
    assert offsets_in(kind.read()) == span(0, 0, 120)


@only_real
def test_a_partition_of_nulls_is_put_together(kind: Kind, clock: SetClock) -> None:
    pipeline = Pipeline(kind, clock, (PartitionField("name"),))
    pipeline.commit(pipeline.files())
    null: Partition = (("name", None),)
    assert null in {one.partition for one in pipeline.table.live_files()}
    before = len(pipeline.table.live_files())
    pipeline.batches(2)
    done = pipeline.committer.compact(target_bytes=2**20, partitions=[null])
    assert (done.removed_count, done.added_count) == (3, 1)
    assert len(pipeline.table.live_files()) == 3 * before - 2
    assert offsets_in(kind.read()) == span(0, 0, 30)


def test_somebody_elses_commit_is_given_way_to(
    kind: Kind, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(kind, clock)
    maintenance = TableMaintenance(pipeline.committer, SETTINGS, clock)
    pipeline.batches(9)
    live_files = pipeline.table.live_files

    def and_somebody_commits() -> object:
        monkeypatch.undo()
        TableCommitter(kind.open(), "backfill", "run-x").take()
        return live_files()

    monkeypatch.setattr(pipeline.table, "live_files", and_somebody_commits)
    done = maintenance.after_batch()
    assert done is not None
    assert "TableMovedError" in done.problem
    assert done.compacted_files == 0
    pipeline.batches(1)
    assert maintenance.after_batch() is not None  # a minute later, not ten
    assert len(pipeline.table.live_files()) == 1
    assert offsets_in(kind.read()) == span(0, 0, 100)


def test_care_never_raises(kind: Kind, clock: SetClock, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline(kind, clock)
    maintenance = TableMaintenance(pipeline.committer, SETTINGS, clock)
    pipeline.batches(1)

    def broken(*_: object, **__: object) -> None:
        raise OSError("disk on fire")

    for name in ("live_files", "snapshots", "remove_orphans", "load"):
        monkeypatch.setattr(pipeline.table, name, broken)
    done = maintenance.maintain_now()
    assert done.problem == "OSError: disk on fire"
    monkeypatch.undo()
    assert maintenance.maintain_now().problem == ""
