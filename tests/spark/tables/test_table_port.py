"""The contract of `Table`, held by the fake, by Delta and by Iceberg."""

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.spark.errors import OptionError
from penstock.spark.tables.commit.decisions import Commit, Offer, decide, take_over
from penstock.spark.tables.commit.note import BatchRanges, CommitCounts, PartitionRange
from penstock.spark.tables.commit.stops import Stop, StopReason
from penstock.spark.tables.files.data_files import write_files
from penstock.spark.tables.files.file_partitions import PartitionField, Transform
from penstock.spark.tables.formats.port import SchemaRefusedError, TableMovedError
from tests.spark.tables.table_kinds import (
    SCHEMA,
    DeltaKind,
    FakeKind,
    IcebergKind,
    Kind,
    MergeOnReadKind,
    batch_ranges,
    commit_of,
    offsets_in,
    rows_of,
    span,
    taken,
    written,
)

pytestmark = pytest.mark.slow

LATER_MS = 4_000_000_000_000


@pytest.fixture(
    params=[FakeKind, DeltaKind, IcebergKind, MergeOnReadKind],
    ids=["fake", "delta", "iceberg", "merge_on_read"],
)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    made: Kind = request.param(tmp_path)
    return made


def test_a_new_table_holds_nothing(kind: Kind) -> None:
    table = kind.create()
    assert table.load().notes == {}
    assert table.schema().names == SCHEMA.names
    assert table.live_files() == []
    assert offsets_in(kind.read()) == []


def test_files_and_note_come_together(kind: Kind) -> None:
    table = kind.create()
    driver, state = taken(table, "run-a")
    commit = commit_of(state, driver, (0, 0, 10), (1, 5, 8))
    after = table.append(commit, written(table, (0, 0, 10), (1, 5, 8)))
    assert after.notes["orders"] == commit.note
    assert offsets_in(kind.read()) == span(0, 0, 10) + span(1, 5, 8)
    assert sum(one.row_count for one in table.live_files()) == 13
    reopened = kind.open()
    assert reopened.load() == after
    assert reopened.live_files() == table.live_files()


def test_a_commit_without_files_moves_the_position(kind: Kind) -> None:
    table = kind.create()
    driver, state = taken(table, "run-a")
    after = table.append(commit_of(state, driver, (0, 0, 10)), [])
    assert kind.open().load().positions_of("orders") == after.positions_of("orders")
    assert list(after.positions_of("orders").values()) == [10]


def test_a_commit_follows_a_commit_without_reading(kind: Kind) -> None:
    table = kind.create()
    driver, state = taken(table, "run-a")
    for start in range(0, 50, 10):
        commit = commit_of(state, driver, (0, start, start + 10))
        state = table.append(commit, written(table, (0, start, start + 10)))
    assert offsets_in(kind.read()) == span(0, 0, 50)
    assert kind.open().load() == state


def test_of_two_committers_with_the_same_knowledge_one_is_refused(kind: Kind) -> None:
    first = kind.create()
    driver, _ = taken(first, "run-a")
    second = kind.open()
    files = written(first, (0, 0, 10))
    commit_1 = commit_of(first.load(), driver, (0, 0, 10))
    commit_2 = commit_of(second.load(), driver, (0, 0, 10))
    state = first.append(commit_1, files)
    with pytest.raises(TableMovedError):
        second.append(commit_2, written(second, (0, 0, 10)))
    assert offsets_in(kind.read()) == span(0, 0, 10)
    assert second.load() == state


def test_a_zombie_with_an_old_handle_is_refused_and_one_that_looks_is_stopped(kind: Kind) -> None:
    zombie = kind.create()
    driver, state = taken(zombie, "run-a")
    late = commit_of(state, driver, (0, 0, 10))
    files = written(zombie, (0, 0, 10))
    successor = kind.open()
    new_driver, new_state = taken(successor, "run-b")
    assert new_driver.epoch == driver.epoch + 1
    with pytest.raises(TableMovedError):
        zombie.append(late, files)
    decision = decide(zombie.load(), Offer(driver, batch_ranges((0, 0, 10))))
    assert isinstance(decision, Stop)
    assert decision.reason is StopReason.FENCED
    successor.append(commit_of(new_state, new_driver, (0, 0, 10)), written(successor, (0, 0, 10)))
    assert offsets_in(kind.read()) == span(0, 0, 10)


