"""The operator's settings of the share coordinator, with Kafka's names and defaults.

All shards share one object, whose owner may change it between two events. Values only; where they
come from is NOT known here.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class ShareSettings:
    """Intervals of the share coordinator."""

    updates_per_snapshot: int = 500
    """share.coordinator.snapshot.update.records.per.snapshot"""
    cold_snapshot_interval_ms: int = 300_000
    """share.coordinator.cold.partition.snapshot.interval.ms: a share-partition at rest gets a
    snapshot after this time, so that the log before it can be deleted."""
    prune_interval_ms: int = 300_000
    """share.coordinator.state.topic.prune.interval.ms: time between two deletions of records that
    newer snapshots replace."""
