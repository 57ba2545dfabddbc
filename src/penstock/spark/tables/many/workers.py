"""`ManyTables`: one definition, a table for each topic of its pattern, one Spark session.

    tables = ManyTables(definition, spark, listener)
    tables.run(stop, once=False)

Each topic has a pipeline of its own (`definition.many_tables`), with the guarantees of any
pipeline: the table decides where it goes on, and each record is in it once. New topics get their
tables while it runs. A topic that fails waits and is tried again, or ends if the failure is
lasting; the others go on.

There is no streaming query: a query for each topic needs threads, a process and a checkpoint of its
own. Workers, one thread each, look at the ends of all topics with two requests, and commit what is
new: a small batch in the driver, a larger one by a Spark job. A topic belongs to one worker, by the
name of its table. A worker has its own connection, and never works on two topics at once.

Bounds: `TOPICS_MAX` topics; a topic without records is not opened; one batch of a topic, then the
next topic.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from random import Random
from threading import Event, Lock, Thread
from time import monotonic
from typing import Final, Protocol
from uuid import uuid4
from zlib import crc32

from pyspark.sql import SparkSession

from penstock.client.cluster import Cluster
from penstock.client.opening import open_cluster
from penstock.core.errors import PenstockError
from penstock.spark.errors import SparkQueryError
from penstock.spark.progress.line import reason_of
from penstock.spark.session import has_ended, is_of_spark
from penstock.spark.source.lookups import Lookups
from penstock.spark.source.options import Mode
from penstock.spark.source.task_reader import TaskSettings
from penstock.spark.tables.commit.circuit_breaker import CircuitOpenError
from penstock.spark.tables.commit.command_breaker import CommandBreaker
from penstock.spark.tables.commit.owned_tables import Owned
from penstock.spark.tables.definition.many_tables import TopicUnfitError, table_of_topic
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.definition.source_reading import read_resolved_options
from penstock.spark.tables.many.schedule import Ends, ManySchedule
from penstock.spark.tables.operation.failures import failure_of
from penstock.spark.tables.run.events import Observer
from penstock.spark.tables.run.pipeline import RunningPipeline
from penstock.spark.tables.run.small_batches import SmallBatches
from penstock.spark.tables.run.table_pipeline import TablePipeline, breaker_of

LOGGER: Final = logging.getLogger(__name__)
WORKERS: Final = 4
"""Commits wait for catalogs and disks; more threads would share one interpreter."""
TOPICS_MAX: Final = 1_000
"""A table needs about a megabyte of the driver's memory; run a second process for more."""
PAUSE_SECONDS_MAX: Final = 1.0
"""The longest wait between two looks at the request to stop."""


class ManyFailedError(SparkQueryError):
    """A run with `once` ended, and some tables lack records."""


class SparkEndedError(SparkQueryError):
    """Spark ended while tables were written."""


class TooManyTopicsError(SparkQueryError):
    """The pattern matches more topics than one process writes."""


class ManyListener(Protocol):
    """Receives the events of all tables, from several threads."""

    def observer_of(self, definition: PipelineDefinition) -> Observer:
        """Return the observer of one topic's pipeline."""

    def topic_failed(self, topic: str, problem: str, retry_seconds: float | None) -> None:
        """Handle a failure; with None, the topic ends until the next start."""

    def looked(self, worker: int, topics: int, behind: int) -> None:
        """Handle a worker's look at its topics; `behind` of them have new records."""

    def broker_away(self, problem: str) -> None:
        """Handle the state that no broker responds."""


