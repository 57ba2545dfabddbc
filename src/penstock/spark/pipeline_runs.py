"""Runs a pipeline for a command until it ends, fails, or is stopped.

Guarantees: in every case, the query is stopped, the pipeline closed and the session stopped, in
this order. The error that stops a pipeline is raised unchanged; an error of Spark itself is
reported by its reason, without Java's stack traces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final

from penstock.spark.errors import SparkQueryError
from penstock.spark.pipeline_files import LoadedPipeline
from penstock.spark.progress.line import reason_of
from penstock.spark.session import close_session, is_of_spark, open_session
from penstock.spark.tables.inspection.preflight import preflight
from penstock.spark.tables.rules.planner import Plan
from penstock.spark.tables.run.broker_watch import BrokerListener, watching
from penstock.spark.tables.run.events import Observer
from penstock.spark.tables.run.pipeline import RunningPipeline, TablePipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS: Final = 1
"""The interval of the checks for a stop."""


class SparkFailedError(SparkQueryError):
    """Spark failed to run a pipeline."""


@dataclass(frozen=True, slots=True)
class SessionChoice:
    """The user's settings for the Spark session."""

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    log: Path | None = None
    """A file for Java's output; with None, the output stays on standard error."""


def run_pipeline(
    loaded: LoadedPipeline,
    choice: SessionChoice,
    *,
    once: bool,
    observer: Observer,
    stop: Event,
    started: Callable[[Plan], None],
    broker: BrokerListener | None = None,
) -> None:
    """Run to the current end of the topics with `once`, else until `stop` is set.

    `broker` receives the broker's state and the lag between the batches of a continuous run.
    """
    with session_of(loaded, choice) as spark:
        pipeline = TablePipeline(loaded.definition, transform=loaded.transform, observer=observer)
        with pipeline.start(spark, once=once) as running:
            started(running.mode)
            with _watched(running, None if once else broker):
                while not stop.is_set() and not running.await_end(LOOK_SECONDS):
                    pass


def _watched(
    running: RunningPipeline, broker: BrokerListener | None
) -> AbstractContextManager[None]:
    if broker is None:
        return nullcontext()
    return watching(running.options, running.lags_of, broker)


@contextmanager
def session_of(loaded: LoadedPipeline, choice: SessionChoice) -> Iterator[SparkSession]:
    """Open a session for this pipeline; errors of Spark inside are raised in plain words."""
    name = loaded.definition.pipeline.name
    preflight(loaded.definition, has_transform=loaded.transform is not None)
    try:
        spark = open_session(
            f"penstock table {name}", master=choice.master, conf=choice.conf, log=choice.log
        )
        try:
            yield spark
        finally:
            close_session(spark)
    except Exception as error:
        if not is_of_spark(error):
            raise
        raise SparkFailedError(f"pipeline '{name}' failed: {reason_of(str(error))}") from error
