"""Events of a running pipeline: one for each batch and each maintenance of its table (pure).

An `Observer` receives them: the live view, the metrics, a test. This module has no state.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class BatchDone:
    """A micro-batch that was committed, now or earlier."""

    batch_id: int
    records: int
    """Records that were read; rows, rejects and dropped rows together."""
    rows: int
    rejects: int
    expectations: Mapping[str, int]
    """Rows that broke a rule, by its name."""
    files: int
    """Data files of the commit."""
    file_bytes: int
    commit_ms: float
    """Both tables; without reading and writing rows."""
    duration_ms: float
    """From the start of the batch to its commit."""
    newest_timestamp_ms: int | None
    """Of the newest record of the batch; None when it has none."""
    committed_at_ms: int
    lags: Mapping[str, int] = field(default_factory=dict)
    """Available offsets by topic that were not in the batch."""
    was_skipped: bool = False
    """The table held the whole batch since an earlier attempt."""

    @property
    def freshness_ms(self) -> int | None:
        """How old the newest record was when it could be read in the table."""
        if self.newest_timestamp_ms is None:
            return None
        return max(0, self.committed_at_ms - self.newest_timestamp_ms)


@dataclass(frozen=True, slots=True)
class CareDone:
    """The table was maintained."""

    compacted_files: int
    """Files that were merged ..."""
    written_files: int
    """... into these."""
    expired_snapshots: int
    removed_orphans: int
    live_files: int
    live_bytes: int
    oldest_snapshot_ms: int | None
    """When the oldest state that can still be read was committed."""
    duration_ms: float
    problem: str = ""
    """The error of this time; the maintenance is tried again."""
    table: str = ""
    """Its name: of the rows, or of the rejects."""

    @property
    def is_idle(self) -> bool:
        """Whether there was nothing to do."""
        done = (self.compacted_files, self.expired_snapshots, self.removed_orphans)
        return not any(done) and not self.problem


class Observer(Protocol):
    """Receives the events."""

    def batch_done(self, event: BatchDone) -> None:
        """After each batch."""

    def care_done(self, event: CareDone) -> None:
        """After each maintenance of the table."""


class NoObserver:
    """Ignores all events."""

    def batch_done(self, event: BatchDone) -> None:
        """Nothing."""

    def care_done(self, event: CareDone) -> None:
        """Nothing."""
