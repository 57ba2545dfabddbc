"""A command that starts its pipeline again leaves the tables to a driver that came meanwhile.

`run_pipeline` itself runs, with tables on disk. Only Spark and what follows the acquisition of the
tables are replaced: each start does what the test says.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Event
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

from penstock.core.errors import BrokerUnreachableError
from penstock.spark import pipeline_runs
from penstock.spark.pipeline_files import LoadedPipeline
from penstock.spark.pipeline_runs import RunChoice, SessionChoice, run_pipeline
from penstock.spark.tables.commit.command_breaker import CommandBreaker
from penstock.spark.tables.commit.decisions import Offer
from penstock.spark.tables.commit.note import BatchRanges, CommitNote, PartitionRange
from penstock.spark.tables.commit.owned_tables import Owned
from penstock.spark.tables.commit.steps import Committed
from penstock.spark.tables.commit.stops import CommitStoppedError, StopReason
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.formats.opening import make_table, open_table
from penstock.spark.tables.formats.rejects import REJECTS
from penstock.spark.tables.operation.pipeline_restarts import RestartPolicy
from penstock.spark.tables.run.batches import acquire_tables
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.run.stream_query import PipelineStoppedError
from tests.spark.tables.value_world import ValueWorld

NAME = "orders"
ANOTHER = "another"
AWAY = BrokerUnreachableError("no broker answers")


@contextmanager
def committers(
    definition: PipelineDefinition, owned: Owned
) -> Iterator[tuple[TableCommitter, TableCommitter]]:
    """The committers of rejects and rows of one driver."""
    settings = definition.table
    rows = make_table(settings, settings.name, pa.schema([pa.field("n", pa.int32())]))
    rejects = make_table(settings, settings.dlq_name, REJECTS)
    try:
        yield (
            TableCommitter(rejects, NAME, owned.run, owned=owned.rejects),
            TableCommitter(rows, NAME, owned.run, owned=owned.rows),
        )
    finally:
        rows.close()
        rejects.close()


def acquire(definition: PipelineDefinition, owned: Owned) -> None:
    with committers(definition, owned) as (rejects, rows):
        acquire_tables(rejects, rows)


class Command:
    """One command, whose starts run in turn; a start that ends well ends the command."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.definition = ValueWorld(folder, "delta", "n int").definition()
        self.starts: list[Callable[[Owned], None]] = []
        self.stop = _Stop()
        self.breakers: list[CommandBreaker] = []
        starts, breakers = self.starts, self.breakers

        class Pipeline:
            def __init__(
                self, *_: object, owned: Owned, breaker: CommandBreaker, **__: object
            ) -> None:
                self._owned = owned
                breakers.append(breaker)

            def start(self, *_: object, **__: object) -> MagicMock:
                starts.pop(0)(self._owned)
                return MagicMock()

        monkeypatch.setattr(pipeline_runs, "TablePipeline", Pipeline)
        monkeypatch.setattr(pipeline_runs, "session_of", lambda *_: nullcontext())

    def run(self) -> None:
        policy = RestartPolicy(5, is_explicit=True)
        run_pipeline(
            LoadedPipeline(self.definition),
            SessionChoice(),
            RunChoice(once=True, restarts=policy),
            listener=MagicMock(),
            stop=self.stop,
        )

    def acquires(self, owned: Owned) -> None:
        acquire(self.definition, owned)

    def acquires_and_fails(self, owned: Owned) -> None:
        acquire(self.definition, owned)
        raise AWAY

    def acquires_rejects_and_fails(self, owned: Owned) -> None:
        with committers(self.definition, owned) as (rejects, _):
            rejects.take()
        raise AWAY

    def fails(self, _: Owned) -> None:
        raise AWAY

    def another_acquires(self) -> None:
        acquire(self.definition, Owned(ANOTHER))

    def another_acquires_first(self, owned: Owned) -> None:
        """Another driver is quicker, after the check of the owner and before the acquisition."""
        self.another_acquires()
        acquire(self.definition, owned)

    def owner(self) -> CommitNote:
        settings = self.definition.table
        table = open_table(settings, settings.name, is_read_only=True)
        try:
            return table.load().notes[NAME]
        finally:
            table.close()


class _Stop(Event):
    """A stop that is not set, whose pauses do what the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.pause: Callable[[], None] = lambda: None

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.pause()
        return False


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(tmp_path, monkeypatch)


def run_and_be_replaced(command: Command) -> None:
    """Run the command, and require that it left the table to the other driver."""
    with pytest.raises(CommitStoppedError) as stopped:
        command.run()
    assert stopped.value.reason is StopReason.FENCED
    assert command.owner().run == ANOTHER


def test_a_start_that_fails_after_it_acquired_the_table_is_repeated(command: Command) -> None:
    command.starts += [command.acquires_and_fails, command.acquires]
    command.run()
    assert not command.starts
    assert command.owner().epoch == 1, "all starts of a command are one driver"
    first, second = command.breakers
    assert first is second, "they count their bad records together"


def test_a_start_that_fails_after_it_acquired_the_table_checks_the_owner(command: Command) -> None:
    command.starts += [command.acquires_and_fails, command.acquires]
    command.stop.pause = command.another_acquires
    run_and_be_replaced(command)


def test_a_driver_that_comes_while_a_restart_prepares_keeps_the_table(command: Command) -> None:
    command.starts += [command.acquires_and_fails, command.another_acquires_first]
    run_and_be_replaced(command)


def test_a_start_that_acquired_only_the_rejects_leaves_them_too(command: Command) -> None:
    command.starts += [command.acquires_rejects_and_fails, command.acquires]
    command.stop.pause = command.another_acquires
    run_and_be_replaced(command)


def test_a_start_that_acquired_nothing_takes_the_table_as_the_first_one(command: Command) -> None:
    command.another_acquires()
    command.starts += [command.fails, command.acquires]
    command.run()
    assert command.owner().run != ANOTHER


@pytest.mark.parametrize("moment", ["in the pause", "while the restart prepares"])
def test_a_refused_start_with_restarts_left_does_not_stop_the_next_one(
    command: Command, moment: str
) -> None:
    """Spark refuses a changed function only after the tables were acquired."""

    def refused(owned: Owned) -> None:
        acquire(command.definition, owned)
        raise PipelineStoppedError("pipeline 'orders' did not start: its state has other columns")

    next_one = Owned(ANOTHER)
    with committers(command.definition, next_one) as (rejects, rows):

        def prepares(owned: Owned) -> None:
            if moment != "in the pause":
                acquire_tables(rejects, rows)
            acquire(command.definition, owned)

        def pause() -> None:
            if moment == "in the pause":
                acquire_tables(rejects, rows)

        command.stop.pause = pause
        command.starts += [refused, prepares]
        run_and_be_replaced(command)
        ranges = BatchRanges((PartitionRange("orders", 0, 0, 10),))
        for one in (rejects, rows):
            assert isinstance(one.commit(Offer(one.driver, ranges), ()), Committed)