class ManyTables:
    """The tables of one definition."""

    def __init__(
        self,
        definition: PipelineDefinition,
        spark: SparkSession,
        listener: ManyListener,
        workers: int = WORKERS,
    ) -> None:
        opening = Lock()
        self._workers = [
            _Worker(number, workers, definition, spark, listener, opening)
            for number in range(workers)
        ]
        self._failure: BaseException | None = None
        self._lock = Lock()

    def run(self, stop: Event, *, once: bool) -> None:
        """Run until `stop` is set, or with `once` until all tables have the present records.

        A failed topic raises an error at the end of a run with `once`, with the first reasons. It
        is `CircuitOpenError` if a topic had too many bad records, whatever other topics had: the
        next run does not find these records, and would hide the failure.
        """
        halt = Event()
        threads = [
            Thread(
                target=self._run_one,
                args=(one, halt),
                kwargs={"once": once},
                name=f"penstock-tables-{one.number}",
                daemon=True,
            )
            for one in self._workers
        ]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                if stop.wait(PAUSE_SECONDS_MAX / 4):
                    break
        finally:
            halt.set()
            for thread in threads:
                thread.join()
        if self._failure is not None:
            raise self._failure
        problems = {k: v for one in self._workers for k, v in one.problems().items()}
        if once and problems:
            has_bad_records = any(one.has_bad_records for one in self._workers)
            kind = CircuitOpenError if has_bad_records else ManyFailedError
            raise kind(_summary(problems))

    def _run_one(self, worker: "_Worker", halt: Event, *, once: bool) -> None:
        try:
            worker.run(halt, once=once)
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            with self._lock:
                self._failure = self._failure or error
            halt.set()


