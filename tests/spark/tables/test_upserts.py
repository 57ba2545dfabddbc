"""Upserts, held by the fake, by Delta and by Iceberg against a plain dictionary."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog
from pyiceberg.table import TableProperties

from penstock.spark.errors import OptionError
from penstock.spark.tables.files.data_files import write_files
from penstock.spark.tables.files.file_partitions import PartitionField, Transform
from penstock.spark.tables.files.upsert import Changes
from penstock.spark.tables.formats import change_files
from penstock.spark.tables.formats.change_files import TooManyChangesError, clean_changes
from penstock.spark.tables.formats.port import LayoutChangedError, TableMovedError
from tests.spark.tables.change_batches import (
    SCHEMA,
    Change,
    Model,
    applied,
    change_rows,
    rows_in,
    written_changes,
)
from tests.spark.tables.table_kinds import (
    DeltaKind,
    FakeKind,
    IcebergKind,
    Kind,
    MergeOnReadKind,
    commit_of,
    taken,
)

pytestmark = pytest.mark.slow

REAL = ["delta", "iceberg", "merge_on_read"]
KINDS = {
    "fake": FakeKind,
    "delta": DeltaKind,
    "iceberg": IcebergKind,
    "merge_on_read": MergeOnReadKind,
}
DAY = (PartitionField("_kafka_timestamp", Transform.DAY),)
PARTITIONS = {
    "none": (),
    "day": DAY,
    "hour": (PartitionField("_kafka_timestamp", Transform.HOUR),),
    "month and key": (PartitionField("_kafka_timestamp", Transform.MONTH), PartitionField("id")),
    "a column": (PartitionField("amount"),),
}
INSERTS: Sequence[Change] = [(key, key * 10) for key in range(10)]
CHANGES: Sequence[Change] = [(3, 31), (4, None), (30, 300), (3, 32), (40, None), (5, None), (5, 51)]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    made: Kind = KINDS[request.param](tmp_path, schema=SCHEMA)
    return made


def version_count(kind: Kind) -> int:
    """Snapshots or log entries of the table."""
    if isinstance(kind, DeltaKind):
        return DeltaTable(kind.uri).version() + 1
    if isinstance(kind, IcebergKind):
        with closing(load_catalog("default", **kind.catalog)) as catalog:
            return len(catalog.load_table("shop.orders").metadata.snapshots)
    assert isinstance(kind, FakeKind)
    return len(kind.store.snapshots)


@pytest.mark.parametrize("partitions", PARTITIONS)
def test_the_last_change_of_each_key_counts(kind: Kind, partitions: str) -> None:
    table = kind.create(PARTITIONS[partitions])
    driver, state = taken(table, "run-a")
    rows = change_rows(INSERTS, 0)
    state = table.upsert(commit_of(state, driver, (0, 0, 10)), written_changes(table, rows))
    model = applied({}, rows)
    assert rows_in(kind.read()) == model
    before = version_count(kind)
    rows = change_rows(CHANGES, 10)
    commit = commit_of(state, driver, (0, 10, 17))
    # The files come in another order than the offsets: it is the offsets that count.
    after = table.upsert(commit, written_changes(table, rows[4:], rows[:2], rows[2:4]))
    assert version_count(kind) == before + 1
    assert rows_in(kind.read()) == applied(model, rows)
    assert after.notes["orders"] == commit.note
    assert kind.open().load() == after


def test_partitions_are_those_of_the_rows(kind: Kind) -> None:
    """A row whose day changes is in the folder of the new day, and in no other."""
    table = kind.create(DAY)
    driver, state = taken(table, "run-a")
    first, later = change_rows([(1, 1), (2, 2)], 0), change_rows([(1, 5)], 40)
    state = table.upsert(commit_of(state, driver, (0, 0, 2)), written_changes(table, first))
    table.upsert(commit_of(state, driver, (0, 2, 41)), written_changes(table, later))
    assert rows_in(kind.read()) == applied(applied({}, first), later)
    if not isinstance(kind, FakeKind):
        found = {dict(one.partition)["_kafka_timestamp_day"] for one in table.live_files()}
        assert found == {"2026-01-31", "2026-02-02"}


def test_changes_that_change_nothing_still_move_the_position(kind: Kind) -> None:
    table = kind.create()
    driver, state = taken(table, "run-a")
    rows = change_rows([(7, None)], 0)
    state = table.upsert(commit_of(state, driver, (0, 0, 1)), written_changes(table, rows))
    nothing = Changes(written_changes(table).directory, (), ("id",))
    state = table.upsert(commit_of(state, driver, (0, 1, 5)), nothing)
    assert list(state.positions_of("orders").values()) == [5]
    assert kind.open().load() == state
    assert rows_in(kind.read()) == {}


def test_everything_can_be_deleted(kind: Kind) -> None:
    table = kind.create()
    driver, state = taken(table, "run-a")
    rows = change_rows(INSERTS, 0)
    state = table.upsert(commit_of(state, driver, (0, 0, 10)), written_changes(table, rows))
    rows = change_rows([(key, None) for key, _ in INSERTS], 10)
    state = table.upsert(commit_of(state, driver, (0, 10, 20)), written_changes(table, rows))
    assert rows_in(kind.read()) == {}
    assert table.live_files() == [] or isinstance(kind, FakeKind)
    rows = change_rows(INSERTS, 20)
    table.upsert(commit_of(state, driver, (0, 20, 30)), written_changes(table, rows))
    assert rows_in(kind.read()) == applied({}, rows)


def test_of_two_partitions_the_higher_one_counts(kind: Kind) -> None:
    table = kind.create()
    driver, state = taken(table, "run-a")
    first, second = change_rows([(1, 10)], 50, partition=0), change_rows([(1, 20)], 3, partition=1)
    changes = written_changes(table, second, first)
    table.upsert(commit_of(state, driver, (0, 50, 51), (1, 3, 4)), changes)
    assert rows_in(kind.read()) == applied({}, second)


def test_a_key_of_several_columns(kind: Kind) -> None:
    table = kind.create()
    driver, state = taken(table, "run-a")
    rows = change_rows([(1, 1), (1, 2), (2, 1), (2, 2)], 0)
    state = table.upsert(
        commit_of(state, driver, (0, 0, 4)), written_changes(table, rows, key=("amount", "id"))
    )
    later = change_rows([(1, 2), (2, 1), (3, 1)], 4)
    later[1]["_change_deleted"] = True
    table.upsert(
        commit_of(state, driver, (0, 4, 7)), written_changes(table, later, key=("amount", "id"))
    )
    found = kind.read()
    kept = sorted(
        zip(*(found[name].to_pylist() for name in ("id", "amount", "_kafka_offset")), strict=True)
    )
    assert kept == [(1, 1, 0), (1, 2, 4), (2, 2, 3), (3, 1, 6)]


@pytest.mark.parametrize("kind", REAL, indirect=True)
def test_rows_without_a_key_are_left_alone(kind: Kind) -> None:
    """A table that was appended to before may have them."""
    table = kind.create()
    driver, state = taken(table, "run-a")
    rows = pa.Table.from_pylist([{"id": None, "amount": 1}, {"id": 1, "amount": 1}], SCHEMA)
    files = write_files(rows.to_batches(), table.layout(SCHEMA), "task")
    state = table.append(commit_of(state, driver, (0, 0, 2)), files)
    changes = written_changes(table, change_rows([(1, 2)], 2))
    table.upsert(commit_of(state, driver, (0, 2, 3)), changes)
    assert sorted(zip(*(kind.read()[n].to_pylist() for n in ("amount", "id")), strict=True)) == [
        (1, None),
        (2, 1),
    ]


def test_a_column_is_added_with_the_rows_that_have_it(kind: Kind) -> None:
    table = kind.create(DAY)
    driver, state = taken(table, "run-a")
    rows = change_rows(INSERTS, 0)
    state = table.upsert(commit_of(state, driver, (0, 0, 10)), written_changes(table, rows))
    model = applied({}, rows)
    wider = pa.schema([*SCHEMA, pa.field("city", pa.string())])
    rows = change_rows(CHANGES, 10, schema=wider)
    changes = written_changes(table, rows, schema=wider)
    state = table.upsert(commit_of(state, driver, (0, 10, 17)), changes, wider)
    model = applied(model, rows, wider)
    assert rows_in(kind.read()) == model
    assert table.schema().names == wider.names
    # A change has the whole row: missing columns are null.
    rows = change_rows([(3, 33)], 17)
    table.upsert(commit_of(state, driver, (0, 17, 18)), written_changes(table, rows, schema=SCHEMA))
    assert rows_in(kind.read()) == applied(model, rows)


@pytest.mark.parametrize("kind", REAL, indirect=True)
@pytest.mark.parametrize("key", [(), ("nothing",), ("tags",), ("id", "id")])
def test_what_cannot_be_a_key_is_told(kind: Kind, key: tuple[str, ...]) -> None:
    table = kind.create()
    driver, state = taken(table, "run-a")
    changes = Changes("nowhere", (), key)
    with pytest.raises(OptionError, match="key"):
        table.upsert(commit_of(state, driver, (0, 0, 1)), changes)
    assert table.load() == state


def test_of_two_committers_with_the_same_knowledge_one_is_refused(kind: Kind) -> None:
    first = kind.create()
    driver, state = taken(first, "run-a")
    rows = change_rows(INSERTS, 0)
    first.upsert(commit_of(state, driver, (0, 0, 10)), written_changes(first, rows))
    second = kind.open()
    commits = [commit_of(one.load(), driver, (0, 10, 17)) for one in (first, second)]
    model = applied({}, rows)
    rows = change_rows(CHANGES, 10)
    state = first.upsert(commits[0], written_changes(first, rows))
    before = version_count(kind)
    with pytest.raises(TableMovedError):
        second.upsert(commits[1], written_changes(second, rows))
    assert version_count(kind) == before
    assert rows_in(kind.read()) == applied(model, rows)
    assert second.load() == state


def test_a_compaction_in_between_is_noticed(kind: Kind) -> None:
    table, other = kind.create(), kind.open()
    driver, state = taken(table, "run-a")
    model: Model = {}
    for offset in (0, 10):
        rows = change_rows([(key + offset, key) for key in range(10)], offset)
        commit = commit_of(state, driver, (0, offset, offset + 10))
        state = table.upsert(commit, written_changes(table, rows))
        model = applied(model, rows)
    rows = change_rows(CHANGES, 20)
    changes, late = written_changes(table, rows), commit_of(state, driver, (0, 20, 27))
    done = other.compact(other.load(), target_bytes=2**20)
    if done.removed_count:  # the fake has one file already
        with pytest.raises(TableMovedError):
            table.upsert(late, changes)
    table.upsert(commit_of(table.load(), driver, (0, 20, 27)), changes)
    assert rows_in(kind.read()) == applied(model, rows)


@pytest.mark.parametrize("kind", REAL, indirect=True)
def test_a_batch_that_is_too_large_is_told(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_files, "CHANGES_MAX", 9)
    table = kind.create()
    driver, state = taken(table, "run-a")
    changes = written_changes(table, change_rows(INSERTS, 0))
    with pytest.raises(TooManyChangesError, match="maxOffsetsPerTrigger"):
        table.upsert(commit_of(state, driver, (0, 0, 10)), changes)
    assert table.load() == state


@pytest.mark.parametrize("kind", REAL, indirect=True)
def test_a_column_that_the_table_does_not_have_is_not_lost_silently(kind: Kind) -> None:
    table = kind.create()
    driver, state = taken(table, "run-a")
    wider = pa.schema([*SCHEMA, pa.field("city", pa.string())])
    changes = written_changes(table, change_rows(INSERTS, 0, schema=wider), schema=wider)
    with pytest.raises((AssertionError, LayoutChangedError), match="city"):
        table.upsert(commit_of(state, driver, (0, 0, 10)), changes)
    assert table.load() == state


def test_leftovers_are_cleaned_by_age(kind: Kind) -> None:
    table = kind.create()
    changes = written_changes(table, change_rows(INSERTS, 0), change_rows(INSERTS, 10))
    assert clean_changes(changes.directory, older_than_ms=0) == 0
    assert clean_changes(changes.directory, older_than_ms=4_000_000_000_000) == 2
    assert clean_changes(changes.directory, older_than_ms=4_000_000_000_000) == 0
    assert clean_changes(f"{changes.directory}/none", older_than_ms=4_000_000_000_000) == 0


@pytest.mark.parametrize("kind", REAL, indirect=True)
def test_care_leaves_the_changes_of_a_running_batch_and_removes_old_ones(kind: Kind) -> None:
    table = kind.create()
    driver, state = taken(table, "run-a")
    rows = change_rows(INSERTS, 0)
    changes = written_changes(table, rows)
    table.expire(older_than_ms=4_000_000_000_000, keep_count=1)
    assert table.remove_orphans(older_than_ms=0) == 0
    table.upsert(commit_of(table.load(), driver, (0, 0, 10)), changes)
    assert rows_in(kind.read()) == applied({}, rows)
    assert state.version != table.load().version
    assert table.remove_orphans(older_than_ms=4_000_000_000_000) >= 1
    folder = Path(changes.directory.removeprefix("file://"))
    assert list(folder.iterdir()) == []
    assert rows_in(kind.read()) == applied({}, rows)


@pytest.mark.parametrize("kind", REAL[1:], indirect=True)
def test_files_that_are_cleaned_up_meanwhile_mean_that_the_table_moved(kind: Kind) -> None:
    table, other = kind.create(), kind.open()
    driver, state = taken(table, "run-a")
    model: Model = {}
    for offset in (0, 10):
        rows = change_rows([(key + offset, key) for key in range(10)], offset)
        commit = commit_of(state, driver, (0, offset, offset + 10))
        state = table.upsert(commit, written_changes(table, rows))
        model = applied(model, rows)
    other.compact(other.load(), target_bytes=2**20)
    other.expire(older_than_ms=4_000_000_000_000, keep_count=1)
    rows = change_rows(CHANGES, 20)
    changes = written_changes(table, rows)
    with pytest.raises(TableMovedError, match="gone"):
        table.upsert(commit_of(state, driver, (0, 20, 27)), changes)
    table.upsert(commit_of(table.load(), driver, (0, 20, 27)), changes)
    assert rows_in(kind.read()) == applied(model, rows)


@pytest.mark.parametrize("kind", REAL[1:], indirect=True)
def test_manifests_do_not_become_more_with_every_upsert(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TableProperties, "MANIFEST_MIN_MERGE_COUNT_DEFAULT", 4)
    assert isinstance(kind, IcebergKind)
    table = kind.create((PartitionField("id"),))
    driver, state = taken(table, "run-a")
    model: Model = {}
    for number in range(12):  # each adds files, and removes an earlier one
        rows = change_rows([(number, number), (number + 1, number)], number * 2)
        commit = commit_of(state, driver, (0, number * 2, number * 2 + 2))
        state = table.upsert(commit, written_changes(table, rows))
        model = applied(model, rows)
    assert rows_in(kind.read()) == model
    with closing(load_catalog("default", **kind.catalog)) as catalog:
        opened = catalog.load_table("shop.orders")
        snapshot = opened.current_snapshot()
        assert snapshot is not None
        assert len(snapshot.manifests(opened.io)) <= 4
    assert sum(one.row_count for one in table.live_files()) == len(model)


KEYS = st.integers(0, 6)
BATCH = st.lists(st.tuples(KEYS, st.none() | st.integers(0, 99)), max_size=8)
EVENTS = st.lists(
    st.tuples(BATCH, st.sampled_from(["", "zombie", "compact", "reopen"])), max_size=6
)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("partitions", ["day", "a column"])
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(events=EVENTS)
def test_any_history_is_the_one_of_a_dictionary(
    name: str, partitions: str, events: list[tuple[list[Change], str]]
) -> None:
    with TemporaryDirectory() as folder:
        kind: Kind = KINDS[name](Path(folder), schema=SCHEMA)
        table = kind.create(PARTITIONS[partitions])
        driver, state = taken(table, "run-a")
        model: Model = {}
        at = 0
        for batch, event in events:
            rows = change_rows(batch, at)
            end = at + len(batch)
            changes = written_changes(table, rows[::2], rows[1::2]) if rows else None
            stale = commit_of(state, driver, (0, at, end + 1))
            if event == "compact":
                state = table.compact(state, target_bytes=2**20).state
            elif event == "reopen":
                table = kind.open()
                state = table.load()
            if changes is not None:
                state = table.upsert(commit_of(state, driver, (0, at, end)), changes)
                model = applied(model, rows)
            if event == "zombie" and changes is not None:
                with pytest.raises(TableMovedError):
                    kind.open().upsert(stale, changes)
            at = end
            assert rows_in(kind.read()) == model
