"""Runs a pipeline for a command until it ends, fails permanently, or is stopped.

Guarantees: in every case, the query is stopped, the pipeline closed and the session stopped, in
this order. A failure that may pass restarts the pipeline with a new session, as far as the user
allows it. The error that stops a pipeline is raised unchanged; an error of Spark itself is reported
by its reason, without Java's stack traces.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final, Protocol
from uuid import uuid4

from penstock.core.clock import SystemClock
from penstock.spark.errors import SparkQueryError
from penstock.spark.offsets import StreamOffset
from penstock.spark.pipeline_files import LoadedPipeline
from penstock.spark.progress.line import reason_of
from penstock.spark.session import close_session, has_java_ended, is_of_spark, open_session
from penstock.spark.tables.commit.command_breaker import CommandBreaker
from penstock.spark.tables.commit.owned_tables import Owned
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.inspection.many_status import many_preflight
from penstock.spark.tables.inspection.preflight import preflight
from penstock.spark.tables.many.workers import ManyListener, ManyTables
from penstock.spark.tables.operation.operating import Operation
from penstock.spark.tables.operation.ownership import require_still_owner
from penstock.spark.tables.operation.pipeline_restarts import RestartPolicy
from penstock.spark.tables.operation.supervision import Attempt, supervise
from penstock.spark.tables.rules.planner import Plan
from penstock.spark.tables.run.broker_watch import BrokerListener, watching
from penstock.spark.tables.run.events import BatchDone, MaintenanceDone, Observer
from penstock.spark.tables.run.pipeline import RunningPipeline
from penstock.spark.tables.run.table_pipeline import TablePipeline, breaker_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS: Final = 1
"""The interval of the checks for a stop."""


JAVA_SECONDS: Final = 1.0
"""How long a process that was killed may need until its parent sees the end."""
JAVA_ENDED: Final = "the Java process of Spark ended; its log, or the kernel's, has the reason"


class SparkFailedError(SparkQueryError):
    """Spark failed to run a pipeline."""


@dataclass(frozen=True, slots=True)
class SessionChoice:
    """The user's settings for the Spark session."""

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    log: Path | None = None
    """A file for Java's output; with None, the output stays on standard error."""


class RunListener(BrokerListener, Observer, Protocol):
    """Is informed about the batches, the brokers, and the starts of a command."""

    def starting(self) -> None:
        """Handle the begin of a start."""

    def started(self, mode: Plan) -> None:
        """Handle the end of a start: the query runs."""

    def restarts(self, line: str) -> None:
        """Handle a failure after which the pipeline is started again; `line` is for a log."""


@dataclass(frozen=True, slots=True)
class RunChoice:
    """The user's settings for the run itself."""

    once: bool
    """Whether to run to the current end of the topics."""
    restarts: RestartPolicy = field(default_factory=lambda: RestartPolicy(0))
    metrics: tuple[str, int] | None = None
    """The address of metrics and health, instead of the definition's."""


def run_pipeline(
    loaded: LoadedPipeline,
    session: SessionChoice,
    choice: RunChoice,
    *,
    listener: RunListener,
    stop: Event,
) -> None:
    """Run to the current end of the topics with `once`, else until `stop` is set."""
    definition, clock = loaded.definition, SystemClock()
    opened = Operation(
        definition, once=choice.once, environment=os.environ, metrics=choice.metrics, clock=clock
    )
    # All attempts are one driver: one that fails after it acquired the table fences no later one.
    owned = Owned(uuid4().hex)
    breaker = breaker_of(definition)
    with opened as operation:

        def attempt(now: Attempt) -> None:
            operation.starting()
            listener.starting()
            _run(loaded, session, choice, now, operation, listener, stop, owned, breaker)

        supervise(
            attempt,
            choice.restarts,
            stop=stop,
            clock=clock,
            listener=operation,
            log=listener.restarts,
        )


def _run(
    loaded: LoadedPipeline,
    session: SessionChoice,
    choice: RunChoice,
    now: Attempt,
    operation: Operation,
    listener: RunListener,
    stop: Event,
    owned: Owned,
    breaker: CommandBreaker,
) -> None:
    """Run the pipeline once, with a session of its own."""
    observer = _Both(listener, operation, now)
    with session_of(loaded, session) as spark:
        if owned.rows.driver is not None:
            require_still_owner(loaded.definition, owned.rows.driver)
        pipeline = TablePipeline(
            loaded.definition,
            transform=loaded.transform,
            observer=observer,
            owned=owned,
            breaker=breaker,
        )
        with pipeline.start(spark, once=choice.once) as running:
            now.started()
            operation.started(running)
            listener.started(running.mode)
            with nullcontext() if choice.once else _watched(running, observer):
                while not stop.is_set() and not running.await_end(LOOK_SECONDS):
                    operation.beat()


def run_many_tables(
    definition: PipelineDefinition,
    choice: SessionChoice,
    *,
    once: bool,
    listener: ManyListener,
    stop: Event,
    started: Callable[[], None],
) -> None:
    """Run the tables of all topics to their current end with `once`, else until `stop` is set."""
    many_preflight(definition)
    with _open_session(definition.pipeline.name, choice) as spark:
        started()
        ManyTables(definition, spark, listener).run(stop, once=once)


class _Both:
    """Passes events on to the view and to the operation."""

    def __init__(self, view: RunListener, operation: Operation, now: Attempt) -> None:
        self.operation = operation
        self._now = now
        self._view = view

    def batch_done(self, event: BatchDone) -> None:
        self._now.has_committed = True
        self.operation.batch_done(event)
        self._view.batch_done(event)

    def maintenance_done(self, event: MaintenanceDone) -> None:
        self.operation.maintenance_done(event)
        self._view.maintenance_done(event)

    def broker_seen(self, lags: Mapping[str, int]) -> None:
        self._view.broker_seen(lags)

    def broker_away(self, problem: str) -> None:
        self.operation.broker_away(problem)
        self._view.broker_away(problem)


def _watched(running: RunningPipeline, both: _Both) -> AbstractContextManager[None]:
    def lags_of(latest: StreamOffset) -> Mapping[str, int]:
        both.operation.places_seen(running.places_of(latest))
        return running.lags_of(latest)

    return watching(running.options, lags_of, both)


@contextmanager
def session_of(loaded: LoadedPipeline, choice: SessionChoice) -> Iterator[SparkSession]:
    """Open a session for this pipeline; errors of Spark inside are raised in plain words."""
    preflight(loaded.definition, has_transform=loaded.transform is not None)
    with _open_session(loaded.definition.pipeline.name, choice) as spark:
        yield spark


@contextmanager
def _open_session(name: str, choice: SessionChoice) -> Iterator[SparkSession]:
    try:
        spark = open_session(
            f"penstock table {name}", master=choice.master, conf=choice.conf, log=choice.log
        )
        try:
            yield spark
        except OSError as error:
            # The connections to a Java process that died fail in many ways.
            if not has_java_ended(JAVA_SECONDS):
                raise
            raise SparkFailedError(f"pipeline '{name}' failed: {JAVA_ENDED}: {error}") from error
        finally:
            close_session(spark)
    except Exception as error:
        if not is_of_spark(error):
            raise
        raise SparkFailedError(f"pipeline '{name}' failed: {reason_of(str(error))}") from error
