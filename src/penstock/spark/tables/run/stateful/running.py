"""`StatefulPipeline`: a pipeline whose function keeps state, as a Spark query.

Guarantees: the table has the result of each batch of the checkpoint once. Checkpoint and table are
compared before the tables are acquired, so that a start with a wrong checkpoint does not end a
running driver, and once more afterwards. Each batch is evaluated even if the table has it already:
its evaluation writes the state of the next one. Too many bad records stop the pipeline before the
commit of their batch, so that a corrected definition applies to the whole batch; with `once` that
holds from few records on (`commit.circuit_breaker`), because their state cannot be corrected later.

Over Spark Connect it is refused, as every function (`preparing`).
It has no small batches in the driver, and `once` is a query with the trigger AvailableNow: both
would pass by the state.
"""

from functools import partial
from time import monotonic

from pyspark.sql import DataFrame, SparkSession

from penstock.core.clock import Clock
from penstock.spark.tables.commit.command_breaker import CommandBreaker
from penstock.spark.tables.commit.decisions import TableState
from penstock.spark.tables.commit.note import StateNote
from penstock.spark.tables.commit.owned_tables import Owned
from penstock.spark.tables.commit.stateful_rules import checkpoint_stop
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.formats.rejects import REJECTS
from penstock.spark.tables.run.dataframe_stage import Transform
from penstock.spark.tables.run.events import Observer
from penstock.spark.tables.run.pipeline import RunningPipeline
from penstock.spark.tables.run.plan_file import BatchPlan
from penstock.spark.tables.run.preparing import Prepared, Reading
from penstock.spark.tables.run.stateful.meaning import meaning_of
from penstock.spark.tables.run.stateful.records import StatePlan, pack_state_plan
from penstock.spark.tables.run.stateful.results import (
    Reports,
    ResultWriter,
    Written,
    planned_ranges,
)
from penstock.spark.tables.run.stateful.spark_checkpoint import read_checkpoint
from penstock.spark.tables.run.stateful.state_driver import ResultBatch, StatefulDriver
from penstock.spark.tables.run.stateful.state_query import start_stateful_query
from penstock.spark.tables.tasks.report import BatchReport


class StatefulPipeline(RunningPipeline):
    """A query with state, and the driver of its batches."""

    def __init__(
        self,
        spark: SparkSession,
        definition: PipelineDefinition,
        transform: Transform,
        reading: Reading,
        prepared: Prepared,
        observer: Observer,
        clock: Clock,
        owned: Owned,
        breaker: CommandBreaker,
    ) -> None:
        super().__init__(
            spark, definition, transform, reading, prepared, observer, clock, owned, breaker
        )
        assert definition.state is not None, "the caller has a stateful definition"
        self._function = transform
        self._settings = definition.state
        self._results = StatefulDriver(self._rows, self._rejects, clock)
        self._meaning = meaning_of(definition, prepared.plans.task.parser, transform)
        self._reports = Reports(spark)
        self._result_writer = ResultWriter(self._plans, definition, self._reports)
        self._watermark_ms = 0
        self._checkpoint_id: str | None = None
        self._once = False

    def begin(self, *, once: bool) -> None:
        """Compare checkpoint and table, acquire the tables, and start the query."""
        self._once = once
        self._require_checkpoint(self._rows.table.load())
        self._acquire()
        self._require_checkpoint(self._rows.state)
        held = self._rows.state.notes[self._definition.pipeline.name].state
        self._watermark_ms = 0 if held is None else held.watermark_ms
        self._write_batch_plan()
        self._query = start_stateful_query(
            self._spark,
            self._definition,
            self._function,
            StatePlan(self._plans.task, self._settings),
            self._file.path,
            self._reports,
            self._on_batch,
            once=once,
        )

    def await_end(self, timeout_seconds: int | None = None) -> bool:
        """Wait until the query has ended, and raise its error; return False after the timeout.

        The end of a run with `once` is judged by its share of bad records.
        """
        has_ended = super().await_end(timeout_seconds)
        if has_ended and self._once:
            self.require_few_rejects()
        return has_ended

    def _require_checkpoint(self, state: TableState) -> None:
        found = read_checkpoint(self._spark, self._definition.pipeline.checkpoint)
        stop = checkpoint_stop(state, self._definition.pipeline.name, found, self._meaning)
        if stop is not None:
            raise stop.error()

    def _commit_frame(self, frame: DataFrame, batch_id: int, started: float) -> None:
        orders = self._file.take_batch()
        written = self._result_writer.write(frame, orders)
        finished = monotonic()
        if written.newest_event_ms is not None:
            next_ms = written.newest_event_ms - self._settings.delay_ms
            self._watermark_ms = max(self._watermark_ms, next_ms)
        place = StateNote(
            self._checkpoint(),
            batch_id,
            planned_ranges(orders),
            self._watermark_ms,
            written.late_count,
            self._meaning,
        )
        report = written.report
        require = partial(self._offer, report)
        is_new = self._results.commit(self._result_batch(written, place), require)
        self._committed(report if is_new else None, report, batch_id, started, finished)

    def _offer(self, report: BatchReport) -> None:
        """Note a batch before its commit; raise if the circuit breaker opens by it."""
        after = self._breaker.now.after(report.records, report.counts.rejects)
        if after.is_open or (self._once and after.is_open_early):
            raise self._opened(after.reason_before_commit(report.reject_classes))
        self._breaker.offered(report.ranges, report.records, report.counts.rejects)

    def _result_batch(self, written: Written, place: StateNote) -> ResultBatch:
        rows = self._rows.table
        return ResultBatch(
            written.report,
            place,
            rows.layout(rows.schema()).directory,
            self._rejects.table.layout(REJECTS).directory,
        )

    def _checkpoint(self) -> str:
        """Return the id of the checkpoint, which Spark has written before the first batch."""
        if self._checkpoint_id is None:
            place = self._definition.pipeline.checkpoint
            self._checkpoint_id = read_checkpoint(self._spark, place).id
        assert self._checkpoint_id is not None, "a batch runs in a query with a checkpoint"
        return self._checkpoint_id

    def _write_batch_plan(self) -> None:
        plan = pack_state_plan(StatePlan(self._plans.task, self._settings))
        held = self._held()
        self._file.write(BatchPlan(plan, self._initial, held, self._watermark_ms))
