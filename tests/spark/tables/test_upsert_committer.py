"""The committer with upserts: a crash at each step, lost answers, drivers that race."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.core.types import TopicPartition
from penstock.spark.tables.commit.decisions import Commit, Skip, TableState, Trim
from penstock.spark.tables.commit.steps import Committed
from penstock.spark.tables.commit.stops import CommitStoppedError, StopReason
from penstock.spark.tables.files.upsert import Changes
from penstock.spark.tables.formats.change_files import changes_layout
from penstock.spark.tables.formats.port import AnswerLostError, Table, TableMovedError
from penstock.spark.tables.run.committer import TableCommitter
from tests.spark.tables.change_batches import SCHEMA, applied, commit_changes, rows_in, stream
from tests.spark.tables.table_kinds import (
    DeltaKind,
    FakeKind,
    IcebergKind,
    Kind,
    MergeOnReadKind,
)
from tests.spark.tables.test_committer import CrashError, no_wait, race

pytestmark = pytest.mark.slow

KINDS: dict[str, Callable[..., Kind]] = {
    "fake": FakeKind,
    "delta": DeltaKind,
    "iceberg": IcebergKind,
    "merge_on_read": MergeOnReadKind,
}


class Unreliable:
    """A table whose next upserts fail in a given way; the rest is the table's own."""

    def __init__(self, table: Table, *faults: str) -> None:
        self._table = table
        self.faults = list(faults)

    def __getattr__(self, name: str) -> object:
        return getattr(self._table, name)

    def upsert(
        self, commit: Commit, changes: Changes, schema: pa.Schema | None = None
    ) -> TableState:
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "crash before":
            raise CrashError
        if fault == "refused":
            raise TableMovedError("somebody else was quicker")
        state = self._table.upsert(commit, changes, schema)
        if fault == "crash after":
            raise CrashError
        if fault == "answer lost":
            raise AnswerLostError("timed out")
        return state


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    made = KINDS[request.param](tmp_path, schema=SCHEMA)
    made.create()
    return made


def committer(table: object, run: str) -> TableCommitter:
    return TableCommitter(table, "orders", run, sleep_s=no_wait)  # type: ignore[arg-type]


def leftovers(table: Table) -> int:
    """Files of changes that are still there."""
    folder = changes_layout(table, table.schema()).directory.removeprefix("file://")
    return len(list(Path(folder).glob("*.parquet")))


def test_batches_come_once_and_leave_no_files_of_changes(kind: Kind) -> None:
    one = committer(kind.open(), "run-a")
    one.take()
    assert isinstance(commit_changes(one, 0, 30), Committed)
    assert isinstance(commit_changes(one, 30, 60), Committed)
    again = committer(kind.open(), "run-b")
    resumed = again.take()
    assert resumed is not None
    assert resumed.positions[TopicPartition("orders", 0)].offset == 60
    assert isinstance(commit_changes(again, 0, 60), Skip)
    assert isinstance(commit_changes(again, 50, 70), Trim)
    assert leftovers(again.table) == 0
    assert rows_in(kind.read()) == applied({}, stream(0, 60))
    assert isinstance(commit_changes(again, 60, 70), Committed)
    assert rows_in(kind.read()) == applied({}, stream(0, 70))


@pytest.mark.parametrize("fault", ["crash before", "crash after"])
def test_a_crash_in_an_upsert_neither_loses_nor_repeats(kind: Kind, fault: str) -> None:
    first = committer(Unreliable(kind.open(), "", fault), "run-a")
    first.take()
    commit_changes(first, 0, 30)
    with pytest.raises(CrashError):
        commit_changes(first, 30, 60)
    assert leftovers(first.table) == 2
    second = committer(kind.open(), "run-b")
    second.take()
    replayed = commit_changes(second, 30, 60)
    assert isinstance(replayed, Skip if fault == "crash after" else Committed)
    commit_changes(second, 60, 90)
    assert rows_in(kind.read()) == applied({}, stream(0, 90))


def test_lost_answers_and_refusals_are_found_out(kind: Kind) -> None:
    faults = ["answer lost", "refused", "refused", "", "answer lost"]
    one = committer(Unreliable(kind.open(), *faults), "run-a")
    one.take()
    for start in range(0, 90, 30):
        assert isinstance(commit_changes(one, start, start + 30), Committed)
    assert rows_in(kind.read()) == applied({}, stream(0, 90))
    assert leftovers(one.table) == 0


def test_a_zombie_stops_and_its_successor_goes_on(kind: Kind) -> None:
    zombie, successor = committer(kind.open(), "run-a"), committer(kind.open(), "run-b")
    zombie.take()
    commit_changes(zombie, 0, 30)
    successor.take()
    commit_changes(successor, 30, 60)
    with pytest.raises(CommitStoppedError) as stopped:
        commit_changes(zombie, 30, 60)
    assert stopped.value.reason is StopReason.FENCED
    commit_changes(successor, 60, 90)
    assert rows_in(kind.read()) == applied({}, stream(0, 90))


@pytest.mark.parametrize("kind", ["delta", "iceberg", "merge_on_read"], indirect=True)
def test_two_drivers_and_a_compaction_race(kind: Kind) -> None:
    def drive(run: str) -> None:
        one = TableCommitter(kind.open(), "orders", run)
        resumed = one.take()
        at = 0 if resumed is None else resumed.positions[TopicPartition("orders", 0)].offset
        while at < 120:
            commit_changes(one, at, at + 20)
            at += 20

    def compact() -> None:
        table = kind.open()
        for _ in range(5):
            try:
                table.compact(table.load(), target_bytes=2**20)
            except (TableMovedError, AnswerLostError):
                continue

    raised = race(lambda: drive("run-a"), lambda: drive("run-b"), compact)
    assert len(raised) <= 1
    assert rows_in(kind.read()) == applied({}, stream(0, 120))
