"""`Operation`: everything that shows a running pipeline to others, as one observer.

Guarantees: it has the parts that the definition or the command names, and no thread and no port
without them. The parts are independent of each other, and none of them can stop a pipeline. It is
closed last, so that the end of a run is reported, too.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import Final, Self

from penstock.admin.metrics_page import render
from penstock.client.transport.options import ClientOptions
from penstock.core.clock import Clock, SystemClock
from penstock.core.types import TopicPartition
from penstock.spark.source.options import Mode
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.definition.source_reading import read_resolved_options
from penstock.spark.tables.operation.failures import Failure
from penstock.spark.tables.operation.group_offsets import GroupOffsets
from penstock.spark.tables.operation.lineage import (
    LineageEmitter,
    Send,
    destination_of,
    sender_to,
)
from penstock.spark.tables.operation.lineage_events import LineageJob
from penstock.spark.tables.operation.lineage_run import LineageRuns
from penstock.spark.tables.operation.pipeline_health import Health, health_of
from penstock.spark.tables.operation.pipeline_metrics import PipelineMetrics
from penstock.spark.tables.operation.pipeline_restarts import Restart
from penstock.spark.tables.operation.run_state import RunState
from penstock.spark.tables.operation.status_server import (
    Page,
    Request,
    StatusServer,
    document,
)
from penstock.spark.tables.run.events import BatchDone, MaintenanceDone, Observer
from penstock.spark.tables.run.pipeline import RunningPipeline

LOGGER: Final = logging.getLogger(__name__)
METRICS: Final = "/metrics"
LIVE: Final = "/health/live"
READY: Final = "/health/ready"


class Operation:
    """The metrics, the group and the lineage of one command."""

    def __init__(
        self,
        definition: PipelineDefinition,
        *,
        once: bool,
        environment: Mapping[str, str],
        metrics: tuple[str, int] | None = None,
        clock: Clock | None = None,
        sender: Callable[..., Send] = sender_to,
    ) -> None:
        """Open all parts; `metrics` is the address of the command, instead of the definition's."""
        self._definition = definition
        self._once = once
        clock = clock or SystemClock()
        table = definition.table
        settings = definition.pipeline.operation
        self.state = RunState(definition.pipeline.name, (table.name, table.dlq_name), clock)
        self._metrics = PipelineMetrics(self.state)
        self._observers: list[Observer] = [self.state]
        self._group: GroupOffsets | None = None
        self._emitter: LineageEmitter | None = None
        self._runs: LineageRuns | None = None
        self.server: StatusServer | None = None
        with ExitStack() as opened:
            address = metrics or (settings.metrics_host, settings.metrics_port)
            if metrics is not None or settings.metrics_port:
                self.server = StatusServer(*address, self._pages())
                opened.callback(self.server.close)
            if settings.publish_group is not None:
                self._group = GroupOffsets(settings.publish_group, self._client())
                opened.callback(self._group.close)
                self._observers.append(self._group)
            destination = destination_of(settings.lineage, environment)
            if destination is not None:
                job = LineageJob(definition, destination.namespace, not once, _version())
                self._emitter = LineageEmitter(sender(destination))
                opened.callback(self._emitter.close)
                self._runs = LineageRuns(job, self._emitter.emit, clock)
                self._observers.append(self._runs)
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.state.ended()
        if self._runs is not None:
            self._runs.ended("" if error is None else str(error) or type(error).__name__)
        self._opened.close()

    # --- The driver ---

    def starting(self) -> None:
        """Record that a start begins."""
        self.state.starting()

    def started(self, running: RunningPipeline) -> None:
        """Record that the query runs."""
        self.state.started(running.newest_ms, is_continuous=not self._once, place=running.state)
        with _reported():
            if self._group is not None:
                self._group.started(running.position)
            if self._runs is not None:
                self._runs.started(running.columns)

    def failed(self, failure: Failure) -> None:
        """Record the failure that ended a run."""
        self.state.failed(failure)
        if self._runs is not None:
            self._runs.ended(failure.text)

    def waits(self, restart: Restart) -> None:
        """Record that the driver waits for its next start."""
        self.state.waits(restart)

    def beat(self) -> None:
        """Record that the driver works."""
        self.state.beat()

    def places_seen(self, places: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Record the ends of the topics."""
        self.state.places_seen(places)

    def broker_away(self, problem: str) -> None:
        """Record that no broker responds."""
        self.state.broker_away(problem)

    # --- Events ---

    def batch_done(self, event: BatchDone) -> None:
        """Pass a batch on to all parts."""
        for one in self._observers:
            with _reported():
                one.batch_done(event)

    def maintenance_done(self, event: MaintenanceDone) -> None:
        """Pass maintenance on to all parts."""
        for one in self._observers:
            with _reported():
                one.maintenance_done(event)

    # --- Pages ---

    def _pages(self) -> dict[str, Callable[[Request], Page]]:
        return {METRICS: self._metrics_page, LIVE: self._live_page, READY: self._ready_page}

    def _metrics_page(self, request: Request) -> Page:
        if self._emitter is not None:
            self._metrics.lineage_dropped = self._emitter.dropped
        with self.state.read():
            body, content_type = render(self._metrics.registry, request.accept)
        return Page(200, content_type, body)

    def _live_page(self, _: Request) -> Page:
        health = self._health()
        return document(200 if health.is_live else 503, {"live": health.is_live})

    def _ready_page(self, _: Request) -> Page:
        health = self._health()
        return document(
            200 if health.is_ready else 503,
            {"ready": health.is_ready, "phase": health.phase, "reasons": list(health.reasons)},
        )

    def _health(self) -> Health:
        with self.state.read():
            return health_of(self.state, self._definition.trigger.interval_ms)

    def _client(self) -> ClientOptions:
        return read_resolved_options(self._definition.source_options(), Mode.STREAM).client


@contextmanager
def _reported() -> Iterator[None]:
    """Log an error of a part instead of raising it: the batch is committed already."""
    try:
        yield
    except Exception:
        LOGGER.exception("a defect beside the pipeline, which goes on")


def _version() -> str:
    try:
        return version("penstock")
    except PackageNotFoundError:
        return "0"
