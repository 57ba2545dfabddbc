"""Compaction of Delta tables beside the compactions of others: no row is ever there twice.

Guards defect C9: a compaction of `deltalake` commits although another one has removed the same
files, so every row was there twice.
"""

import itertools
import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from penstock.spark.tables.commit.decisions import Driver, TableState
from penstock.spark.tables.files.file_partitions import PartitionField
from penstock.spark.tables.files.table_facts import LiveFile
from penstock.spark.tables.formats.delta import compaction as delta_compaction
from penstock.spark.tables.formats.delta import maintenance as delta_maintenance
from penstock.spark.tables.formats.delta.compaction import bins_of, publish_entry
from penstock.spark.tables.formats.port import Table, TableMovedError
from tests.spark.tables.table_kinds import (
    DeltaKind,
    commit_of,
    offsets_in,
    rows_of,
    span,
    taken,
    written,
)

pytestmark = pytest.mark.slow

TARGET_BYTES = 2**20
ROUNDS_MIN, ROUNDS_MAX = 12, 200


@pytest.fixture
def kind(tmp_path: Path) -> DeltaKind:
    """A table of four small files, ten rows in each."""
    kind = DeltaKind(tmp_path)
    table = kind.create()
    driver, state = taken(table, "run-a")
    for start in range(0, 40, 10):
        files = written(table, (0, start, start + 10))
        state = table.append(commit_of(state, driver, (0, start, start + 10)), files)
    return kind


def compact(table: Table) -> tuple[int, int]:
    done = table.compact(table.load(), target_bytes=TARGET_BYTES)
    return done.removed_count, done.added_count


def newest_entry(kind: DeltaKind) -> list[dict[str, dict[str, object]]]:
    newest = max((Path(kind.uri) / "_delta_log").glob("*.json"))
    return [json.loads(one) for one in newest.read_text().splitlines()]


def test_it_is_one_entry_that_changes_no_data(kind: DeltaKind) -> None:
    before = DeltaTable(kind.uri)
    assert compact(kind.open()) == (4, 1)
    after = DeltaTable(kind.uri)
    assert after.version() == before.version() + 1
    assert offsets_in(kind.read()) == span(0, 0, 40)
    assert kind.read().schema.equals(before.to_pyarrow_table().schema)
    actions = newest_entry(kind)
    assert [next(iter(one)) for one in actions] == [
        "commitInfo",
        "metaData",
        *["remove"] * 4,
        "add",
    ]
    changed = [
        one[kind]["dataChange"] for one in actions for kind in one if kind in ("add", "remove")
    ]
    assert changed == [False] * 5
    assert after.schema().to_json() == before.schema().to_json()
    held, kept = after.metadata(), before.metadata()
    assert (held.id, held.created_time, held.partition_columns) == (
        kept.id,
        kept.created_time,
        kept.partition_columns,
    )
    changes = dict(set(held.configuration.items()) - set(kept.configuration.items()))
    assert list(changes) == ["penstock.compaction"]


def test_nothing_to_do_leaves_no_entry(kind: DeltaKind) -> None:
    compact(kind.open())
    version = DeltaTable(kind.uri).version()
    assert compact(kind.open()) == (0, 0)
    assert DeltaTable(kind.uri).version() == version


def test_the_next_batch_is_appended_behind_it(kind: DeltaKind) -> None:
    """And the statistics of the new file hide no row."""
    compact(kind.open())
    table = kind.open()
    driver, state = taken(table, "run-b")
    table.append(commit_of(state, driver, (0, 40, 50)), written(table, (0, 40, 50)))
    assert offsets_in(kind.read()) == span(0, 0, 50)
    found = DeltaTable(kind.uri).to_pyarrow_table(filters=[("_kafka_offset", "=", 17)])
    assert offsets_in(found) == [(0, 17)]


def test_partitions_stay_apart(tmp_path: Path) -> None:
    kind = DeltaKind(tmp_path)
    table = kind.create([PartitionField("_kafka_partition"), PartitionField("name")])
    driver, state = taken(table, "run-a")
    for start in (0, 10):
        files = written(table, (0, start, start + 10), (1, start, start + 10))
        offer = ((0, start, start + 10), (1, start, start + 10))
        state = table.append(commit_of(state, driver, *offer), files)
    assert table.compact(state, target_bytes=TARGET_BYTES).added_count == 2  # of rows without name
    found = kind.read()
    assert offsets_in(found) == span(0, 0, 20) + span(1, 0, 20)
    expected = [*rows_of(0, 0, 20)["name"].to_pylist(), *rows_of(1, 0, 20)["name"].to_pylist()]
    rows = zip(offsets_in(found), expected, strict=True)
    held = zip(
        found["_kafka_partition"].to_pylist(), found["_kafka_offset"].to_pylist(), strict=True
    )
    assert dict(zip(held, found["name"].to_pylist(), strict=True)) == dict(rows)


