"""A task of a stateful pipeline: reads its range, rejects bad and late records, returns the rows.

Guarantees: every record of the range is returned as a row, is in a file of rejects, or is late and
counted. The last row of a range has no values but the report of the range (`REPORT`), so a range
without a report was not read to its end. The same order returns the same rows and rejects, because
its watermark and its clock are part of the batch's offsets (`batch_times`).

**Late.** A record is late if its event time is at or before the watermark of its batch: the newest
event time of all earlier batches, less the delay, and never before 1970. Spark drops late records
without a sign. Its own watermark is not newer than this one, so that it receives none.

**Future.** A record whose event time is more than `future_max` after the planning of its batch is a
reject and moves no watermark: it would close every window too early, and all later records would
be late.
"""

import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from penstock.client.cluster import Cluster
from penstock.client.opening import open_cluster
from penstock.spark.source.task_reader import TaskSettings, read_range
from penstock.spark.tables.definition.model import STATE_REPORT, LateRecords, StateSettings
from penstock.spark.tables.files.data_files import FilesWriter
from penstock.spark.tables.formats.rejects import reject_rows
from penstock.spark.tables.run.stateful.batch_times import BatchTimes
from penstock.spark.tables.run.stateful.lost_records import with_stateful_remedy
from penstock.spark.tables.tasks.judging import Judge, newest_timestamp_ms
from penstock.spark.tables.tasks.orders import TaskOrder
from penstock.spark.tables.tasks.report import TaskReport
from penstock.spark.tables.tasks.task import planned_report
from penstock.spark.tables.tasks.task_plan import TaskPlan
from penstock.spark.tables.values.columns import VALUE, fit, records_of
from penstock.spark.tables.values.parser import ErrorClass, Reject
from penstock.spark.tables.values.schema_changes import all_nullable
from penstock.spark.worker_process import settle

REPORT: Final = STATE_REPORT
"""The column with the report of a range, in a row of its own."""
_MICROS: Final = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class StatePlan:
    """The plan of the tasks."""

    task: TaskPlan
    settings: StateSettings

    @property
    def columns(self) -> pa.Schema:
        """The columns for the function: those of the value, and the record's metadata."""
        rows = self.task.rows.schema
        return all_nullable(pa.schema([one for one in rows if one.name != VALUE.name]))

    @property
    def schema(self) -> pa.Schema:
        """The columns of the source."""
        return pa.schema([*self.columns, pa.field(REPORT, pa.binary())])


@dataclass(frozen=True, slots=True)
class RangeReport:
    """The result of reading one range."""

    task: TaskReport
    late_count: int
    newest_event_ms: int | None
    """The newest event time of the returned rows."""


def pack_state_plan(plan: StatePlan) -> bytes:
    """Return the plan as bytes for tasks."""
    return pickle.dumps(plan)


def unpack_report(data: bytes) -> RangeReport:
    """Return the report in a row of our task."""
    report = pickle.loads(data)  # noqa: S301 - from a task of this query
    assert isinstance(report, RangeReport)
    return report


def read_rows(
    orders: Sequence[TaskOrder],
    times: BatchTimes,
    settings: TaskSettings,
    cluster: Cluster | None = None,
) -> Iterator[pa.RecordBatch]:
    """Return the rows of these ranges, each range with its report at the end."""
    settle()
    whole = settings._replace(include_headers=True)
    with ExitStack() as stack, with_stateful_remedy():
        if cluster is None:
            cluster = stack.enter_context(open_cluster(settings.client))
        for order in orders:
            plan = pickle.loads(order.plan or b"")  # noqa: S301 - from the driver of this query
            assert isinstance(plan, StatePlan)
            records = read_range(cluster, order.task, whole)
            yield from rows_of(records, plan, times, planned_report(order.task, order.cluster_id))


def rows_of(
    records: Iterator[pa.RecordBatch], plan: StatePlan, times: BatchTimes, about: TaskReport
) -> Iterator[pa.RecordBatch]:
    """Return the rows of these records; `about` describes their range."""
    work = _Work(plan, times)
    with FilesWriter(plan.task.rejects, f"state-{uuid4().hex[:16]}") as rejects:
        for batch in records:
            rows = work.add(batch, rejects)
            if rows.num_rows:
                yield fit(rows, plan.schema)
        report = replace(work.report(about), reject_files=tuple(rejects.finish()))
    packed = pickle.dumps(RangeReport(report, work.late_count, work.newest_event_ms))
    row = pa.RecordBatch.from_pydict({REPORT: pa.array([packed], pa.binary())})
    yield fit(row, plan.schema)


