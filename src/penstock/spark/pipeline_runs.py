"""Runs a pipeline until it is done, fails, or somebody says stop: the way from a command to Spark.

Guarantees: whatever happens, the query is stopped, the pipeline closed and the session stopped, in
this order. What stops a pipeline is raised as it was raised; of what only Spark can tell, the
reason is told without the stack traces of Java around it.
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
from penstock.spark.tables.looking.preflight import preflight
from penstock.spark.tables.planner import Plan
from penstock.spark.tables.run.broker_watch import BrokerListener, watching
from penstock.spark.tables.run.events import Observer
from penstock.spark.tables.run.pipeline import RunningPipeline, TablePipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS: Final = 1
"""How soon a stop is noticed."""


class SparkFailedError(SparkQueryError):
    """Spark could not do what a pipeline asked of it."""


@dataclass(frozen=True, slots=True)
class SessionChoice:
    """Where Spark runs, as far as a person says."""

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    log: Path | None = None
    """A file for what Java says; None leaves it on standard error."""


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
    """Run until the end: of the topics as they are now with `once`, else until `stop` is set.

    `broker` is told of the broker and the lag between the batches of a run that goes on.
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
    """A session for this pipeline; what Spark raises in it comes out in plain words."""
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
