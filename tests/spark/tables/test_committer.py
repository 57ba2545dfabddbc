"""The committer on real tables: a crash at each step, lost answers, drivers that race."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.core.types import TopicPartition
from penstock.spark.tables.commit.decisions import Commit, Offer, Skip, TableState, Trim
from penstock.spark.tables.commit.note import CommitCounts
from penstock.spark.tables.commit.steps import ATTEMPTS_MAX, Committed
from penstock.spark.tables.commit.stops import CommitStoppedError, StopReason
from penstock.spark.tables.files.data_files import FileReceipt
from penstock.spark.tables.formats.port import AnswerLostError, Table, TableMovedError
from penstock.spark.tables.run.committer import TableCommitter
from tests.spark.tables.table_kinds import (
    DeltaKind,
    FakeKind,
    IcebergKind,
    Kind,
    batch_ranges,
    offsets_in,
    span,
    written,
)

pytestmark = pytest.mark.slow


class CrashError(Exception):
    """The driver has crashed."""


class Unreliable:
    """A table whose next commits fail in a given way; the rest is the table's own."""

    def __init__(self, table: Table, *faults: str) -> None:
        self._table = table
        self.faults = list(faults)

    def __getattr__(self, name: str) -> object:
        return getattr(self._table, name)

    def append(
        self, commit: Commit, files: Sequence[FileReceipt], schema: pa.Schema | None = None
    ) -> TableState:
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "crash before":
            raise CrashError
        if fault == "refused":
            raise TableMovedError("somebody else was quicker")
        state = self._table.append(commit, files, schema)
        if fault == "crash after":
            raise CrashError
        if fault == "answer lost":
            raise AnswerLostError("timed out")
        return state


