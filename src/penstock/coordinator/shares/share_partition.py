"""`SharePartition`: the durable delivery state of one share-partition, and its records. Pure.

A snapshot record has the whole state; an update record has a change since. Replaying a snapshot and
the updates behind it gives the state; records before the snapshot are not needed. It does NOT
decide whether a change is allowed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from penstock.coordinator.shard import StoredRecord
from penstock.coordinator.shares.batches import merged
from penstock.coordinator.shares.ports import ShareChange, ShareKey, StateBatch
from penstock.protocol.stored.share_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareSnapshotValueStateBatch,
    ShareUpdateKey,
    ShareUpdateValue,
    ShareUpdateValueStateBatch,
)

NO_EPOCH: Final = -1
NO_START: Final = -1
UNKNOWN_COUNT: Final = -1
FIRST_EPOCH: Final = 0


@dataclass(frozen=True, slots=True)
class SharePartition:
    """The state of one share-partition."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    created_ms: int
    """When the state was created, or written whole for the last time because of its updates."""
    written_ms: int
    """When the last snapshot was written."""

    # Not in the records themselves:
    snapshot_offset: int
    """Where the last snapshot is in the log."""
    update_count: int
    """Updates since the last snapshot."""
    leader_fence: int
    """Leaders with a lower epoch are fenced."""
    state_fence: int
    """Changes with a lower state epoch are fenced."""

    @property
    def is_cold(self) -> bool:
        """Whether the last snapshot was written only to free the log."""
        return self.created_ms != self.written_ms

    def validate(self) -> None:
        """Assert what always holds."""
        assert self.update_count >= 0
        assert self.leader_fence >= self.leader_epoch
        assert self.state_fence >= self.state_epoch
        behind = None
        for batch in self.batches:
            assert batch.first_offset <= batch.last_offset, batch
            assert behind is None or batch.first_offset > behind, self.batches
            behind = batch.last_offset


# --- Records ---


def created(
    key: ShareKey, now: SharePartition | None, state_epoch: int, start_offset: int, now_ms: int
) -> StoredRecord:
    """The record that creates the state, or resets it."""
    value = ShareSnapshotValue(
        snapshot_epoch=FIRST_EPOCH if now is None else now.snapshot_epoch + 1,
        state_epoch=state_epoch,
        leader_epoch=FIRST_EPOCH,
        start_offset=start_offset,
        delivery_complete_count=UNKNOWN_COUNT if start_offset == NO_START else 0,
        create_timestamp=now_ms,
        write_timestamp=now_ms,
        state_batches=(),
    )
    return StoredRecord(ShareSnapshotKey(**key._asdict()), value)


def changed(
    key: ShareKey, now: SharePartition, change: ShareChange, updates_max: int, now_ms: int
) -> StoredRecord:
    """The record of a change: an update, or a snapshot after `updates_max` updates.

    The leader epoch of the change is stored. It may be -1: unchanged.
    """
    leader_epoch = now.leader_epoch if change.leader_epoch == NO_EPOCH else change.leader_epoch
    if now.update_count < updates_max:
        update = ShareUpdateValue(
            snapshot_epoch=now.snapshot_epoch,
            leader_epoch=leader_epoch,
            start_offset=change.start_offset,
            delivery_complete_count=change.delivery_complete_count,
            state_batches=tuple(
                ShareUpdateValueStateBatch(
                    first_offset=first,
                    last_offset=last,
                    delivery_state=state,
                    delivery_count=count,
                )
                for first, last, state, count in merged((), change.batches, change.start_offset)
            ),
        )
        return StoredRecord(ShareUpdateKey(**key._asdict()), update)
    start_offset = now.start_offset if change.start_offset == NO_START else change.start_offset
    return _snapshot(
        key,
        replace(
            now,
            snapshot_epoch=now.snapshot_epoch + 1,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=change.delivery_complete_count,
            batches=merged(now.batches, change.batches, start_offset),
            created_ms=now_ms,
            written_ms=now_ms,
        ),
    )


def rewritten(key: ShareKey, now: SharePartition, now_ms: int) -> StoredRecord:
    """The record that holds the state of a share-partition at rest, at the end of the log."""
    return _snapshot(key, replace(now, snapshot_epoch=now.snapshot_epoch + 1, written_ms=now_ms))


def deleted(key: ShareKey) -> StoredRecord:
    """The record that deletes the state."""
    return StoredRecord(ShareSnapshotKey(**key._asdict()), None)


def _snapshot(key: ShareKey, state: SharePartition) -> StoredRecord:
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.created_ms,
        write_timestamp=state.written_ms,
        state_batches=tuple(
            ShareSnapshotValueStateBatch(
                first_offset=first,
                last_offset=last,
                delivery_state=state,
                delivery_count=count,
            )
            for first, last, state, count in state.batches
        ),
    )
    return StoredRecord(ShareSnapshotKey(**key._asdict()), value)


# --- Replay ---


def of_snapshot(
    value: ShareSnapshotValue, before: SharePartition | None, offset: int
) -> SharePartition:
    """The state that a snapshot has."""
    return SharePartition(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        batches=merged((), _batches(value.state_batches)),
        created_ms=value.create_timestamp,
        written_ms=value.write_timestamp,
        snapshot_offset=offset,
        update_count=0,
        leader_fence=max(value.leader_epoch, NO_EPOCH if before is None else before.leader_fence),
        state_fence=max(value.state_epoch, NO_EPOCH if before is None else before.state_fence),
    )


def with_update(now: SharePartition, value: ShareUpdateValue) -> SharePartition:
    """The state after an update."""
    start_offset = now.start_offset if value.start_offset == NO_START else value.start_offset
    leader_epoch = now.leader_epoch if value.leader_epoch == NO_EPOCH else value.leader_epoch
    return replace(
        now,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=value.delivery_complete_count,
        batches=merged(now.batches, _batches(value.state_batches), start_offset),
        update_count=now.update_count + 1,
        leader_fence=max(now.leader_fence, leader_epoch),
    )


def _batches(
    stored: Iterable[ShareSnapshotValueStateBatch | ShareUpdateValueStateBatch],
) -> list[StateBatch]:
    """Batches of a record. A batch that no coordinator wrote makes the record unusable."""
    found = []
    for one in stored:
        if one.first_offset > one.last_offset:
            raise ValueError(f"a state batch ends at {one.last_offset}, before {one.first_offset}")
        found.append(
            StateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
        )
    return found
