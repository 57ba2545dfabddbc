"""A pipeline that fails and is started again, without Spark: the order of the calls."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event

import pytest

from penstock.core.errors import BrokerUnreachableError
from penstock.spark.tables.commit.decisions import NOBODY, Driver, TableState
from penstock.spark.tables.commit.note import CommitNote, NoteKind
from penstock.spark.tables.commit.owned_tables import replaced
from penstock.spark.tables.commit.stops import CommitStoppedError, StopReason
from penstock.spark.tables.operation.failures import Failure
from penstock.spark.tables.operation.pipeline_restarts import HEALTHY_MS, Restart, RestartPolicy
from penstock.spark.tables.operation.supervision import Attempt, supervise
from tests.node.security.manual_clock import ManualClock

DRIVER = Driver("orders", "run-1", 3)


class InstantStop(Event):
    """A stop that is not set, and whose waits return at once."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits.append(timeout)
        return self.is_set()


@dataclass
class Heard:
    failures: list[Failure] = field(default_factory=list)
    restarts: list[Restart] = field(default_factory=list)

    def failed(self, failure: Failure) -> None:
        self.failures.append(failure)

    def waits(self, restart: Restart) -> None:
        self.restarts.append(restart)


class World:
    """Attempts that run as a test says."""

    def __init__(self, *ends: Exception | None, policy: RestartPolicy | None = None) -> None:
        self.clock = ManualClock()
        self.stop = InstantStop()
        self.heard = Heard()
        self.lines: list[str] = []
        self._ends = list(ends)
        self._policy = policy or RestartPolicy(10)
        self.during: Callable[[], None] = lambda: None
        self.commits = True

    def run(self, seconds: float = 1.0) -> None:
        def attempt(now: Attempt) -> None:
            now.started()
            now.has_committed = self.commits
            self.clock.advance(seconds)
            self.during()
            end = self._ends.pop(0)
            if end is not None:
                raise end

        supervise(
            attempt,
            self._policy,
            stop=self.stop,
            clock=self.clock,
            listener=self.heard,
            log=self.lines.append,
            chance=lambda: 0.0,
        )


AWAY = BrokerUnreachableError("no broker answers")


def test_it_runs_again_until_it_ends_well() -> None:
    world = World(AWAY, AWAY, None)
    world.run()
    assert world.stop.waits == [1.0, 2.0]
    assert [one.word for one in world.heard.failures] == ["brokers"] * 2
    assert world.lines == [
        "restart 1 of 10 in 1.0 s (brokers): no broker answers",
        "restart 2 of 10 in 2.0 s (brokers): no broker answers",
    ]


def test_a_lasting_failure_is_raised_unchanged() -> None:
    error = CommitStoppedError(StopReason.FENCED, "another driver")
    world = World(AWAY, error)
    with pytest.raises(CommitStoppedError) as raised:
        world.run()
    assert raised.value is error
    assert [one.may_pass for one in world.heard.failures] == [True, False]
    assert len(world.lines) == 1


def test_the_last_failure_is_raised_when_no_restart_is_left() -> None:
    world = World(AWAY, AWAY, policy=RestartPolicy(1))
    with pytest.raises(BrokerUnreachableError):
        world.run()
    assert world.lines[-1] == "it ends after 1 restarts in a row"


def test_after_a_healthy_run_the_pauses_begin_again() -> None:
    world = World(AWAY, AWAY, AWAY, None)
    world.run(seconds=HEALTHY_MS / 1000)
    assert world.stop.waits == [1.0, 1.0, 1.0]


def test_a_run_without_a_commit_is_healthy_after_an_hour() -> None:
    """A batch that fails after each minute ends the command; a silent topic does not."""
    for seconds, waits in ((HEALTHY_MS / 1000, [1.0, 2.0]), (3_600.0, [1.0, 1.0])):
        world = World(AWAY, AWAY, None)
        world.commits = False
        world.run(seconds=seconds)
        assert world.stop.waits == waits


def test_a_stop_ends_the_pause() -> None:
    world = World(AWAY)
    world.during = world.stop.set
    world.run()
    assert len(world.stop.waits) == 1


def state_with(note: CommitNote | None) -> TableState:
    return TableState({} if note is None else {"orders": note})


def test_a_restart_leaves_the_table_to_a_driver_that_came_since() -> None:
    own = CommitNote("orders", NoteKind.BATCH, "run-1", 3, 9)
    assert replaced(state_with(own), DRIVER) is None
    stops = {
        StopReason.FENCED: CommitNote("orders", NoteKind.TAKE, "run-2", 4, 10),
        StopReason.FORGOTTEN: CommitNote("orders", NoteKind.FORGET, NOBODY, 4, 10),
        StopReason.WENT_BACK: CommitNote("orders", NoteKind.BATCH, NOBODY, 3, 10),
    }
    for reason, note in stops.items():
        stop = replaced(state_with(note), DRIVER)
        assert stop is not None
        assert stop.reason is reason
    gone = replaced(state_with(None), DRIVER)
    assert gone is not None
    assert gone.reason is StopReason.WENT_BACK