# --- Beside others ---


def test_ours_is_refused_after_an_optimize_of_others(kind: DeltaKind) -> None:
    slow = kind.open()
    state = slow.load()
    DeltaTable(kind.uri).optimize.compact()
    with pytest.raises(TableMovedError):
        slow.compact(state, target_bytes=TARGET_BYTES)
    assert offsets_in(kind.read()) == span(0, 0, 40)


def test_ours_is_refused_when_others_commit_while_it_writes(kind: DeltaKind) -> None:
    """The version that the commit follows is the one whose files were read."""
    slow = kind.open()
    state = slow.load()
    publish = publish_entry

    def late(log: Path, version: int, text: str) -> None:
        DeltaTable(kind.uri).optimize.compact()
        publish(log, version, text)

    with patch.object(delta_compaction, "publish_entry", late), pytest.raises(TableMovedError):
        slow.compact(state, target_bytes=TARGET_BYTES)
    assert offsets_in(kind.read()) == span(0, 0, 40)
    assert not list((Path(kind.uri) / "_delta_log").glob(".*.tmp"))


def test_an_optimize_that_was_begun_before_ours_is_refused(kind: DeltaKind) -> None:
    """By the change of the table's metadata, which is in the same entry as the files."""
    theirs = DeltaTable(kind.uri)
    assert compact(kind.open()) == (4, 1)
    with pytest.raises(CommitFailedError, match="Metadata changed"):
        theirs.optimize.compact()
    assert offsets_in(kind.read()) == span(0, 0, 40)


def test_why_the_metadata_changes(kind: DeltaKind) -> None:
    """When this fails, `deltalake` notices removed files by itself, and the mark can go."""
    theirs = DeltaTable(kind.uri)
    DeltaTable(kind.uri).optimize.compact()
    theirs.optimize.compact()
    rows = offsets_in(kind.read())
    print(f"guard a compaction of a Delta table changes its metadata: {len(rows)} rows of 40")
    assert rows == sorted(span(0, 0, 40) * 2)


@pytest.mark.timeout(120)
def test_many_compactions_at_once_double_nothing(kind: DeltaKind) -> None:
    """Real `OPTIMIZE` of `deltalake` in one thread, ours in another, appends in a third.

    One thread of theirs: two would double rows among themselves.
    """
    is_over = threading.Event()
    done = {"theirs": 0, "ours": 0}

    def theirs() -> None:
        while not is_over.is_set():
            try:
                table = DeltaTable(kind.uri)
                is_over.wait(random.random() / 50)
                done["theirs"] += table.optimize.compact()["numFilesRemoved"]
            except DeltaError:
                pass

    def ours() -> None:
        table = kind.open()
        while not is_over.is_set():
            with suppress(TableMovedError):
                done["ours"] += compact(table)[0]

    threads = [threading.Thread(target=one) for one in (theirs, ours)]
    for one in threads:
        one.start()
    try:
        appended = append_rounds(kind, lambda: done["ours"] > 0)
    finally:
        is_over.set()
        for one in threads:
            one.join()
    assert offsets_in(kind.read()) == span(0, 0, appended)
    assert done["ours"] > 0


def append_rounds(kind: DeltaKind, is_enough: Callable[[], bool]) -> int:
    """A pipeline that appends until enough has happened; returns where it ends."""
    table = kind.open()
    driver, state = taken_again(table)
    start, pause = 40, threading.Event()
    for number in range(ROUNDS_MAX):
        if number >= ROUNDS_MIN and is_enough():
            break
        pause.wait(0.05)  # a compaction commits when no other writer does meanwhile
        files = written(table, (0, start, start + 10))
        while True:
            try:
                state = table.append(commit_of(state, driver, (0, start, start + 10)), files)
                break
            except TableMovedError:
                state = table.load()
        start += 10
    return start


def taken_again(table: Table) -> tuple[Driver, TableState]:
    while True:
        try:
            return taken(table, "run-b")
        except TableMovedError:
            continue


# --- In an object store, where files and metadata are two entries ---


@pytest.fixture
def remote(kind: DeltaKind) -> Iterator[DeltaKind]:
    """The table, compacted as if its folder were in an object store."""
    with patch.object(delta_compaction, "local_path", lambda _uri: None):
        yield kind


def test_a_remote_compaction_changes_the_metadata_before_and_after_the_files(
    remote: DeltaKind,
) -> None:
    before = DeltaTable(remote.uri).version()
    assert compact(remote.open()) == (4, 1)
    assert offsets_in(remote.read()) == span(0, 0, 40)
    log = sorted((Path(remote.uri) / "_delta_log").glob("*.json"))[before + 1 :]
    kinds = [{next(iter(json.loads(line))) for line in one.read_text().splitlines()} for one in log]
    assert kinds == [
        {"commitInfo", "metaData"},
        {"commitInfo", "add", "remove"},
        {"commitInfo", "metaData"},
    ]


