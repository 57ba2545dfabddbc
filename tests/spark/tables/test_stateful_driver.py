"""`StatefulDriver` without Spark: forbidden batches, crashes, and no skip from memory."""

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.core.clock import SystemClock
from penstock.spark.tables.commit.circuit_breaker import CircuitOpenError
from penstock.spark.tables.commit.note import (
    BatchRanges,
    CommitCounts,
    PartitionRange,
    StateNote,
)
from penstock.spark.tables.files.data_files import write_files
from penstock.spark.tables.formats.rejects import REJECTS
from penstock.spark.tables.run.batches import acquire_tables
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.run.stateful import state_driver
from penstock.spark.tables.run.stateful.state_driver import ResultBatch, StatefulDriver
from penstock.spark.tables.tasks.report import BatchReport
from tests.spark.tables.table_kinds import (
    DeltaKind,
    FakeKind,
    IcebergKind,
    Kind,
    offsets_in,
    written,
)
from tests.spark.tables.test_committer import CrashError, Unreliable, committer


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
    # Neither judged nor counted again: `require` notes the offer for the circuit breaker.
    assert not world.driver.commit(world.batch(), refuse), "a repeated batch"
    assert world.files() == 1


def test_the_table_is_read_again_before_a_skip(tmp_path: Path) -> None:
    world = World(tmp_path)
    before = world.kind.store.current
    assert world.driver.commit(world.batch(), accept)
    world.kind.store.current = before  # rolled back, and the driver remembers the batch
    world.kind.store.kept.clear()
    assert world.driver.commit(world.batch(), accept), "the table has lost the batch"


# --- A crash between the commits of rejects and rows ---


class Tables:
    """Both tables of one kind, and one driver after the other."""

    def __init__(self, folder: Path, kind: type[FakeKind | DeltaKind | IcebergKind]) -> None:
        for name in ("rows", "rejects"):
            (folder / name).mkdir()
        self.rows: Kind = kind(folder / "rows")
        self.rejects: Kind = kind(folder / "rejects", schema=REJECTS)
        for one in (self.rows, self.rejects):
            one.create()

    def live(self, run: str, bad: list[int], *faults: str) -> None:
        """Commit the batch of ten offsets by a definition for which these are bad."""
        rows = committer(table := Unreliable(self.rows.open()), run)
        rejects = committer(self.rejects.open(), run)
        acquire_tables(rejects, rows)
        table.faults += faults
        driver = StatefulDriver(rows, rejects, SystemClock())
        driver.commit(self._batch(rows, rejects, run, bad), accept)

    def _batch(
        self, rows: TableCommitter, rejects: TableCommitter, meaning: str, bad: list[int]
    ) -> ResultBatch:
        good = [(0, one, one + 1) for one in range(10) if one not in bad]
        layouts = rows.table.layout(rows.table.schema()), rejects.table.layout(REJECTS)
        report = BatchReport(
            BatchRanges((PartitionRange("orders", 0, 0, 10),)),
            CommitCounts(len(good), len(bad)),
            10,
            (),
            tuple(written(rows.table, *good)),
            tuple(write_files(rejects_of(bad).to_batches(), layouts[1], f"rejects-{meaning}")),
            (),
            None,
        )
        place = StateNote("one", 0, 10, 0, 0, meaning)
        return ResultBatch(report, place, layouts[0].directory, layouts[1].directory)

    def offsets(self) -> list[int]:
        """The offsets of both tables, in order; a double is there twice."""
        rows = [offset for _, offset in offsets_in(self.rows.read())]
        return sorted([*rows, *self.rejects.read()["offset"].to_pylist()])


def rejects_of(offsets: list[int]) -> pa.Table:
    values = {
        "topic": "orders",
        "partition": 0,
        "pipeline": "orders",
        "error_class": "malformed",
    }
    rows = [
        {one.name: None if one.nullable else _filler(one) for one in REJECTS}
        | values
        | {"offset": at}
        for at in offsets
    ]
    return pa.Table.from_pylist(rows, REJECTS)


def _filler(field: pa.Field) -> object:
    return "" if pa.types.is_string(field.type) else 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", [FakeKind, DeltaKind, IcebergKind])
@pytest.mark.parametrize("bad", [[], [3], [5, 7], list(range(10))])
def test_another_definition_replaces_the_rejects_of_a_crashed_batch(
    kind: type[FakeKind | DeltaKind | IcebergKind], bad: list[int], tmp_path: Path
) -> None:
    tables = Tables(tmp_path, kind)
    with pytest.raises(CrashError):
        tables.live("former", [3, 4, 5], "crash before")
    assert tables.offsets() == [3, 4, 5], "its rejects are there, its rows are not"
    with pytest.raises(CrashError):
        tables.live("former again", [4], "crash before")
    tables.live("changed", bad)
    assert tables.offsets() == list(range(10)), "each record is in one table, once"


def test_without_the_replacement_a_record_is_in_both_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables(tmp_path, FakeKind)
    with pytest.raises(CrashError):
        tables.live("former", [3, 4, 5], "crash before")
    monkeypatch.setattr(state_driver, "commit_rejects", lambda *_: None)
    tables.live("changed", [])
    assert tables.offsets() != list(range(10))