class _Worker:
    """Some of the topics, in one thread."""

    def __init__(
        self,
        number: int,
        count: int,
        definition: PipelineDefinition,
        spark: SparkSession,
        listener: ManyListener,
        opening: Lock,
    ) -> None:
        """Create the worker; one of all workers opens a pipeline at a time.

        Two threads that open a new SQL catalog together both create its tables, and one fails.
        """
        self.number = number
        self._opening = opening
        self._count = count
        self._definition = definition
        self._spark = spark
        self._listener = listener
        self._options = read_resolved_options(definition.source_options(), Mode.STREAM)
        self._interval_seconds = definition.trigger.interval_ms / 1000
        self._schedule = ManySchedule(Random())  # noqa: S311 - spreads attempts
        self._open: dict[str, RunningPipeline] = {}
        self._owned: dict[str, Owned] = {}
        """What this command has acquired: a topic that is tried again ends if another has it."""
        self._breakers: dict[str, CommandBreaker] = {}
        self.has_bad_records = False
        """Whether a topic has failed by too many bad records."""

    def problems(self) -> dict[str, str]:
        """Return the reasons of the topics whose last attempt failed."""
        return self._schedule.problems()

    def run(self, halt: Event, *, once: bool) -> None:
        """Look and commit, interval after interval."""
        with self._resources() as (cluster, small):
            lookups = Lookups(cluster, self._options)
            while not halt.is_set():
                begun = monotonic()
                has_looked = self._look(lookups, raises=once)
                if has_looked:
                    self._commit_due(cluster, small, halt, once=once)
                if once:
                    return
                self._pause(begun + self._interval_seconds, halt)

    @contextmanager
    def _resources(self) -> Iterator[tuple[Cluster, SmallBatches]]:
        cluster = open_cluster(self._options.client)
        small = SmallBatches(TaskSettings.of(self._options))
        try:
            yield cluster, small
        finally:
            for topic in list(self._open):
                self._close(topic)
            small.close()
            cluster.close()

    def _look(self, lookups: Lookups, *, raises: bool) -> bool:
        """Look up the topics and their ends; return whether a broker responded."""
        try:
            latest = lookups.latest()
        except (PenstockError, OSError) as error:
            if raises or not failure_of(error).may_pass:
                raise
            self._listener.broker_away(str(error))
            return False
        ends: dict[str, dict[int, int]] = {}
        for at, position in latest.positions.items():
            ends.setdefault(at.topic, {})[at.partition] = position.offset
        if len(ends) > TOPICS_MAX:
            raise TooManyTopicsError(
                f"source.pattern matches {len(ends):,} topics, and one process writes at most "
                f"{TOPICS_MAX:,} tables. Run several definitions with narrower patterns."
            )
        own = {topic: found for topic, found in ends.items() if self._has(topic)}
        self._accept(own)
        return True

    def _accept(self, ends: Mapping[str, Ends]) -> None:
        for topic in self._schedule.seen(ends, monotonic()):
            self._close(topic)
        behind = sum(one.due_since is not None for one in self._schedule.topics.values())
        self._listener.looked(self.number, len(ends), behind)

    def _has(self, topic: str) -> bool:
        """Return whether the topic is this worker's; topics that share a table have one worker."""
        try:
            name = table_of_topic(self._definition, topic).table.name
        except TopicUnfitError:
            name = topic
        return crc32(name.encode()) % self._count == self.number

    def _commit_due(
        self, cluster: Cluster, small: SmallBatches, halt: Event, *, once: bool
    ) -> None:
        """Commit batches until nothing is due; with `once`, a topic has one attempt."""
        while not halt.is_set():
            topic = self._schedule.next_due(monotonic())
            if topic is None:
                return
            try:
                running = self._opened(topic, cluster)
                is_whole = running.commit_available(small, 1)
                if once and is_whole:
                    running.require_few_rejects()
            except Exception as error:  # noqa: BLE001 - the other topics go on
                self._failed(topic, error, once=once)
            else:
                self._schedule.committed(topic, monotonic(), is_whole=is_whole)

    def _opened(self, topic: str, cluster: Cluster) -> RunningPipeline:
        if topic not in self._open:
            definition = table_of_topic(self._definition, topic)
            observer = self._listener.observer_of(definition)
            owned = self._owned.setdefault(topic, Owned(uuid4().hex))
            breaker = self._breakers.setdefault(topic, breaker_of(definition))
            pipeline = TablePipeline(definition, observer=observer, owned=owned, breaker=breaker)
            with self._opening:
                self._open[topic] = pipeline.open(self._spark, cluster)
        return self._open[topic]

    def _failed(self, topic: str, error: Exception, *, once: bool) -> None:
        self._close(topic)
        self.has_bad_records |= isinstance(error, CircuitOpenError)
        if (is_of_spark(error) or isinstance(error, OSError)) and has_ended(self._spark):
            raise SparkEndedError(
                "Spark has ended, so no table can go on. Start the command again; "
                "each table goes on where it ends. Give Java more memory if it lacked it: --conf "
                "spark.driver.memory=4g."
            ) from error
        problem = reason_of(str(error)) or type(error).__name__
        is_lasting = once or not failure_of(error).may_pass
        if not isinstance(error, PenstockError):
            LOGGER.warning("topic %s failed", topic, exc_info=error)
        seconds = self._schedule.failed(topic, monotonic(), problem, is_lasting=is_lasting)
        self._listener.topic_failed(topic, problem, seconds)

    def _close(self, topic: str) -> None:
        running = self._open.pop(topic, None)
        if running is not None:
            with suppress(Exception):  # its batches are committed, or will be written again
                running.close()

    def _pause(self, until: float, halt: Event) -> None:
        """Wait for the next interval, or for the end of a failed topic's wait."""
        moment = self._schedule.next_moment()
        until = until if moment is None else min(until, max(moment, monotonic() + 0.1))
        while not halt.is_set() and (left := until - monotonic()) > 0:
            halt.wait(min(left, PAUSE_SECONDS_MAX))


def _summary(problems: Mapping[str, str]) -> str:
    shown_max = 5
    shown = [f"{topic}: {problem}" for topic, problem in sorted(problems.items())[:shown_max]]
    more = len(problems) - shown_max
    rest = f" And {more:,} more." if more > 0 else ""
    return f"{len(problems):,} of the topics failed. {' '.join(shown)}{rest}"
