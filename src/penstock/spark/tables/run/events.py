"""Events of a running pipeline: one for each batch and each maintenance of its table (pure).

An `Observer` receives them: the live view, the metrics, a test. This module has no state.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from penstock.core.types import TopicPartition
from penstock.spark.offsets import StreamOffset
from penstock.spark.tables.commit.note import StateNote

DRIVER: Final = "driver"
"""The driver wrote a small batch without Spark's tasks."""
TASKS: Final = "tasks"
"""Spark's tasks decoded, parsed, judged and wrote the rows."""
SPARK_SQL: Final = "spark_sql"
"""Spark's tasks staged the rows, and Spark SQL wrote them."""
WAYS: Final = (DRIVER, TASKS, SPARK_SQL)


@dataclass(frozen=True, slots=True)
class BatchDone:
    """A micro-batch that was committed, now or earlier."""

    batch_id: int
    records: int
    """The number of records that were read: rows, rejects and dropped rows together."""
    rows: int
    rejects: int
    expectations: Mapping[str, int]
    """The number of rows that broke a rule, by its name."""
    files: int
    """The number of data files in the commit."""
    file_bytes: int
    commit_ms: float
    """The time for both tables, without reading and writing rows."""
    duration_ms: float
    """The time from the start of the batch to its commit."""
    newest_timestamp_ms: int | None
    """The timestamp of the newest record of the batch; None without one."""
    committed_at_ms: int
    lags: Mapping[str, int] = field(default_factory=dict)
    """The number of available offsets by topic that were not in the batch."""
    reject_classes: Mapping[str, int] = field(default_factory=dict)
    """The number of rejects by class of their reason."""
    way: str = TASKS
    """`DRIVER`, `TASKS` or `SPARK_SQL`: what wrote the rows."""
    position: StreamOffset = field(default_factory=lambda: StreamOffset({}))
    """The next offset of each partition that is not in the table."""
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The end of each partition after the commit; empty if no broker responds."""
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The first offset of each partition in the batch."""
    lost_offsets: int = 0
    """The offsets that the table did not get, since the pipeline began."""
    newest_ms: int | None = None
    """The timestamp of the newest record in the table."""
    columns: tuple[tuple[str, str], ...] = ()
    """Names and types of the table's columns."""
    state: StateNote | None = None
    """The table's watermark and late records after the batch; None: the function has no state."""
    was_skipped: bool = False
    """Whether the whole batch was in the table since an earlier attempt."""

    @property
    def freshness_ms(self) -> int | None:
        """The age of the newest record at its commit."""
        if self.newest_timestamp_ms is None:
            return None
        return max(0, self.committed_at_ms - self.newest_timestamp_ms)


@dataclass(frozen=True, slots=True)
class MaintenanceDone:
    """A finished maintenance of the table."""

    compacted_files: int
    """The number of files that were merged ..."""
    written_files: int
    """... into this number of files."""
    expired_snapshots: int
    removed_orphans: int
    live_files: int
    live_bytes: int
    oldest_snapshot_ms: int | None
    """The commit time of the oldest readable state."""
    duration_ms: float
    problem: str = ""
    """The error of this time; the maintenance is retried."""
    table: str = ""
    """The table's name: of the rows, or of the rejects."""
    snapshots: int = 0
    """The number of readable states of the table."""

    @property
    def is_idle(self) -> bool:
        """Whether there was nothing to do."""
        done = (self.compacted_files, self.expired_snapshots, self.removed_orphans)
        return not any(done) and not self.problem


class Observer(Protocol):
    """Receives the events."""

    def batch_done(self, event: BatchDone) -> None:
        """Handle the end of a batch."""

    def maintenance_done(self, event: MaintenanceDone) -> None:
        """Handle the end of a maintenance of the table."""


class NoObserver:
    """Ignores all events."""

    def batch_done(self, event: BatchDone) -> None:
        """Do nothing."""

    def maintenance_done(self, event: MaintenanceDone) -> None:
        """Do nothing."""
