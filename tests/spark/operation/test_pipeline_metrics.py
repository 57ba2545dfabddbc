"""The metrics of a pipeline: what they count, and that Prometheus's own linter accepts them."""

import re
import subprocess

import pytest

from penstock.admin.metrics_page import render
from penstock.core.types import TopicPartition
from penstock.spark.tables.commit.note import StateNote
from penstock.spark.tables.operation.failures import Failure
from penstock.spark.tables.operation.pipeline_metrics import (
    PARTITION_SERIES_MAX,
    PipelineMetrics,
)
from penstock.spark.tables.operation.pipeline_restarts import Restart
from penstock.spark.tables.operation.run_state import RunState
from penstock.spark.tables.run.events import DRIVER
from tests.node.security.manual_clock import ManualClock
from tests.oracle.cache import tool
from tests.spark.operation.run_events import AT, PIPELINE, TABLES, batch, maintained


class Metrics:
    """A pipeline's state and its page."""

    def __init__(self) -> None:
        self.clock = ManualClock(now_ms=1_000_000)
        self.state = RunState(PIPELINE, TABLES, self.clock)
        self.metrics = PipelineMetrics(self.state)

    def page(self) -> str:
        return render(self.metrics.registry, "")[0].decode()

    def value(self, name: str, **labels: str) -> float:
        """The value of one series; exactly one must match."""
        wanted = {"pipeline": PIPELINE, **labels}
        found = []
        for line in self.page().splitlines():
            match = re.fullmatch(rf"penstock_{name}\{{(.*)\}} (.+)", line)
            if match and dict(re.findall(r'(\w+)="([^"]*)"', match[1])) == wanted:
                found.append(float(match[2]))
        (value,) = found
        return value


@pytest.fixture
def world() -> Metrics:
    return Metrics()


def test_batches_are_counted_by_way_and_rejects_by_reason(world: Metrics) -> None:
    world.state.batch_done(batch(0, 10, rejects=3, rows=7, reject_classes={"malformed": 3}))
    world.state.batch_done(batch(10, 20, way=DRIVER, expectations={"positive": 2}, lost_offsets=5))
    world.state.batch_done(batch(10, 20, was_skipped=True))
    assert world.value("pipeline_records_total") == 20
    assert world.value("pipeline_rows_total") == 17
    assert world.value("pipeline_rejects_total", reason="malformed") == 3
    assert world.value("pipeline_rejects_total", reason="expectation") == 0
    assert world.value("pipeline_expectation_broken_total", expectation="positive") == 2
    assert world.value("pipeline_batches_total", way="driver") == 1
    assert world.value("pipeline_batches_total", way="tasks") == 1
    assert world.value("pipeline_repeated_batches_total") == 1
    assert world.value("pipeline_lost_offsets_total") == 5
    assert world.value("pipeline_files_total") == 2
    assert world.value("pipeline_freshness_seconds") == 2
    assert world.value("pipeline_commit_duration_seconds_count") == 3
    assert world.value("pipeline_commit_duration_seconds_bucket", le="0.05") == 3


def test_a_stateful_pipeline_has_a_watermark_and_late_records(world: Metrics) -> None:
    names = ("penstock_pipeline_watermark_lag_seconds{", "penstock_pipeline_late_records_total{")
    world.state.started(None, is_continuous=True)
    world.state.batch_done(batch())
    assert not any(name in world.page() for name in names), "it has no state"
    world.state.started(None, is_continuous=True, place=StateNote("one", 7, 10, 0, 2))
    assert world.value("pipeline_late_records_total") == 2
    assert names[0] not in world.page(), "no record has moved the watermark"
    place, classes = StateNote("one", 8, 10, 940_000, 5), {"late": 3, "future": 1}
    world.state.batch_done(batch(state=place, rejects=4, reject_classes=classes))
    assert world.value("pipeline_watermark_lag_seconds") == 60
    world.clock.advance(30)
    assert world.value("pipeline_watermark_lag_seconds") == 90
    assert world.value("pipeline_late_records_total") == 5
    assert world.value("pipeline_rejects_total", reason="future") == 1
    world.state.batch_done(batch(state=StateNote("one", 9, 10, 2_000_000, 5)))
    assert world.value("pipeline_watermark_lag_seconds") == 0, "events may be of the future"


def test_lag_in_records_and_seconds_by_partition_and_topic(world: Metrics) -> None:
    other = TopicPartition("orders", 1)
    world.state.places_seen({AT: (10, 10), other: (5, 9)})
    world.clock.advance(30)
    assert world.value("pipeline_lag_records", topic="orders") == 4
    assert world.value("pipeline_lag_seconds", topic="orders") == 30
    assert world.value("pipeline_partition_lag_seconds", topic="orders", partition="0") == 0
    assert world.value("pipeline_partition_position", topic="orders", partition="1") == 5
    world.state.batch_done(
        batch(5, 9, ends={AT: 10, other: 9}, position=batch().position)
    )  # the position of partition 1 is not in it: still from its beginning
    assert world.value("pipeline_partition_lag_records", topic="orders", partition="1") == 9


def test_a_pipeline_of_many_partitions_has_series_by_topic_only(world: Metrics) -> None:
    count = PARTITION_SERIES_MAX + 1
    world.state.places_seen({TopicPartition("t", n): (0, 2) for n in range(count)})
    assert world.value("pipeline_lag_records", topic="t") == 2 * count
    assert "penstock_pipeline_partition_lag_records{" not in world.page()


def test_restarts_and_the_last_failure(world: Metrics) -> None:
    assert world.value("pipeline_running") == 0
    world.state.started(None, is_continuous=True)
    assert world.value("pipeline_running") == 1
    world.state.failed(Failure("brokers", "no broker"))
    world.state.waits(Restart(1_000, 1))
    world.state.broker_away("no broker")
    assert world.value("pipeline_restarts_total", reason="brokers") == 1
    assert world.value("pipeline_restarts_total", reason="spark") == 0
    assert world.value("pipeline_last_failure", reason="brokers") == 1
    assert world.value("pipeline_last_failure_timestamp_seconds") == 1_000
    assert world.value("pipeline_broker_reachable") == 0


def test_maintenance_of_both_tables(world: Metrics) -> None:
    world.state.maintenance_done(maintained(TABLES[0]))
    world.state.maintenance_done(maintained(TABLES[1], "disk full"))
    assert world.value("pipeline_table_files", table=TABLES[0]) == 7
    assert world.value("pipeline_table_snapshots", table=TABLES[0]) == 3
    assert world.value("pipeline_maintenance_failures_total", table=TABLES[1]) == 1


@pytest.mark.interop
def test_promtool_accepts_the_page(world: Metrics) -> None:
    world.state.started(1, is_continuous=True)
    world.state.places_seen({AT: (1, 3)})
    world.state.batch_done(batch(expectations={"positive": 1}))
    world.state.maintenance_done(maintained(TABLES[0]))
    done = subprocess.run(
        [tool("promtool", "install Debian's package prometheus"), "check", "metrics"],
        input=world.page(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