@pytest.fixture(params=[FakeKind, DeltaKind, IcebergKind], ids=["fake", "delta", "iceberg"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    made: Kind = request.param(tmp_path)
    made.create()
    return made


def no_wait(seconds: float) -> None:
    """Tests do not sleep."""


def committer(table: object, run: str, pipeline: str = "orders") -> TableCommitter:
    return TableCommitter(table, pipeline, run, sleep_s=no_wait)  # type: ignore[arg-type]


def commit_ranges(one: TableCommitter, *found: tuple[int, int, int]) -> Committed | Skip | Trim:
    """Write the files of a batch and commit it."""
    rows = sum(end - start for _, start, end in found)
    offer = Offer(one.driver, batch_ranges(*found), CommitCounts(rows))
    return one.commit(offer, written(one.table, *found))


def test_batches_come_in_and_a_restart_goes_on(kind: Kind) -> None:
    first = committer(kind.open(), "run-a")
    assert first.take() is None
    assert isinstance(commit_ranges(first, (0, 0, 10)), Committed)
    assert isinstance(commit_ranges(first, (0, 10, 20), (1, 0, 5)), Committed)
    second = committer(kind.open(), "run-b")
    resumed = second.take()
    assert resumed is not None
    found = {at: one.offset for at, one in resumed.positions.items()}
    assert found == {TopicPartition("orders", 0): 20, TopicPartition("orders", 1): 5}
    assert isinstance(commit_ranges(second, (0, 10, 20), (1, 0, 5)), Skip)
    trimmed = commit_ranges(second, (0, 15, 25), (1, 5, 6))
    assert isinstance(trimmed, Trim)
    left = [(one.partition, one.start_offset, one.end_offset) for one in trimmed.left.ranges]
    assert isinstance(commit_ranges(second, *left), Committed)
    assert offsets_in(kind.read()) == span(0, 0, 25) + span(1, 0, 6)


@pytest.mark.parametrize("fault", ["crash before", "crash after"])
def test_a_crash_in_a_commit_neither_loses_nor_doubles(kind: Kind, fault: str) -> None:
    first = committer(Unreliable(kind.open(), "", "", fault), "run-a")
    first.take()
    commit_ranges(first, (0, 0, 10))
    with pytest.raises(CrashError):
        commit_ranges(first, (0, 10, 20))
    second = committer(kind.open(), "run-b")
    second.take()
    replayed = commit_ranges(second, (0, 10, 20))
    assert isinstance(replayed, Skip if fault == "crash after" else Committed)
    commit_ranges(second, (0, 20, 30))
    assert offsets_in(kind.read()) == span(0, 0, 30)


@pytest.mark.parametrize("fault", ["crash before", "crash after"])
def test_a_crash_while_the_table_is_taken_stops_nobody(kind: Kind, fault: str) -> None:
    with pytest.raises(CrashError):
        committer(Unreliable(kind.open(), fault), "run-a").take()
    second = committer(kind.open(), "run-b")
    second.take()
    commit_ranges(second, (0, 0, 10))
    assert offsets_in(kind.read()) == span(0, 0, 10)


def test_a_lost_answer_is_found_out(kind: Kind) -> None:
    one = committer(Unreliable(kind.open(), "answer lost", "refused", "answer lost"), "run-a")
    one.take()
    assert one.driver.epoch == 1
    result = commit_ranges(one, (0, 0, 10))
    assert isinstance(result, Committed)
    assert result.note.counts.rows == 10
    commit_ranges(one, (0, 10, 20))
    assert offsets_in(kind.read()) == span(0, 0, 20)


def test_a_table_that_never_lets_anybody_in_is_told(kind: Kind) -> None:
    one = committer(Unreliable(kind.open(), "", *["refused"] * ATTEMPTS_MAX), "run-a")
    one.take()
    with pytest.raises(CommitStoppedError, match="attempts") as stopped:
        commit_ranges(one, (0, 0, 10))
    assert stopped.value.reason is StopReason.BUSY
    commit_ranges(one, (0, 0, 10))
    assert offsets_in(kind.read()) == span(0, 0, 10)


def test_a_zombie_stops_and_its_successor_goes_on(kind: Kind) -> None:
    zombie, successor = committer(kind.open(), "run-a"), committer(kind.open(), "run-b")
    zombie.take()
    commit_ranges(zombie, (0, 0, 10))
    successor.take()
    with pytest.raises(CommitStoppedError) as stopped:
        commit_ranges(zombie, (0, 10, 20))
    assert stopped.value.reason is StopReason.FENCED
    commit_ranges(successor, (0, 10, 20))
    with pytest.raises(CommitStoppedError):
        commit_ranges(zombie, (0, 10, 20))
    assert offsets_in(kind.read()) == span(0, 0, 20)


def race(*bodies: Callable[[], None]) -> list[BaseException]:
    """Run all of them at once; what they raised."""
    raised: list[BaseException] = []
    start = threading.Barrier(len(bodies))

    def run(body: Callable[[], None]) -> None:
        start.wait()
        try:
            body()
        except CommitStoppedError as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


@pytest.mark.parametrize("kind", [DeltaKind, IcebergKind], ids=["delta", "iceberg"], indirect=True)
def test_two_drivers_of_one_pipeline_race(kind: Kind) -> None:
    def drive(run: str) -> None:
        one = TableCommitter(kind.open(), "orders", run)
        resumed = one.take()
        at = 0 if resumed is None else resumed.positions[TopicPartition("orders", 0)].offset
        while at < 60:
            commit_ranges(one, (0, at, at + 10))
            at += 10

    raised = race(lambda: drive("run-a"), lambda: drive("run-b"))
    assert all(
        isinstance(one, CommitStoppedError) and one.reason is StopReason.FENCED for one in raised
    )
    assert len(raised) <= 1
    assert offsets_in(kind.read()) == span(0, 0, 60)


@pytest.mark.parametrize("kind", [DeltaKind, IcebergKind], ids=["delta", "iceberg"], indirect=True)
def test_two_pipelines_and_two_compactions_race(kind: Kind) -> None:
    def drive(pipeline: str, partition: int) -> None:
        one = TableCommitter(kind.open(), pipeline, f"run of {pipeline}")
        one.take()
        for at in range(0, 50, 10):
            commit_ranges(one, (partition, at, at + 10))

    def compact() -> None:
        table = kind.open()
        for _ in range(5):
            try:
                table.compact(table.load(), target_bytes=2**20)
            except (TableMovedError, AnswerLostError):
                continue

    assert race(lambda: drive("one", 0), lambda: drive("two", 1), compact, compact) == []
    assert offsets_in(kind.read()) == span(0, 0, 50) + span(1, 0, 50)


def test_a_backfill_commits_what_was_before(kind: Kind) -> None:
    main = committer(kind.open(), "run-a")
    main.take(batch_ranges((0, 100, 100)))
    commit_ranges(main, (0, 100, 110))
    backfill = committer(kind.open(), "run-b", "orders backfill")
    backfill.take()
    commit_ranges(backfill, (0, 0, 100))
    with pytest.raises(CommitStoppedError) as stopped:
        commit_ranges(backfill, (0, 100, 101))
    assert stopped.value.reason is StopReason.OTHER_PIPELINE
    commit_ranges(main, (0, 110, 120))
    assert offsets_in(kind.read()) == span(0, 0, 120)
