"""The SQLite file: rows and positions together, generations, other files, a full disk."""

import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import InvalidRequestError
from penstock.materialize import row_store, table_schema
from penstock.materialize.file_export import (
    ExportCancelledError,
    ExportError,
    copy_to_file,
    delete_leftovers,
)
from penstock.materialize.index_columns import columns_of, parse_index
from penstock.materialize.row_store import (
    Gap,
    Portion,
    RowStore,
    StoreBusyError,
    StoreFileError,
    StoreFullError,
)
from penstock.records.record import Record
from tests.materialize.topic_model import (
    Event,
    compacted,
    stored_positions,
    stored_rows,
)

TOPIC_ID = uuid.UUID(int=1)
NEW_ID = uuid.UUID(int=2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "x.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[RowStore]:
    opened = RowStore.open(path)
    yield opened
    opened.close()


def portion(generation: int, events: list[Event], topic: str = "price") -> Portion:
    found = Portion()
    for partition, offset, key, value in events:
        found.of(topic, generation, partition).add([Record(key, value, (), 5, offset)])
        found.advance(topic, generation, partition, offset + 1)
    return found


def put(offset: int, key: str, value: str | None, partition: int = 0) -> Event:
    return Event(partition, offset, key.encode(), None if value is None else value.encode())


EVENTS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from("abcd"), st.one_of(st.none(), st.text(max_size=3)))
)


@given(EVENTS, st.integers(1, 6))
@settings(max_examples=12, deadline=None)
def test_rows_equal_the_compacted_topic_after_each_portion(
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[tuple[int, str, str | None]],
    size: int,
) -> None:
    path = tmp_path_factory.mktemp("rows") / "x.sqlite"
    store = RowStore.open(path)
    store.begin_topic("price", TOPIC_ID, {0: 0, 1: 0, 2: 0}, ())
    next_offsets = {0: 0, 1: 0, 2: 0}
    events = []
    for partition, key, value in changes:
        events.append(put(next_offsets[partition], key, value, partition))
        next_offsets[partition] += 1
    for start in range(0, len(events), size):
        store.apply(portion(1, events[start : start + size]))
        assert stored_rows(path, "price") == compacted(events[: start + size])
    assert stored_positions(path, "price") == next_offsets
    store.close()


def test_a_failed_portion_changes_neither_rows_nor_positions(store: RowStore, path: Path) -> None:
    store.begin_topic("price", TOPIC_ID, {0: 0}, ())
    store.apply(portion(1, [put(0, "a", "1")]))
    bad = portion(1, [put(1, "a", "2")])
    bad.positions["price", 1][0] = 2**70  # cannot be stored
    with pytest.raises(OverflowError):
        store.apply(bad)
    assert stored_rows(path, "price") == {(b"a", 0): (b"1", 0)}
    assert stored_positions(path, "price") == {0: 1}


def test_a_full_disk_is_reported_and_the_portion_can_be_repeated(
    store: RowStore, path: Path
) -> None:
    store.begin_topic("price", TOPIC_ID, {0: 0}, ())
    connection = store._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    large = portion(1, [put(0, "a", "x" * 100_000)])
    with pytest.raises(StoreFullError, match="disk of the store is full"):
        store.apply(large)
    assert stored_rows(path, "price") == {}
    connection.execute("PRAGMA max_page_count = 100000")
    store.apply(large)
    assert stored_positions(path, "price") == {0: 1}


def test_a_lock_of_another_program_is_reported(
    store: RowStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store._connection.execute("PRAGMA busy_timeout = 1")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusyError):
        store.begin_topic("price", TOPIC_ID, {0: 0}, ())
    other.execute("ROLLBACK")
    other.close()
    store.begin_topic("price", TOPIC_ID, {0: 0}, ())


def test_a_build_is_served_only_when_it_is_complete(store: RowStore, path: Path) -> None:
    store.begin_topic("price", TOPIC_ID, {0: 0}, columns_of("price", [parse_index("$.sku")]))
    store.apply(portion(1, [put(0, "old", '{"sku": 1}')]))
    store.declare_gap(Gap("price", 0, 1, 4, 99), 1)
    store.begin_generation("price", NEW_ID, {0: 0, 1: 7}, {0: 3, 1: 8})
    assert store.apply(portion(2, [put(0, "a", '{"sku": 2}'), put(2, "b", "2")])) == []
    assert set(stored_rows(path, "price")) == {(b"old", 0)}
    assert stored_positions(path, "price") == {0: 4}
    assert store.apply(portion(2, [put(7, "c", '{"sku": 3}', 1)])) == ["price"]
    assert set(stored_rows(path, "price")) == {(b"a", 0), (b"b", 0), (b"c", 1)}
    stored = store.topics()["price"]
    assert (stored.live.number, stored.live.topic_id, stored.building) == (2, NEW_ID, None)
    assert store.gaps() == []
    plan = str(
        store._connection.execute("EXPLAIN QUERY PLAN SELECT * FROM price WHERE sku = 3").fetchall()
    )
    assert "USING INDEX price@2.sku" in plan


