"""Which fetches of followers and which appends a leader accepts.

A follower must have a replica of the partition and name the leader epoch: without the epoch, a
report of an earlier one would count. Its history must agree with the leader's (`divergence`). A
record that needs acknowledgements is refused while too few replicas are in sync.
"""

from typing import NamedTuple

from penstock.core.errors import (
    NotEnoughReplicasError,
    NotLeaderError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    UnknownLeaderEpochError,
)
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.partition import NO_EPOCH, PartitionState
from penstock.replication.read_result import DivergingEpoch


class Fetcher(NamedTuple):
    """The broker that fetches as a follower."""

    broker_id: int
    broker_epoch: int
    """Its registration, as it says."""
    is_counted: bool
    """Whether the image has this registration. A newer one is served, and counts later."""


def require_enough(state: PartitionState) -> None:
    """Raise `NotEnoughReplicasError` if a record could not be acknowledged."""
    if state.in_sync is not None and not state.in_sync.has_enough:
        raise NotEnoughReplicasError(
            f"{state.name} has the in-sync replicas {list(state.in_sync.state.isr)}, and "
            f"min.insync.replicas needs {state.in_sync.min_isr}"
        )


def require_marker_place(partition: HostedPartition) -> None:
    """Raise an error if no marker can be appended: another broker leads, or a pipe writes here."""
    partition.state.require_leader(NO_EPOCH)
    require_enough(partition.state)
    if partition.is_mirror:
        # The producer ids of a mirror are the parent's: the transaction of another producer ends.
        raise PolicyViolationError(f"{partition.name} is a mirror: its parent ends transactions")


def require_replica(
    partition: HostedPartition, fetcher: Fetcher, current_leader_epoch: int
) -> None:
    """Raise an error if the broker has no replica of the partition, or names no leader epoch."""
    in_sync = partition.state.in_sync
    if in_sync is None or fetcher.broker_id not in in_sync.followers:
        raise NotLeaderError(f"broker {fetcher.broker_id} has no replica of {partition.name}")
    if current_leader_epoch <= NO_EPOCH:
        # Without it, a report of an earlier epoch would count in this one.
        raise UnknownLeaderEpochError(f"a replica of {partition.name} must name its leader epoch")


def divergence(
    partition: HostedPartition, last_fetched_epoch: int, offset: int
) -> DivergingEpoch | None:
    """Return where the reader's history leaves the leader's; None if they agree up to `offset`."""
    log = partition.log
    if last_fetched_epoch == partition.state.leader_epoch and offset <= log.end_offset:
        return None
    epoch, end_offset = partition.end_offset_for_epoch(last_fetched_epoch)
    if epoch < 0 or end_offset < 0:
        raise OffsetOutOfRangeError(offset, log.log_start_offset, log.end_offset)
    if epoch < last_fetched_epoch or end_offset < offset:
        return DivergingEpoch(epoch, end_offset)
    return None


def follower_divergence(
    partition: HostedPartition, last_fetched_epoch: int, offset: int
) -> DivergingEpoch | None:
    """Return the same for a follower, which cuts its log there. It gets no error.

    A follower without an epoch that the leader has keeps nothing above the leader's end.
    """
    try:
        found = None
        if last_fetched_epoch > NO_EPOCH:
            found = divergence(partition, last_fetched_epoch, offset)
    except OffsetOutOfRangeError:
        found = DivergingEpoch(NO_EPOCH, partition.log.end_offset)
    if found is None and offset > partition.log.end_offset:
        return DivergingEpoch(NO_EPOCH, partition.log.end_offset)
    return found