def test_two_drivers_that_take_at_once_are_not_both_owners(kind: Kind) -> None:
    first, second = kind.create(), kind.open()
    take_1 = take_over(first.load(), "orders", "run-a")
    take_2 = take_over(second.load(), "orders", "run-b")
    assert isinstance(take_1, Commit)
    assert isinstance(take_2, Commit)
    first.append(take_1, [])
    with pytest.raises(TableMovedError):
        second.append(take_2, [])


def test_two_pipelines_share_a_table(kind: Kind) -> None:
    first, second = kind.create(), kind.open()
    driver_1, _ = taken(first, "run-a")
    driver_2, state_2 = taken(second, "run-b", pipeline="backfill")
    state_2 = second.append(commit_of(state_2, driver_2, (0, 0, 10)), written(second, (0, 0, 10)))
    state_1 = first.load()
    assert set(state_1.notes) == {"orders", "backfill"}
    first.append(commit_of(state_1, driver_1, (0, 10, 20)), written(first, (0, 10, 20)))
    assert offsets_in(kind.read()) == span(0, 0, 20)
    overlap = decide(kind.open().load(), Offer(driver_1, batch_ranges((1, 0, 3), (0, 20, 21))))
    assert isinstance(overlap, Commit)


def test_compaction_keeps_rows_and_notes(kind: Kind) -> None:
    table = kind.create()
    driver, state = taken(table, "run-a")
    for start in range(0, 40, 10):
        commit = commit_of(state, driver, (0, start, start + 10))
        state = table.append(commit, written(table, (0, start, start + 10)))
    done = table.compact(state, target_bytes=2**20)
    assert (done.removed_count, done.added_count) == (4, 1)
    assert len(table.live_files()) == 1
    assert offsets_in(kind.read()) == span(0, 0, 40)
    assert done.state.notes == state.notes
    again = table.compact(done.state, target_bytes=2**20)
    assert (again.removed_count, again.added_count) == (0, 0)
    commit = commit_of(again.state, driver, (0, 40, 50))
    table.append(commit, written(table, (0, 40, 50)))
    assert offsets_in(kind.read()) == span(0, 0, 50)


def test_of_two_compactions_at_once_one_is_refused(kind: Kind) -> None:
    table, other = kind.create(), kind.open()
    driver, state = taken(table, "run-a")
    for start in range(0, 40, 10):
        commit = commit_of(state, driver, (0, start, start + 10))
        state = table.append(commit, written(table, (0, start, start + 10)))
    late = other.load()
    table.compact(state, target_bytes=2**20)
    with pytest.raises(TableMovedError):
        other.compact(late, target_bytes=2**20)
    assert offsets_in(kind.read()) == span(0, 0, 40)


def test_a_commit_that_did_not_see_a_compaction_is_refused_and_decided_again(kind: Kind) -> None:
    table, other = kind.create(), kind.open()
    driver, state = taken(table, "run-a")
    for start in (0, 10):
        commit = commit_of(state, driver, (0, start, start + 10))
        state = table.append(commit, written(table, (0, start, start + 10)))
    files = written(table, (0, 20, 30))
    late = commit_of(state, driver, (0, 20, 30))
    other.compact(other.load(), target_bytes=2**20)
    with pytest.raises(TableMovedError):
        table.append(late, files)
    table.append(commit_of(table.load(), driver, (0, 20, 30)), files)
    assert offsets_in(kind.read()) == span(0, 0, 30)


def test_expiry_keeps_what_the_next_driver_has_to_know(kind: Kind) -> None:
    table = kind.create()
    driver, state = taken(table, "run-a")
    _, _ = taken(kind.open(), "run-x", pipeline="idle")
    for start in range(0, 60, 10):
        state = table.load()
        commit = commit_of(state, driver, (0, start, start + 10))
        table.append(commit, written(table, (0, start, start + 10)))
    state = table.load()
    table.compact(state, target_bytes=2**20)
    expiry = table.expire(older_than_ms=LATER_MS, keep_count=1)
    assert expiry.removed_count > 0
    found = kind.open().load()
    assert found.notes == state.notes
    assert table.load() == found
    assert offsets_in(kind.read()) == span(0, 0, 60)
    table.append(commit_of(found, driver, (0, 60, 70)), written(table, (0, 60, 70)))
    assert offsets_in(kind.read()) == span(0, 0, 70)