def test_a_second_build_replaces_an_unfinished_one(store: RowStore, path: Path) -> None:
    store.begin_topic("price", TOPIC_ID, {0: 0}, ())
    store.begin_generation("price", NEW_ID, {0: 0}, {0: 5})
    store.apply(portion(2, [put(0, "a", "1")]))
    store.begin_generation("price", NEW_ID, {0: 0}, {0: 0})
    building = store.topics()["price"].building
    assert building is not None
    assert (building.number, building.positions) == (3, {0: 0})
    assert store.install_ready("price")
    assert not store.install_ready("price")
    assert stored_rows(path, "price") == {}
    store.add_partitions("price", 3, {1: 4})
    assert stored_positions(path, "price") == {0: 0, 1: 4}


def test_generated_columns_follow_the_options(store: RowStore) -> None:
    wanted = columns_of("price", [parse_index("$.sku"), parse_index("$.name")])
    store.begin_topic("price", TOPIC_ID, {0: 0}, wanted[:1])
    store.apply(portion(1, [put(0, "a", '{"sku": 5, "name": "x"}'), put(1, "b", "not json")]))
    store.begin_generation("price", TOPIC_ID, {0: 0}, {0: 9})
    store.set_columns("price", wanted[1:])
    assert store.columns("price") == list(wanted[1:])
    rows = store._connection.execute("SELECT name FROM price ORDER BY key").fetchall()
    assert rows == [("x",), (None,)]
    with pytest.raises(sqlite3.OperationalError, match="no such column"):
        store._connection.execute("SELECT sku FROM price")
    changed = columns_of("price", [parse_index("name=$.sku")])
    store.set_columns("price", changed)
    assert store._connection.execute("SELECT name FROM price ORDER BY key").fetchall() == [
        (5,),
        (None,),
    ]


def test_a_file_of_another_program_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "theirs.sqlite"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE contacts (name TEXT)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreFileError, match="another program"):
        RowStore.open(path)
    assert path.read_bytes() == before
    path.write_text("this is not a database, but a long enough text for its header " * 20)
    with pytest.raises(StoreFileError, match="cannot be used"):
        RowStore.open(path)


def test_a_newer_layout_is_rejected(path: Path) -> None:
    RowStore.open(path).close()
    other = sqlite3.connect(path)
    other.execute("PRAGMA user_version = 9")
    other.close()
    with pytest.raises(StoreFileError, match="layout 9"):
        RowStore.open(path)


def test_one_process_writes_a_file(store: RowStore, path: Path) -> None:
    with pytest.raises(StoreFileError, match="in use by another"):
        RowStore.open(path)


def test_a_commit_is_synced_before_it_is_reported(store: RowStore) -> None:
    assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize(
    "topics",
    [[], ["a", "A"], ["sqlite_x"], ["penstock_topics"], ["export.sqlite"], ["a b"], ["x"] * 65],
)
def test_topics_that_cannot_be_tables(topics: list[str]) -> None:
    with pytest.raises(InvalidRequestError):
        table_schema.check_topics(topics)


def test_an_export_is_one_file_of_one_commit(store: RowStore, path: Path, tmp_path: Path) -> None:
    store.begin_topic("price", TOPIC_ID, {0: 0}, ())
    store.apply(portion(1, [put(0, "a", "1")]))
    with copy_to_file(path, lambda: False) as file:
        copied = tmp_path / "copy.sqlite"
        copied.write_bytes(file.read())
    assert [one.name for one in path.parent.glob("penstock-export-*")] == []
    assert stored_rows(copied, "price") == {(b"a", 0): (b"1", 0)}
    assert stored_positions(copied, "price") == {0: 1}


def test_an_export_is_cancelled_and_leaves_nothing(store: RowStore, path: Path) -> None:
    with pytest.raises(ExportCancelledError):
        copy_to_file(path, lambda: True)
    assert list(path.parent.glob("penstock-export-*")) == []
    (path.parent / "penstock-export-old.sqlite").touch()
    delete_leftovers(path.parent)
    assert list(path.parent.glob("penstock-export-*")) == []


def test_an_export_needs_disk_space(
    store: RowStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.materialize.file_export.FREE_BYTES_MIN", 2**62)
    with pytest.raises(ExportError, match="bytes of disk space"):
        copy_to_file(path, lambda: False)


def test_errors_of_a_damaged_file_name_the_remedy() -> None:
    error = row_store._explained(sqlite3.DatabaseError("malformed"))
    assert "loaded again from the topic" in error.hint
