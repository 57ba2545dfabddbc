"""The reports of tasks to the driver, and their sum (pure, but for pickling).

A report covers one range of offsets of one partition: every record of the range is in a file of
rows, in a file of rejects, or was dropped by a rule. So a commit needs only the reports of a batch;
the rows themselves never reach the driver.
"""

import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.core.types import TopicPartition
from penstock.spark.offsets import NO_EPOCH
from penstock.spark.tables.commit.note import BatchRanges, CommitCounts, LostRange, PartitionRange
from penstock.spark.tables.files.data_files import FileReceipt
from penstock.spark.tables.files.upsert import Changes


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The result of one task."""

    plan_number: int
    range: PartitionRange
    topic_id: str | None
    cluster_id: str | None
    records: int = 0
    rows: int = 0
    rejects: int = 0
    broken: Mapping[str, int] = field(default_factory=dict)
    """The number of rows that broke a rule, by its name."""
    unknown_fields: Mapping[str, int] = field(default_factory=dict)
    """Fields without a column: the number of checked values with each field."""
    looked_at: int = 0
    empty_columns: frozenset[str] | None = None
    """Columns of values that are NULL in all rows; None: no values were read."""
    failed: tuple[str, ...] = ()
    """Rules whose failure forbids the commit of the batch."""
    files: tuple[FileReceipt, ...] = ()
    reject_files: tuple[FileReceipt, ...] = ()
    deletion_files: tuple[FileReceipt, ...] = ()
    newest_timestamp_ms: int | None = None
    lost: tuple[LostRange, ...] = ()
    """Offsets of the range that were deleted from the topic; the user accepts this loss."""
    needs: pa.Schema | None = None
    """Columns of the values that the plan lacks; nothing was written."""
    reject_classes: Mapping[str, int] = field(default_factory=dict)
    """The number of rejects by class of their reason."""


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The combined reports of a batch."""

    ranges: BatchRanges
    counts: CommitCounts
    records: int
    failed: tuple[str, ...]
    files: tuple[FileReceipt, ...]
    reject_files: tuple[FileReceipt, ...]
    deletion_files: tuple[FileReceipt, ...]
    newest_timestamp_ms: int | None
    lost: tuple[LostRange, ...] = ()
    schema: pa.Schema | None = None
    """The table's schema for these rows; None when it needs no change."""
    changes: Changes | None = None
    """The files as an upsert; None: the files are appended."""
    reject_classes: Mapping[str, int] = field(default_factory=dict)
    """The number of rejects by class of their reason."""


def pack(report: TaskReport) -> bytes:
    """Return the report as the content of a Spark row."""
    return pickle.dumps(report)


def unpack(data: bytes) -> TaskReport:
    """Return the report in a Spark row of our task."""
    report = pickle.loads(data)  # noqa: S301 - from a task of this query
    assert isinstance(report, TaskReport)
    return report


def together(reports: Sequence[TaskReport]) -> BatchReport:
    """Return the report of the batch; tasks of one partition are adjacent without a gap."""
    broken: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    for one in reports:
        broken.update(one.broken)
        classes.update(one.reject_classes)
        unknown.update(one.unknown_fields)
    times = [one.newest_timestamp_ms for one in reports if one.newest_timestamp_ms is not None]
    return BatchReport(
        ranges=ranges_of(reports),
        counts=CommitCounts(
            sum(one.rows for one in reports),
            sum(one.rejects for one in reports),
            dict(broken),
            max(times, default=None),
            dict(unknown),
            sum(one.looked_at for one in reports),
            _empty_in_all(reports),
        ),
        records=sum(one.records for one in reports),
        failed=tuple(sorted({name for one in reports for name in one.failed})),
        files=tuple(file for one in reports for file in one.files),
        reject_files=tuple(file for one in reports for file in one.reject_files),
        deletion_files=tuple(file for one in reports for file in one.deletion_files),
        newest_timestamp_ms=max(times, default=None),
        lost=tuple(lost for one in reports for lost in one.lost),
        reject_classes=dict(classes),
    )


def _empty_in_all(reports: Sequence[TaskReport]) -> dict[str, bool] | None:
    found = [one.empty_columns for one in reports if one.empty_columns is not None]
    return dict.fromkeys(frozenset.intersection(*found), False) if found else None


def ranges_of(reports: Sequence[TaskReport]) -> BatchRanges:
    """Return the offsets of the batch: one range by partition."""
    found: dict[TopicPartition, list[PartitionRange]] = {}
    for one in reports:
        found.setdefault(one.range.at, []).append(one.range)
    return BatchRanges(
        tuple(
            PartitionRange(
                *at,
                min(one.start_offset for one in pieces),
                max(one.end_offset for one in pieces),
                max((one.leader_epoch for one in pieces), default=NO_EPOCH),
            )
            for at, pieces in sorted(found.items())
        ),
        {one.range.topic: one.topic_id for one in reports if one.topic_id is not None},
        next((one.cluster_id for one in reports if one.cluster_id is not None), None),
    )
