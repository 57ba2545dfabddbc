"""Why a request to the share coordinator is refused: one function for each reason. Pure.

Each returns the refusal, or None. Which checks a request needs is NOT known here.
"""

from typing import Final

from penstock.coordinator.shares.batches import merged
from penstock.coordinator.shares.ports import Refusal, ShareChange, ShareKey
from penstock.coordinator.shares.share_partition import NO_EPOCH, NO_START, SharePartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.write_share_group_state import WriteShareGroupStateRequest

SHARE_STATE_BATCHES_MAX: Final = 20_000
"""Batches of delivery state of one share-partition. At most 10,000 records are in flight
(group.share.max.partition.max.record.locks); a snapshot then has 400 KB and fits into a batch."""

CHANGE_BATCHES_MAX: Final = SHARE_STATE_BATCHES_MAX
"""Batches of one change. A leader has no more runs of records, and may write all of them at once;
the merge then takes less than a tenth of a second."""


def bad_partition(key: ShareKey) -> Refusal | None:
    """A partition number that no topic has."""
    if key.partition >= 0:
        return None
    return Refusal(ErrorCode.INVALID_REQUEST, f"partition {key.partition} is negative")


def uninitialized(now: SharePartition | None, key: ShareKey) -> Refusal | None:
    """A share-partition without state."""
    if now is not None:
        return None
    return Refusal(
        ErrorCode.INVALID_REQUEST,
        f"share group {key.group_id!r} has no state of partition {key.partition} of topic id "
        f"{key.topic_id}; initialize it first",
    )


def fenced_leader(now: SharePartition | None, leader_epoch: int) -> Refusal | None:
    """A leader that a later leader has replaced."""
    if now is None or leader_epoch == NO_EPOCH or leader_epoch >= now.leader_fence:
        return None
    return Refusal(
        ErrorCode.FENCED_LEADER_EPOCH,
        f"leader epoch {leader_epoch} is older than {now.leader_fence}; read the state again",
    )


def fenced_state(now: SharePartition | None, state_epoch: int) -> Refusal | None:
    """A state that was reset since."""
    if now is None or state_epoch == NO_EPOCH or state_epoch >= now.state_fence:
        return None
    return Refusal(
        ErrorCode.FENCED_STATE_EPOCH,
        f"state epoch {state_epoch} is older than {now.state_fence}; read the state again",
    )


def too_many_sent(request: WriteShareGroupStateRequest) -> Refusal | None:
    """More batches than records can be in flight. Checked before they are converted."""
    ((one,),) = (topic.partitions for topic in request.topics)
    if len(one.state_batches) <= CHANGE_BATCHES_MAX:
        return None
    return Refusal(
        ErrorCode.INVALID_REQUEST,
        f"a change of {len(one.state_batches)} state batches is too large (at most "
        f"{CHANGE_BATCHES_MAX}); send it in several changes",
    )


def bad_change(now: SharePartition | None, change: ShareChange) -> Refusal | None:
    """Batches without records, and changes after which the state does not fit into one record."""
    assert now is not None
    for batch in change.batches:
        if not 0 <= batch.first_offset <= batch.last_offset:
            return Refusal(
                ErrorCode.INVALID_REQUEST,
                f"a state batch from {batch.first_offset} to {batch.last_offset} has no records",
            )
    # A batch adds at most two: it may split one of the state.
    if len(now.batches) + 2 * len(change.batches) <= SHARE_STATE_BATCHES_MAX:
        return None
    start_offset = now.start_offset if change.start_offset == NO_START else change.start_offset
    return _too_many(len(merged(now.batches, change.batches, start_offset)))


def _too_many(count: int) -> Refusal | None:
    if count <= SHARE_STATE_BATCHES_MAX:
        return None
    return Refusal(
        ErrorCode.INVALID_REQUEST,
        f"a share-partition with {count} state batches is too large (at most "
        f"{SHARE_STATE_BATCHES_MAX}); acknowledge the oldest records, so that its start advances",
    )