class _Work:
    """The counts of a range so far."""

    def __init__(self, plan: StatePlan, times: BatchTimes) -> None:
        self._plan = plan
        self._watermark_us = times.watermark_ms * 1_000
        self._newest_us = (times.planned_ms + plan.settings.future_max_ms) * 1_000
        self._judge = Judge(plan.task)
        self._records = 0
        self._rows = 0
        self._classes: Counter[str] = Counter()
        self._newest_timestamp_ms: int | None = None
        self.late_count = 0
        self.newest_event_ms: int | None = None

    def add(self, batch: pa.RecordBatch, rejects: FilesWriter) -> pa.RecordBatch:
        """Return the rows for the function; write the rejects."""
        judged = self._judge.judge(batch)
        self._records += batch.num_rows
        newest = newest_timestamp_ms(batch)
        if newest is not None:
            self._newest_timestamp_ms = max(newest, self._newest_timestamp_ms or newest)
        rows, out = self._in_time(judged.rows)
        for bad in (*judged.rejects, *out):
            self._classes.update(bad.column("error_class").to_pylist())
            rejects.write(bad)
        self._rows += rows.num_rows
        return rows

    def report(self, about: TaskReport) -> TaskReport:
        """Return the report of the range, without its files."""
        unknown, looked_at = self._judge.unknown_fields()
        return replace(
            about,
            plan_number=self._plan.task.number,
            records=self._records,
            rows=self._rows,
            rejects=self._classes.total(),
            reject_classes=dict(self._classes),
            unknown_fields=dict(unknown),
            looked_at=looked_at,
            newest_timestamp_ms=self._newest_timestamp_ms,
        )

    def _in_time(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, list[pa.RecordBatch]]:
        """Return the rows that are neither late nor future, and rejects of the others."""
        times = rows.column(self._plan.settings.event_time).cast(_MICROS)
        numbers = times.cast(pa.int64())
        is_late = pc.fill_null(pc.less_equal(numbers, self._watermark_us), fill_value=False)
        is_future = pc.and_not(
            pc.fill_null(pc.greater(numbers, self._newest_us), fill_value=False), is_late
        )
        self.late_count += int(pc.sum(is_late, min_count=0).as_py())
        is_out = pc.or_(pc.or_(is_late, is_future), times.is_null())
        kept = rows
        out = []
        if pc.any(is_out, min_count=0).as_py():
            kept = rows.filter(pc.invert(is_out))
            out = self._rejects(rows, times, is_late, is_future)
        newest = pc.max(numbers.filter(pc.invert(is_out))).as_py()
        if newest is not None:
            newest_ms = int(newest) // 1_000
            self.newest_event_ms = max(newest_ms, self.newest_event_ms or newest_ms)
        return kept, out

    def _rejects(
        self, rows: pa.RecordBatch, times: pa.Array, is_late: pa.Array, is_future: pa.Array
    ) -> list[pa.RecordBatch]:
        settings = self._plan.settings
        name = settings.event_time
        bad = [
            Reject(row, ErrorClass.MISSING_VALUE, f"column '{name}', the event time, has no value")
            for row in pc.indices_nonzero(times.is_null()).to_pylist()
        ]
        if settings.late is LateRecords.REJECT:
            watermark = _time_text(self._watermark_us)
            bad += [
                Reject(row, ErrorClass.LATE, f"'{name}' is {text}, and the watermark {watermark}")
                for row, text in _texts(times, is_late)
            ]
        newest = _time_text(self._newest_us)
        bad += [
            Reject(
                row,
                ErrorClass.FUTURE,
                f"'{name}' is {text}, and state.future_max allowed times up to {newest}",
            )
            for row, text in _texts(times, is_future)
        ]
        if not bad:
            return []
        bad.sort(key=lambda one: one.row)
        records = records_of(rows, self._plan.task.metadata)
        return [reject_rows(records, bad, pipeline=self._plan.task.pipeline)]


def _texts(times: pa.Array, chosen: pa.Array) -> Iterator[tuple[int, str]]:
    """Return the numbers of the chosen rows, and their times."""
    numbers = pc.indices_nonzero(chosen)
    texts = times.take(numbers).cast(pa.string()).to_pylist()
    return zip(numbers.to_pylist(), texts, strict=True)


def _time_text(micros: int) -> str:
    return str(pa.scalar(micros, _MICROS).cast(pa.string()).as_py())
