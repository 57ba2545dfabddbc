"""`StatefulDriver` without Spark: a forbidden batch leaves nothing, and no skip from memory."""

from pathlib import Path

import pytest

from penstock.core.clock import SystemClock
from penstock.spark.tables.commit.circuit_breaker import CircuitOpenError
from penstock.spark.tables.commit.note import (
    BatchRanges,
    CommitCounts,
    PartitionRange,
    StateNote,
)
from penstock.spark.tables.formats.rejects import REJECTS
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.run.stateful.state_driver import ResultBatch, StatefulDriver
from penstock.spark.tables.tasks.report import BatchReport
from tests.spark.tables.table_kinds import FakeKind, written
from tests.spark.tables.test_committer import committer


class World:
    """Both tables, in memory, and one driver."""

    def __init__(self, folder: Path) -> None:
        self.kind = FakeKind(folder / "rows")
        self.kind.folder.mkdir()
        self.rows = self._taken(self.kind)
        self.rejects = self._taken(FakeKind(folder / "rejects", schema=REJECTS))
        self.driver = StatefulDriver(self.rows, self.rejects, SystemClock())

    def _taken(self, kind: FakeKind) -> TableCommitter:
        found = committer(kind.open(), "run")
        found.take()
        return found

    def batch(self) -> ResultBatch:
        files = tuple(written(self.rows.table, (0, 0, 10)))
        ranges = BatchRanges((PartitionRange("orders", 0, 0, 10),))
        report = BatchReport(ranges, CommitCounts(10), 10, (), files, (), (), None)
        folder = str(self.kind.folder)
        return ResultBatch(report, StateNote("one", 0, 10, 0), folder, folder)

    def files(self) -> int:
        return len(list(self.kind.folder.rglob("*.parquet")))


def refuse() -> None:
    raise CircuitOpenError("too many bad records")


def accept() -> None:
    """The batch may be committed."""


def test_a_batch_that_is_forbidden_leaves_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(CircuitOpenError):
        world.driver.commit(world.batch(), refuse)
    assert world.rows.table.load().notes["orders"].state is None
    assert world.files() == 0
    assert world.driver.commit(world.batch(), accept), "afresh, with another definition"
    assert not world.driver.commit(world.batch(), refuse), "a repeated batch is not judged"
    assert world.files() == 1


def test_the_table_is_read_again_before_a_skip(tmp_path: Path) -> None:
    world = World(tmp_path)
    before = world.kind.store.current
    assert world.driver.commit(world.batch(), accept)
    world.kind.store.current = before  # rolled back, and the driver remembers the batch
    world.kind.store.kept.clear()
    assert world.driver.commit(world.batch(), accept), "the table has lost the batch"
