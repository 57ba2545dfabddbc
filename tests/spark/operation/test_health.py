"""When a pipeline is alive and ready, with its reasons."""

import pytest

from penstock.core.types import TopicPartition
from penstock.spark.tables.operation.failures import Failure
from penstock.spark.tables.operation.pipeline_health import (
    SILENT_MS_MAX,
    STALLED_MS_MIN,
    Health,
    health_of,
)
from penstock.spark.tables.operation.pipeline_restarts import Restart
from penstock.spark.tables.operation.run_state import RunState
from tests.node.security.manual_clock import ManualClock
from tests.spark.operation.run_events import AT, PIPELINE, TABLES, batch

INTERVAL_MS = 30_000


class World:
    def __init__(self) -> None:
        self.clock = ManualClock(now_ms=1_000_000)
        self.state = RunState(PIPELINE, TABLES, self.clock)

    def health(self) -> Health:
        return health_of(self.state, INTERVAL_MS)

    def run(self) -> None:
        self.state.started(None, is_continuous=True)


@pytest.fixture
def world() -> World:
    return World()


def test_it_is_ready_while_the_query_runs(world: World) -> None:
    assert (world.health().is_ready, world.health().reasons) == (False, ("it starts",))
    world.run()
    assert (world.health().is_ready, world.health().reasons) == (True, ())
    world.state.ended()
    assert world.health().reasons == ("it has ended",)


def test_a_pause_has_the_failure_and_the_time_that_is_left(world: World) -> None:
    world.run()
    world.state.failed(Failure("brokers", "no broker answers\n\x1b"))
    world.state.waits(Restart(8_000, 3))
    world.clock.advance(2)
    (reason,) = world.health().reasons
    assert reason.startswith("restart 3 follows in 6")
    assert "no broker answers" in reason
    assert reason.isprintable()
    assert world.health().is_live


def test_a_driver_that_does_not_work_is_not_alive(world: World) -> None:
    world.run()
    world.clock.advance(SILENT_MS_MAX / 1000 + 1)
    assert not world.health().is_live
    world.state.beat()
    assert world.health().is_live


def test_a_long_start_and_a_long_batch_of_a_run_with_an_end_are_alive(world: World) -> None:
    world.clock.advance(3_600)
    assert world.health().is_live
    world.state.started(None, is_continuous=False)
    world.clock.advance(3_600)
    assert world.health().is_live


def test_a_lag_without_commits_is_not_ready(world: World) -> None:
    world.run()
    world.state.batch_done(batch(committed_at_ms=world.clock.now_ms()))
    world.state.places_seen({AT: (10, 12)})
    world.clock.advance(STALLED_MS_MIN / 1000)
    world.state.beat()
    assert world.health().is_ready
    world.clock.advance(1)
    (reason,) = world.health().reasons
    assert reason.startswith("no commit for ")
    world.state.batch_done(batch(10, 12, ends={AT: 20}, committed_at_ms=world.clock.now_ms()))
    world.state.beat()
    assert world.health().is_ready


def test_an_idle_topic_is_ready_for_ever(world: World) -> None:
    world.run()
    world.state.places_seen({AT: (10, 10), TopicPartition("orders", 1): (0, 0)})
    world.clock.advance(100_000)
    world.state.beat()
    assert world.health().is_ready


def test_an_unreachable_broker_is_a_reason(world: World) -> None:
    world.run()
    world.state.broker_away("127.0.0.1:9092 refused")
    assert world.health().reasons == ("no broker answers: 127.0.0.1:9092 refused",)
    world.state.places_seen({})
    assert world.health().is_ready