def test_a_column_is_added_with_the_files_that_have_it(kind: Kind) -> None:
    table = kind.create()
    driver, state = taken(table, "run-a")
    state = table.append(commit_of(state, driver, (0, 0, 10)), written(table, (0, 0, 10)))
    wider = SCHEMA.append(pa.field("city", pa.string()))
    rows = rows_of(0, 10, 15, city=pa.array(["Bern"] * 5))
    files = write_files([rows], table.layout(wider), "task")
    table.append(commit_of(state, driver, (0, 10, 15)), files, wider)
    found = kind.read().sort_by("_kafka_offset")
    assert found["city"].to_pylist() == [None] * 10 + ["Bern"] * 5
    assert offsets_in(found) == span(0, 0, 15)
    assert kind.open().load() == table.load()
    assert table.schema().names == wider.names
    rows = rows_of(0, 15, 16, city=pa.array(["Chur"]))
    files = write_files([rows], table.layout(wider), "task")
    table.append(commit_of(table.load(), driver, (0, 15, 16)), files, wider)


def test_a_refused_commit_adds_no_rows_and_the_column_can_be_added_again(kind: Kind) -> None:
    table, other = kind.create(), kind.open()
    driver, state = taken(table, "run-a")
    wider = SCHEMA.append(pa.field("city", pa.string()))
    rows = rows_of(0, 0, 5, city=pa.array(["Bern"] * 5))
    files = write_files([rows], table.layout(wider), "task")
    late = commit_of(state, driver, (0, 0, 5))
    taken(other, "run-x", pipeline="another")
    with pytest.raises(TableMovedError):
        table.append(late, files, wider)
    assert offsets_in(kind.read()) == []
    table.append(commit_of(table.load(), driver, (0, 0, 5)), files, wider)
    assert kind.read()["city"].to_pylist() == ["Bern"] * 5


@pytest.mark.parametrize("kind", [DeltaKind, IcebergKind], ids=["delta", "iceberg"], indirect=True)
def test_a_type_that_cannot_be_changed_is_told(kind: Kind) -> None:
    table = kind.create()
    driver, state = taken(table, "run-a")
    index = SCHEMA.get_field_index("name")
    other = SCHEMA.set(index, pa.field("name", pa.int64()))
    with pytest.raises(SchemaRefusedError, match="'name'"):
        table.append(commit_of(state, driver, (0, 0, 5)), [], other)
    assert table.load() == state


@pytest.mark.parametrize("kind", [DeltaKind, IcebergKind], ids=["delta", "iceberg"], indirect=True)
@pytest.mark.parametrize("transform", [Transform.DAY, Transform.HOUR, Transform.MONTH])
def test_the_name_of_a_partition_is_not_for_a_column(kind: Kind, transform: Transform) -> None:
    """Delta would read the partition's value in its place."""
    partitions = (PartitionField("_kafka_timestamp", transform),)
    clash = SCHEMA.append(pa.field(f"_kafka_timestamp_{transform}".upper(), pa.string()))
    plain = SCHEMA.append(pa.field(f"_kafka_timestamp_{transform}", pa.string()))
    table = kind.create(partitions)
    driver, state = taken(table, "run-a")
    for schema in (clash, plain):
        with pytest.raises(
            OptionError, match=r"column '_\w+', and that is the name of a partition"
        ):
            table.layout(schema)
        with pytest.raises(OptionError, match="Rename the column"):
            type(kind)(kind.folder / "new", schema=schema).create(partitions)  # type: ignore[call-arg]
    with pytest.raises(SchemaRefusedError, match=plain.names[-1]):
        table.append(commit_of(state, driver, (0, 0, 5)), [], plain)
    assert table.load() == state


def test_a_thousand_partitions_can_be_read_again(kind: Kind) -> None:
    table = kind.create()
    driver, state = taken(table, "run-a")
    for start in range(3):
        ranges = tuple(
            PartitionRange("orders", n, start * 1_000, (start + 1) * 1_000, 1) for n in range(1_000)
        )
        offer = Offer(driver, BatchRanges(ranges, {"orders": "t1"}, "c1"), CommitCounts(5))
        decision = decide(state, offer)
        assert isinstance(decision, Commit)
        state = table.append(decision, [])
    assert kind.open().load() == state
