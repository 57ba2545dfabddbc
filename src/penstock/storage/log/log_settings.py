"""`LogSettings` of one partition and the flush modes of a data directory. Values only."""

from dataclasses import dataclass
from enum import Enum


class FlushMode(Enum):
    """When an append counts as durable."""

    ALWAYS = "always"
    """After fdatasync: survives a power cut. The default."""
    INTERVAL = "interval"
    """At once; synced at an interval in milliseconds. A power cut loses that much."""
    OS = "os"
    """At once; synced when a segment is sealed and at a clean stop. A power cut may lose a
    segment."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Settings of one partition, from its topic's settings; Kafka's names and defaults."""

    segment_bytes: int = 1_073_741_824
    """Size above which a new segment begins."""
    segment_ms: int = 604_800_000
    """Span of record time above which a new segment begins."""
    index_interval_bytes: int = 4_096
    """Data between two index entries."""
    index_bytes_max: int = 10_485_760
    """Size of an index above which a new segment begins."""
    retention_ms: int = 604_800_000
    """Age above which a segment may be deleted; -1 for never."""
    retention_bytes: int = -1
    """Size of the log above which its oldest segments may be deleted; -1 for never."""
    is_compacted: bool = False
    """Whether offsets may be missing in the log (cleanup.policy=compact, now or once): recovery
    and reads then allow gaps."""
    is_adopted: bool = False
    """Whether another broker wrote the log: its compaction may leave gaps between segments."""
    deletes_records: bool = True
    """cleanup.policy has `delete`, or is empty: DeleteRecords may advance the start."""
    compacts: bool = False
    """cleanup.policy has `compact`: the cleaner compacts the log."""
    dirty_ratio_min: float = 0.5
    """Share of the log above which it is compacted."""
    compaction_lag_ms_min: int = 0
    """Age below which a segment is not compacted."""
    compaction_lag_ms_max: int = 2**63 - 1
    """Age above which a log is compacted whatever its dirty share."""
    delete_retention_ms: int = 86_400_000
    """How long a tombstone or a marker stays after it was first compacted."""
