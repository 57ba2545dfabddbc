"""A task of a pipeline: reads its range, judges each record, writes files, reports.

Guarantees: a report with files is returned only after all of them are stored. Every record of the
range is in one of them, or was dropped by a rule that counts it. If a range is read twice, its
files have different names, and a commit uses one set.

Memory is bounded by one fetch and the unfinished row groups.
"""

from collections import Counter
from collections.abc import Iterator
from functools import reduce
from uuid import uuid4

import pyarrow as pa

from penstock.spark.planning import ReadTask
from penstock.spark.tables.commit.note import PartitionRange
from penstock.spark.tables.files.data_files import FilesWriter
from penstock.spark.tables.tasks.judging import GrowthNeededError, Judge, newest_timestamp_ms
from penstock.spark.tables.tasks.report import TaskReport


def range_of(task: ReadTask) -> PartitionRange:
    """Return the offsets of a task."""
    return PartitionRange(
        *task.range.at, task.range.from_offset, task.range.until_offset, task.leader_epoch
    )


def planned_report(task: ReadTask, cluster_id: str | None) -> TaskReport:
    """Return a report of the range alone: nothing was read."""
    return TaskReport(0, range_of(task), task.topic_id, cluster_id)


def write_records(records: Iterator[pa.RecordBatch], judge: Judge, about: TaskReport) -> TaskReport:
    """Write files of these records; `about` describes them."""
    work, plan = _Work(judge), judge.plan
    known_before, looked_before = judge.unknown_fields()
    judge.take_empty_columns()
    name = f"{about.range.topic}-{about.range.partition}-{about.range.start_offset}"
    label = f"{_safe(name)}-{uuid4().hex[:8]}"
    try:
        with (
            FilesWriter(plan.rows, label) as rows,
            FilesWriter(plan.rejects, label) as rejects,
            FilesWriter(plan.deletions or plan.rows, label) as deletions,
        ):
            for batch in records:
                work.add(batch, rows, rejects, deletions)
            files, reject_files, deletion_files = (
                tuple(one.finish()) for one in (rows, rejects, deletions)
            )
    except GrowthNeededError as error:
        # The remaining records may need more columns: plan all of them now, and read the range
        # again once.
        needs = reduce(lambda _, batch: judge.needed_by(batch), records, error.value_schema)
        return TaskReport(plan.number, about.range, about.topic_id, about.cluster_id, needs=needs)
    unknown, looked_at = judge.unknown_fields()
    return TaskReport(
        plan.number,
        about.range,
        about.topic_id,
        about.cluster_id,
        unknown_fields=dict(Counter(unknown) - Counter(known_before)),
        looked_at=looked_at - looked_before,
        empty_columns=judge.take_empty_columns(),
        records=work.records,
        rows=work.rows,
        rejects=work.rejects,
        broken=dict(work.broken),
        failed=tuple(sorted(work.failed)),
        files=files,
        reject_files=reject_files,
        deletion_files=deletion_files,
        newest_timestamp_ms=work.newest_timestamp_ms,
        reject_classes=dict(work.reject_classes),
    )


class _Work:
    """The counts of a task so far."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self.records = 0
        self.rows = 0
        self.rejects = 0
        self.reject_classes: Counter[str] = Counter()
        self.broken: Counter[str] = Counter()
        self.failed: set[str] = set()
        self.newest_timestamp_ms: int | None = None

    def add(
        self,
        batch: pa.RecordBatch,
        rows: FilesWriter,
        rejects: FilesWriter,
        deletions: FilesWriter,
    ) -> None:
        """Judge records and write their rows and rejects."""
        judged = self._judge.judge(batch)
        self.records += batch.num_rows
        self.rows += judged.rows.num_rows
        self.broken.update(judged.broken)
        self.failed.update(judged.failed)
        newest = newest_timestamp_ms(batch)
        if newest is not None:
            self.newest_timestamp_ms = max(newest, self.newest_timestamp_ms or newest)
        if judged.rows.num_rows:
            rows.write(judged.rows)
        for bad in judged.rejects:
            self.rejects += bad.num_rows
            self.reject_classes.update(bad.column("error_class").to_pylist())
            rejects.write(bad)
        if judged.deletions is not None and judged.deletions.num_rows:
            self.rows += judged.deletions.num_rows
            deletions.write(judged.deletions)


def _safe(name: str) -> str:
    return "".join(one if one.isalnum() or one in "-_" else "_" for one in name)[:100]