def test_an_optimize_between_the_mark_and_the_files_refuses_ours(remote: DeltaKind) -> None:
    """The files were committed behind whatever was the newest version, and 40 rows became 80."""

    def interrupted(table: DeltaTable, now_ms: int) -> None:
        delta_maintenance.mark(table, now_ms)
        DeltaTable(remote.uri).optimize.compact()

    slow = remote.open()
    with (
        patch.object(delta_compaction, "mark", interrupted),
        pytest.raises(TableMovedError),
    ):
        slow.compact(slow.load(), target_bytes=TARGET_BYTES)
    assert offsets_in(remote.read()) == span(0, 0, 40)


def test_an_optimize_that_opened_the_table_between_both_is_refused(remote: DeltaKind) -> None:
    """By the second change of the metadata: without it 40 rows became 80."""
    opened: list[DeltaTable] = []

    def noticed(table: DeltaTable, now_ms: int) -> None:
        delta_maintenance.mark(table, now_ms)
        opened.append(DeltaTable(remote.uri))

    with patch.object(delta_compaction, "mark", noticed):
        assert compact(remote.open()) == (4, 1)
    with pytest.raises(CommitFailedError, match="Metadata changed"):
        opened[0].optimize.compact()
    assert offsets_in(remote.read()) == span(0, 0, 40)


def test_a_second_mark_that_fails_is_no_failure(remote: DeltaKind) -> None:
    """The files are committed by then."""
    count = itertools.count()

    def failing(table: DeltaTable, now_ms: int) -> None:
        if next(count):
            raise CommitFailedError("somebody was quicker")
        delta_maintenance.mark(table, now_ms)

    with patch.object(delta_compaction, "mark", failing):
        assert compact(remote.open()) == (4, 1)
    assert next(count) == 2
    assert offsets_in(remote.read()) == span(0, 0, 40)


# --- Files of others ---


def test_times_of_others_survive(tmp_path: Path) -> None:
    """Spark writes INT96, and files of older schemas lack columns."""
    uri = str(tmp_path / "orders")
    moments = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)]
    first = pa.table({"id": [1], "at": pa.array(moments[:1], pa.timestamp("us", "UTC"))})
    second = pa.table(
        {
            "id": [2],
            "at": pa.array(moments[1:], pa.timestamp("us", "UTC")),
            "more": pa.array([{"a": 1}]),
        }
    )
    write_deltalake(uri, first.slice(0, 0))
    pq.write_table(first, f"{uri}/spark.parquet", use_deprecated_int96_timestamps=True)
    table = DeltaTable(uri)
    size = Path(f"{uri}/spark.parquet").stat().st_size
    action = AddAction("spark.parquet", size, {}, 0, data_change=True, stats='{"numRecords": 1}')
    table.create_write_transaction([action], "append", table.schema())
    write_deltalake(uri, second, mode="append", schema_mode="merge")
    assert compact(DeltaKind(tmp_path).open()) == (2, 1)
    rows = DeltaTable(uri).to_pyarrow_table().sort_by("id").to_pylist()
    assert [one["at"] for one in rows] == moments
    assert [one["more"] for one in rows] == [None, {"a": 1}]


def test_folders_with_rare_characters(tmp_path: Path) -> None:
    """Names in the log are URIs; a name that is spelt otherwise would remove nothing."""
    uri = str(tmp_path / "orders")
    for n in range(2):
        rows = pa.table({"id": [n] * 3, "name": ["a b", "50%", "ü=/"]})
        write_deltalake(uri, rows, mode="append", partition_by=["name"])
    kind = DeltaKind(tmp_path, partitions=[PartitionField("name")])
    assert compact(kind.open()) == (6, 3)
    found = DeltaTable(uri).to_pyarrow_table()
    pairs = sorted(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))
    assert pairs == sorted((n, one) for n in range(2) for one in ("a b", "50%", "ü=/"))
    assert len(DeltaTable(uri).file_uris()) == 3


def test_bins_take_small_files_of_one_partition() -> None:
    def file(path: str, size: int, part: str = "a") -> LiveFile:
        return LiveFile(path, 1, size, (("p", part),))

    files = [file("1", 40), file("2", 50), file("3", 90), file("4", 100), file("5", 10, "b")]
    assert [[one.path for one in found] for found in bins_of(files, 100, None)] == [["1", "2"]]
    more = [*files, file("6", 5, "b")]
    chosen = bins_of(more, 100, [(("p", "b"),)])
    assert [[one.path for one in found] for found in chosen] == [["6", "5"]]
