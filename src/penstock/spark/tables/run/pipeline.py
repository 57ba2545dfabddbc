"""`RunningPipeline`: a pipeline as a Spark query, or without one, and the driver of its batches.

`table_pipeline` starts it. Over Spark Connect a loop of this process has the query's place.

Guarantees: the tables are acquired before the query starts, so that an older driver of the same
pipeline cannot commit any more; the table decides the start of the query. An error of a batch stops
the query, and `await_end` raises that error itself, not a text of Java.

One thread of Spark calls back for each batch; two threads never use this module at the same time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Final, Self

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition
from penstock.spark.batch_loop import BatchLoop, Jobs
from penstock.spark.offsets import StreamOffset
from penstock.spark.progress.line import reason_of
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.task_reader import TaskSettings
from penstock.spark.tables.commit.circuit_breaker import CircuitOpenError
from penstock.spark.tables.commit.command_breaker import CommandBreaker
from penstock.spark.tables.commit.decisions import starting_ranges
from penstock.spark.tables.commit.note import BatchRanges, StateNote
from penstock.spark.tables.commit.owned_tables import Owned
from penstock.spark.tables.commit.stops import CommitStoppedError, Stop, has_state
from penstock.spark.tables.definition.model import PipelineDefinition, RunMode
from penstock.spark.tables.run.batches import BatchDriver, acquire_tables
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.run.dataframe_stage import Transform
from penstock.spark.tables.run.events import DRIVER, SPARK_SQL, TASKS, BatchDone, Observer
from penstock.spark.tables.run.jobs import run_orders, run_ranges
from penstock.spark.tables.run.maintenance import TableMaintenance
from penstock.spark.tables.run.once import AvailableBatches, batches_now
from penstock.spark.tables.run.plan_file import BatchPlan, PlanFile
from penstock.spark.tables.run.preparing import Prepared, Reading
from penstock.spark.tables.run.small_batches import SmallBatches
from penstock.spark.tables.run.source import COLUMN
from penstock.spark.tables.run.stream_query import PipelineStoppedError, start_query
from penstock.spark.tables.run.table_offsets import subscribed
from penstock.spark.tables.run.writing import BatchWriter, stage_for
from penstock.spark.tables.tasks.orders import TaskOrder, is_small
from penstock.spark.tables.tasks.report import BatchReport, TaskReport, ranges_of, unpack
from penstock.spark.tables.tasks.task import planned_report
from penstock.spark.tables.tasks.task_plan import pack_plan
from penstock.spark.task_jobs import is_connect

NOTHING_HELD: Final = StreamOffset({})


class RunningPipeline:
    """A query, and the driver of its batches."""

    def __init__(
        self,
        spark: SparkSession,
        definition: PipelineDefinition,
        transform: Transform | None,
        reading: Reading,
        prepared: Prepared,
        observer: Observer,
        clock: Clock,
        owned: Owned,
        breaker: CommandBreaker,
    ) -> None:
        self._spark = spark
        self._definition = definition
        self._reading = reading
        self._observer = observer
        self._clock = clock
        self._plans = prepared.plans
        self.mode = prepared.mode
        name = definition.pipeline.name
        self._rows = TableCommitter(prepared.rows, name, owned.run, owned=owned.rows)
        self._rejects = TableCommitter(prepared.rejects, name, owned.run, owned=owned.rejects)
        self._writer = BatchWriter(
            self._plans,
            definition.expectations,
            partial(run_ranges, spark, TaskSettings.of(reading.options), reading.options.splitting),
            stage_for(spark, prepared, definition, transform),
        )
        self._driver = BatchDriver(
            self._rows,
            self._rejects,
            self._writer.write,
            renew=self._plans.renew,
            allows_gaps=not reading.options.fail_on_data_loss,
        )
        self._breaker = breaker
        self._maintenance = [
            TableMaintenance(one, definition.maintenance, clock)
            for one in (self._rows, self._rejects)
        ]
        self._file = PlanFile()
        self._small = SmallBatches(TaskSettings.of(reading.options))
        self._initial = NOTHING_HELD
        self._failure: BaseException | None = None
        self._left: Iterator[list[TaskOrder]] | None = None
        """The batches of a run with `once`; None: the query has them."""
        self._available: AvailableBatches | None = None
        """The batches of a pipeline without a query."""
        self._batch_count = 0
        self._query: StreamingQuery | None = None
        self._loop: BatchLoop | None = None
        """Has the place of the query in a session of Spark Connect."""

    # --- The query ---

    def begin(self, *, once: bool) -> None:
        """Acquire the tables, the rejects' first, and start the query."""
        if is_connect(self._spark) and not once:
            self.begin_available()
            commit_next = partial(self.commit_available, self._small, 1)
            interval_seconds = self._definition.trigger.interval_ms / 1000
            lasting = (CommitStoppedError, CircuitOpenError)
            self._loop = BatchLoop(commit_next, interval_seconds, Jobs(self._spark), lasting)
            return
        self._acquire()
        if once:
            reading = self._reading
            self._left = batches_now(reading.lookups, reading.options, self._initial)
            return
        self._write_batch_plan()
        self._query = start_query(self._spark, self._definition, self._file.path, self._on_batch)

    def begin_available(self) -> None:
        """Acquire the tables, for batches by `commit_available`."""
        self._acquire()
        reading = self._reading
        self._available = AvailableBatches(reading.lookups, reading.options, self._initial)

    def commit_available(self, small: SmallBatches, batches_max: int) -> bool:
        """Commit the next batches; return whether the table has everything of the last look.

        The ends are looked up once for all batches up to them. `small` writes batches of few
        records. After an error the pipeline is closed.
        """
        available = self._available
        assert available is not None, "begun by begin_available"
        if available.is_at_end:
            available.look()
        for _ in range(batches_max):
            orders = available.next_orders()
            if available.is_at_end:
                break
            self._commit_orders(orders, monotonic(), small)
        return available.is_at_end

    def _acquire(self) -> None:
        starting = self._starting()
        found = acquire_tables(self._rejects, self._rows, starting) or self._reading.first
        self._breaker.acquired(self._rows.state.positions_of(self._definition.pipeline.name))
        self._require_closed()  # an earlier attempt may have failed before it could stop
        self._initial = subscribed(found, self._reading.options.subscription)
        if self._rows.arrange(self._definition.table):
            self._plans.renew()

    @property
    def query(self) -> StreamingQuery:
        """Spark's own handle; a run with `once` or over Spark Connect has none."""
        assert self._query is not None, "a stream, that has begun"
        return self._query

    def await_end(self, timeout_seconds: int | None = None) -> bool:
        """Wait until the query has ended, and raise its error; return False after the timeout.

        A run with `once` runs in the waiting thread; it stops between two batches after the
        timeout.
        """
        if self._left is not None:
            return self._commit_left(self._left, timeout_seconds)
        if self._loop is not None:
            return self._loop.wait(timeout_seconds)
        try:
            if timeout_seconds is None:
                self.query.awaitTermination()
                has_ended = True
            else:
                has_ended = bool(self.query.awaitTermination(timeout_seconds))
        except StreamingQueryException as error:
            if self._failure is not None:
                raise self._failure from None
            raise PipelineStoppedError(
                f"pipeline '{self._definition.pipeline.name}' stopped: {reason_of(str(error))}"
            ) from error
        return has_ended

    def _commit_left(self, left: Iterator[list[TaskOrder]], timeout_seconds: int | None) -> bool:
        """Commit the batches of a run with `once`; a failed batch is never skipped."""
        if self._failure is not None:
            raise self._failure
        begun = monotonic()
        try:
            for orders in left:
                self._commit_orders(orders, monotonic())
                if timeout_seconds is not None and monotonic() - begun >= timeout_seconds:
                    return False
            self.require_few_rejects()
        except BaseException as error:
            self._failure = error
            raise
        return True

    def stop(self) -> None:
        """Stop the query; its current batch is abandoned or finished, never half committed."""
        if self._query is not None:
            self._query.stop()
        if self._loop is not None:
            self._loop.stop()

    def close(self) -> None:
        """Stop the query, and close all resources."""
        if self._loop is not None or (self._query is not None and self._query.isActive):
            self.stop()
        self._file.close()
        self._small.close()
        self._rows.table.close()
        self._rejects.table.close()
        self._reading.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- Its batches ---

    def _on_batch(self, frame: DataFrame, batch_id: int) -> None:
        """Commit one micro-batch; Spark calls this again if it has not returned."""
        started = monotonic()
        try:
            self._commit_frame(frame, batch_id, started)
        except BaseException as error:
            self._failure = error
            raise

    def _commit_frame(self, frame: DataFrame, batch_id: int, started: float) -> None:
        left = self._file.take_batch()
        may_be_small = self._definition.pipeline.small_batches
        reports = self._small.reports(left, self._held()) if may_be_small else []
        is_small = bool(reports)
        if not is_small:
            # Evaluate the frame once: a second evaluation runs its tasks again.
            reports = [unpack(row[COLUMN]) for row in frame.collect()]
        self._commit(reports, batch_id, started, is_small=is_small)

    def _commit_orders(
        self, orders: Sequence[TaskOrder], started: float, small: SmallBatches | None = None
    ) -> None:
        by_driver: list[TaskReport] = []
        if self._is_staged:
            reports = [planned_report(one.task, one.cluster_id) for one in orders]
        else:
            plan = pack_plan(self._plans.task)
            planned = [one._replace(plan=plan) for one in orders]
            if small is not None and self._definition.pipeline.small_batches and is_small(planned):
                by_driver = small.reports(planned, self._held())
            settings = TaskSettings.of(self._reading.options)
            reports = by_driver or run_orders(self._spark, settings, planned)
        self._commit(reports, self._batch_count, started, is_small=bool(by_driver))
        self._batch_count += 1

    def _commit(
        self,
        reports: Sequence[TaskReport],
        batch_id: int,
        started: float,
        *,
        is_small: bool = False,
    ) -> None:
        if not reports:
            return
        ranges = ranges_of(reports)
        if self._is_staged:
            report = self._writer.write(ranges)
        else:
            # Tasks write a batch again if its values have further columns.
            is_small = is_small and all(one.needs is None for one in reports)
            report = self._writer.written(ranges, reports)
            report = replace(report, counts=replace(report.counts, is_small=is_small))
        written = monotonic()
        committed = self._driver.commit(report, self._breaker.offered)
        self._committed(committed, report, batch_id, started, written)

    def _committed(
        self,
        committed: BatchReport | None,
        report: BatchReport,
        batch_id: int,
        started: float,
        written: float,
    ) -> None:
        """Finish a batch; `committed` is its committed part, None if the table had all of it."""
        if committed is None:
            self._breaker.was_there()
        else:  # before any call that may fail: the next attempt does not find this batch
            self._breaker.committed(committed.records, committed.counts.rejects)
        self._write_batch_plan()
        self._observer.batch_done(
            self._done(batch_id, committed or report, started, written, was_there=committed is None)
        )
        self._maintain_tables()
        self._require_closed()

    def _require_closed(self) -> None:
        """Raise if too many of the last records were bad."""
        breaker = self._breaker.now
        if breaker.is_open:
            raise self._opened(breaker.reason(self._definition.table.dlq_name))

    def require_few_rejects(self) -> None:
        """Raise at the end of a run if too many of its records were bad."""
        breaker = self._breaker.now
        if breaker.is_open_at_end:
            raise self._opened(breaker.reason_at_end(self._definition.table.dlq_name))

    def _opened(self, reason: str) -> CircuitOpenError:
        return CircuitOpenError(f"pipeline '{self._definition.pipeline.name}': {reason}")

    def _maintain_tables(self) -> None:
        table = self._definition.table
        for maintenance, name in zip(self._maintenance, (table.name, table.dlq_name), strict=True):
            done = maintenance.after_batch()
            if done is not None:
                self._observer.maintenance_done(replace(done, table=name))

    @property
    def _is_staged(self) -> bool:
        return self.mode.mode is RunMode.DATAFRAME

    def _done(
        self, batch_id: int, report: BatchReport, started: float, written: float, *, was_there: bool
    ) -> BatchDone:
        now = monotonic()
        name = self._definition.pipeline.name
        note = self._rows.state.notes[name]
        latest = self._latest()
        return BatchDone(
            batch_id=batch_id,
            records=report.records,
            rows=report.counts.rows,
            rejects=report.counts.rejects,
            expectations=report.counts.expectations,
            files=len(report.files),
            file_bytes=sum(one.size_bytes for one in report.files),
            commit_ms=(now - written) * 1000,
            duration_ms=(now - started) * 1000,
            newest_timestamp_ms=report.newest_timestamp_ms,
            committed_at_ms=self._clock.now_ms(),
            lags=self.lags_of(latest),
            ends={at: one.offset for at, one in latest.positions.items()},
            reject_classes=report.reject_classes,
            way=self._way(report),
            position=self._held(),
            starts={one.at: one.start_offset for one in report.ranges.ranges},
            lost_offsets=sum(one.lost_count for one in note.held.values()),
            newest_ms=note.newest_ms,
            columns=self.columns,
            state=note.state,
            was_skipped=was_there,
        )

    def _way(self, report: BatchReport) -> str:
        if self._is_staged:
            return SPARK_SQL
        return DRIVER if report.counts.is_small else TASKS

    def _latest(self) -> StreamOffset:
        try:
            return self._reading.lookups.latest()
        except PenstockError:
            return NOTHING_HELD  # only displayed: an unreachable broker must not stop commits

    def lags_of(self, latest: StreamOffset) -> dict[str, int]:
        """Return offsets by topic that are not in the table; any thread may call this."""
        lags: dict[str, int] = {}
        for at, (held, end) in self.places_of(latest).items():
            lags[at.topic] = lags.get(at.topic, 0) + max(0, end - held)
        return lags

    def places_of(self, latest: StreamOffset) -> dict[TopicPartition, tuple[int, int]]:
        """Return the next missing offset and the end, by partition; any thread may call this."""
        held = self._rows.state.positions_of(self._definition.pipeline.name)
        return {at: (held.get(at, 0), one.offset) for at, one in latest.positions.items()}

    @property
    def position(self) -> StreamOffset:
        """The next offset of each partition that is not in the table."""
        return self._held()

    @property
    def newest_ms(self) -> int | None:
        """The timestamp of the newest record in the table."""
        return self._rows.state.notes[self._definition.pipeline.name].newest_ms

    @property
    def state(self) -> StateNote | None:
        """The watermark and the late records in the table; None: the function has no state."""
        return self._rows.state.notes[self._definition.pipeline.name].state

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Names and types of the table's columns."""
        return tuple((one.name, str(one.type)) for one in self._rows.table.schema())

    @property
    def options(self) -> SourceOptions:
        """The source options of the pipeline."""
        return self._reading.options

    # --- Offsets for the source ---

    def _starting(self) -> BatchRanges | None:
        """Return the first offsets of a pipeline without a note in the table.

        With them in the note it begins only once: "latest" is another offset a minute later.
        """
        name = self._definition.pipeline.name
        state = self._rows.table.load()
        note = state.notes.get(name)
        if note is not None and note.state is not None and self._definition.state is None:
            raise has_state(name).error()
        starting = starting_ranges(state, name, self._reading.first)
        if isinstance(starting, Stop):
            raise starting.error()
        return starting

    def _write_batch_plan(self) -> None:
        plan = None if self._is_staged else pack_plan(self._plans.task)
        self._file.write(BatchPlan(plan, self._initial, self._held()))

    def _held(self) -> StreamOffset:
        return self._rows.resume() or NOTHING_HELD
