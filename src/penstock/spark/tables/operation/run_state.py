"""`RunState`: the state of a running pipeline for metrics and health. It draws and serves nothing.

Guarantees: every count is complete since the start of the command, across restarts; values of one
read belong together, because events and reads use one lock. Events arrive in the threads of the
driver, of Spark and of the broker's watch, and none of them waits longer than a read needs.

It is an observer of batches and maintenance, and is informed about starts, failures and restarts.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from threading import RLock
from typing import Final

from penstock.core.clock import Clock
from penstock.core.metrics import Histogram
from penstock.core.types import TopicPartition
from penstock.spark.tables.commit.note import StateNote
from penstock.spark.tables.operation.failures import Failure
from penstock.spark.tables.operation.lag_times import LagTimes, Place
from penstock.spark.tables.operation.pipeline_restarts import Restart
from penstock.spark.tables.run.events import BatchDone, MaintenanceDone

DURATION_BOUNDS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
"""Seconds; a small batch needs 0.1 s, and a batch of ten million records minutes."""


class Phase(Enum):
    """What the driver does now."""

    STARTING = "starting"
    """It starts Spark, checks the definition and acquires the tables."""
    RUNNING = "running"
    WAITING = "waiting"
    """It waits for the next start after a failure."""
    ENDED = "ended"


class RunState:
    """The events of one command so far."""

    def __init__(self, pipeline: str, tables: tuple[str, str], clock: Clock) -> None:
        """Create the state; `tables` are the names of the tables of rows and of rejects."""
        self.pipeline = pipeline
        self.tables = tables
        self.clock = clock
        self._lock = RLock()
        self.phase = Phase.STARTING
        self.is_continuous = False
        self.beat_ms = clock.now_ms()
        """When the driver was last seen working."""
        self.started_ms = self.beat_ms
        """When the query started, the last time."""
        self.records = self.rows = self.rejects = 0
        self.files = self.file_bytes = self.repeated_batches = 0
        self.reject_classes: Counter[str] = Counter()
        self.broken: Counter[str] = Counter()
        self.batches: Counter[str] = Counter()
        self.lost_offsets = 0
        self.commit_seconds = Histogram(DURATION_BOUNDS)
        self.batch_seconds = Histogram(DURATION_BOUNDS)
        self.last: BatchDone | None = None
        self.newest_ms: int | None = None
        self.place: StateNote | None = None
        """The watermark and the late records in the table; None: no state, or no batch yet."""
        self.maintenance: dict[str, MaintenanceDone] = {}
        self.maintenance_failures: Counter[str] = Counter()
        self.restarts: Counter[str] = Counter()
        self.failure: Failure | None = None
        self.failed_ms = 0
        self.restart: Restart | None = None
        self.broker_problem = ""
        self.places: Mapping[TopicPartition, Place] = {}
        self.lag_times = LagTimes()

    @contextmanager
    def read(self) -> Iterator["RunState"]:
        """Yield the state, which does not change until the end of the block."""
        with self._lock:
            yield self

    # --- The driver ---

    def starting(self) -> None:
        """Record that a start begins."""
        self._set(Phase.STARTING)

    def started(
        self, newest_ms: int | None, *, is_continuous: bool, place: StateNote | None = None
    ) -> None:
        """Record that the query runs.

        `newest_ms` is the timestamp of the table's newest record; `place` has its watermark.
        """
        with self._lock:
            self._set(Phase.RUNNING)
            self.started_ms = self.beat_ms
            self.newest_ms = newest_ms if self.newest_ms is None else self.newest_ms
            self.is_continuous = is_continuous
            self.place = place
            self.restart = None

    def beat(self) -> None:
        """Record that the driver works; called every second of a continuous run."""
        self.beat_ms = self.clock.now_ms()

    def failed(self, failure: Failure) -> None:
        """Record the failure that ended a run or a start."""
        with self._lock:
            self.failure = failure
            self.failed_ms = self.clock.now_ms()
            self._set(Phase.ENDED)

    def waits(self, restart: Restart) -> None:
        """Record that the driver waits for its next start."""
        with self._lock:
            self.restart = restart
            assert self.failure is not None
            self.restarts[self.failure.word] += 1
            self._set(Phase.WAITING)

    def ended(self) -> None:
        """Record the end of the command."""
        self._set(Phase.ENDED)

    def _set(self, phase: Phase) -> None:
        with self._lock:
            self.phase = phase
            self.beat_ms = self.clock.now_ms()

    # --- Events ---

    def batch_done(self, event: BatchDone) -> None:
        """Count a batch."""
        with self._lock:
            self.last = event
            self.lost_offsets = max(self.lost_offsets, event.lost_offsets)
            self.newest_ms = event.newest_ms
            self.place = event.state
            self.commit_seconds.observe(event.commit_ms / 1000)
            self.batch_seconds.observe(event.duration_ms / 1000)
            held = {at: one.offset for at, one in event.position.positions.items()}
            if event.ends:
                self.places_seen({at: (held.get(at, 0), end) for at, end in event.ends.items()})
            if event.was_skipped:
                self.repeated_batches += 1
                return
            self.batches[event.way] += 1
            self.records += event.records
            self.rows += event.rows
            self.rejects += event.rejects
            self.files += event.files
            self.file_bytes += event.file_bytes
            self.reject_classes.update(event.reject_classes)
            self.broken.update(event.expectations)

    def maintenance_done(self, event: MaintenanceDone) -> None:
        """Record the maintenance of a table."""
        with self._lock:
            if event.problem:
                self.maintenance_failures[event.table] += 1
            else:
                self.maintenance[event.table] = event

    def places_seen(self, places: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Record the partitions of the topics, each with its next missing offset and its end."""
        with self._lock:
            self.broker_problem = ""
            self.places = {at: Place(*one) for at, one in places.items()}
            self.lag_times.looked(self.places, self.clock.now_ms(), self.newest_ms)

    def broker_away(self, problem: str) -> None:
        """Record that no broker responds."""
        with self._lock:
            self.broker_problem = problem

    # --- Lags ---

    def lag_seconds(self, at: TopicPartition) -> float:
        """Return the age of the oldest record of this partition that is not in the table."""
        place = self.places[at]
        return self.lag_times.seconds(at, place.held, self.clock.now_ms()) if place.lag else 0.0

    def watermark_lag_seconds(self) -> float | None:
        """Return the age of the watermark; None without one."""
        if self.place is None or not self.place.watermark_ms:
            return None
        return max(0, self.clock.now_ms() - self.place.watermark_ms) / 1000

    def topic_lags(self) -> dict[str, tuple[int, float]]:
        """Return the lag in records and in seconds by topic; the seconds of the worst partition."""
        lags: dict[str, tuple[int, float]] = {}
        for at, place in self.places.items():
            records, seconds = lags.get(at.topic, (0, 0.0))
            lags[at.topic] = (records + place.lag, max(seconds, self.lag_seconds(at)))
        return lags
