"""A streaming query without Spark: its tasks and its driver, as the sink sees them.

A `Job` is one query with its topics; a `JobRun` is one start of it. A test may crash a driver
before or after any of its steps.
"""

import itertools
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from penstock.client.calls import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NewTopic
from penstock.client.cluster import Cluster
from penstock.client.opening import open_cluster
from penstock.client.records.range_reader import RangeReader
from penstock.spark.decode.columns import BatchDecoder
from penstock.spark.sink.options import SinkOptions, find_columns, read_sink_options
from penstock.spark.sink.steps import Step
from penstock.spark.sink.task_writing import TaskIdentity, write_exactly_once
from penstock.spark.sink.transactions import RunIdentity, SinkDriver, TaskResult, check_start

PARTITIONS = 3
PATIENCE_SECONDS = 30.0
VALUES = [b"%03d" % n for n in range(60)]
NEXT_VALUES = [b"next-%03d" % n for n in range(20)]


class CrashError(Exception):
    """The driver's process has crashed."""


class CrashingDriver(SinkDriver):
    """A driver that crashes at a step of a kind, or at the step of a number."""

    crash_at: int | type | None = None
    is_after: bool = False
    error: Exception = CrashError()
    """What it meets there; one of the client's errors is no crash."""
    steps: list[type]

    def carry_out(self, step: Step) -> Any:  # noqa: ANN401
        """Carry it out, unless the time has come."""
        self.steps.append(type(step))
        is_due = self.crash_at in (len(self.steps), type(step))
        if is_due and not self.is_after:
            raise self.error
        answer = super().carry_out(step)
        if is_due:
            raise self.error
        return answer


class Job:
    """A query, its output and its checkpoint."""

    def __init__(self, bootstrap: str, **options: str) -> None:
        self.query = str(uuid.uuid4())
        self.attempts: Iterator[int] = itertools.count()
        """The numbers that Spark gives to attempts of tasks."""
        self.topic = f"out-{self.query}"
        self.options: SinkOptions = read_sink_options(
            {"kafka.bootstrap.servers": bootstrap, "topic": self.topic, **options}, is_stream=True
        )
        self.cluster: Cluster = open_cluster(self.options.client)
        self.cluster.create_topic(NewTopic(self.topic, PARTITIONS))
        check_start(self.cluster, self.options)

    def start(self, crash_at: int | type | None = None, *, is_after: bool = False) -> "JobRun":
        """Start it once more."""
        return JobRun(self, crash_at, is_after=is_after)

    def visible_values(self) -> list[bytes]:
        """What a reader of committed records gets, sorted."""
        values: list[bytes] = []
        for at in self.cluster.partitions_of(self.topic):
            end = self._stable_end(at)
            start = self.cluster.find_offsets({at: EARLIEST_TIMESTAMP})[at]
            decoder = BatchDecoder(
                at.topic, at.partition, start, end, include_headers=False, is_read_committed=True
            )
            for fetched in RangeReader(self.cluster, at, start, end, is_read_committed=True):
                for rows in decoder.feed(fetched.data, fetched.aborted):
                    values += rows["value"].to_pylist()
            for rows in decoder.finish():
                values += rows["value"].to_pylist()
        return sorted(values)

    def is_anything_open(self) -> bool:
        """Whether a transaction holds back readers of the output."""
        return any(
            self._end(at, is_read_committed=True) < self._end(at, is_read_committed=False)
            for at in self.cluster.partitions_of(self.topic)
        )

    def _stable_end(self, at: Any) -> int:  # noqa: ANN401
        """Markers are written after the answer: wait for those of what was ended."""
        deadline = time.monotonic() + 1.0
        while True:
            stable = self._end(at, is_read_committed=True)
            if stable == self._end(at, is_read_committed=False) or time.monotonic() > deadline:
                return stable
            time.sleep(0.01)

    def _end(self, at: Any, *, is_read_committed: bool) -> int:  # noqa: ANN401
        found = self.cluster.look_up_offsets(
            {at: LATEST_TIMESTAMP}, is_read_committed=is_read_committed
        )
        return found[at].offset

    def close(self) -> None:
        """Give the connections back."""
        self.cluster.close()


class JobRun:
    """One start of the query, with processes of its own."""

    def __init__(self, job: Job, crash_at: int | type | None, *, is_after: bool) -> None:
        self.job = job
        self.identity = RunIdentity(job.query, f"run-{uuid.uuid4()}")
        self.driver = CrashingDriver(job.cluster, job.options, self.identity)
        self.driver.crash_at = crash_at
        self.driver.is_after = is_after
        self.driver.steps = []

    def write(self, batch_id: int, parts: Sequence[Sequence[bytes]]) -> list[TaskResult]:
        """The tasks of a batch; each part is one task's rows."""
        columns = find_columns([("value", "binary")], self.job.topic)
        results = []
        for number, values in enumerate(parts):
            task = TaskIdentity(self.identity, batch_id, number, 0, next(self.job.attempts))
            rows = pa.record_batch([pa.array(values, pa.binary())], names=["value"])
            results.append(write_exactly_once(self.job.options, columns, iter([rows]), task))
        return results

    def run_batch(self, batch_id: int, parts: Sequence[Sequence[bytes]]) -> None:
        """A whole micro-batch; like Spark, it aborts when the commit fails."""
        results = self.write(batch_id, parts)
        try:
            self.driver.commit(results, batch_id)
        except CrashError:
            raise
        except Exception:
            self.driver.abort(results)
            raise


def cut(values: list[bytes], count: int) -> list[list[bytes]]:
    """The rows of a batch as so many tasks; one more has none."""
    return [[], *(values[n::count] for n in range(count))]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
