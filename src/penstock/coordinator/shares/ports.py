"""`ShareStates`: the durable delivery state of share-partitions, for other parts of this broker.

A share-partition is a partition as one share group consumes it. Its state is with the share
coordinator, here or on another broker; `node.coordination.share_states` implements the port for
both. Guarantees:

- an answer is sent when the change is committed: no crash loses it;
- a refusal is a value, never an exception. `Refusal.is_retriable` says whether the same call may
  succeed later; the port itself retries nothing;
- the calls for one share-partition are carried out in the order in which they were sent, as long
  as its coordinator stays the same.

The port does NOT know records in flight: acquisitions are not stored.
"""

from typing import NamedTuple, Protocol
from uuid import UUID

from penstock.core.deferred import Deferred
from penstock.protocol.error_codes import RETRIABLE, ErrorCode


class ShareKey(NamedTuple):
    """Names one share-partition."""

    group_id: str
    topic_id: UUID
    partition: int


class StateBatch(NamedTuple):
    """Consecutive records with one delivery state: 0 available, 2 acknowledged, 4 archived."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class ShareState(NamedTuple):
    """The delivery state of a share-partition; records without a batch are available."""

    state_epoch: int
    start_offset: int
    """-1: not initialized."""
    batches: tuple[StateBatch, ...]


class ShareChange(NamedTuple):
    """A change of the delivery state, by the leader of the partition."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    """-1: unchanged."""
    batches: tuple[StateBatch, ...]
    """The records whose state changed; they replace the state before."""
    delivery_complete_count: int = -1
    """Records from the start offset on whose delivery is complete; -1: unknown."""


class ShareSummary(NamedTuple):
    """The delivery state without its batches, for lag and for offsets of share groups."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    """-1: not initialized."""
    delivery_complete_count: int
    """-1: unknown."""


class Refusal(NamedTuple):
    """The error of a call."""

    error_code: ErrorCode
    message: str | None = None

    @property
    def is_retriable(self) -> bool:
        """Whether the same call may succeed later."""
        return self.error_code in RETRIABLE


class ShareStates(Protocol):
    """The delivery state of all share-partitions of the cluster. No call waits or blocks."""

    def initialize(
        self, key: ShareKey, state_epoch: int, start_offset: int
    ) -> Deferred[Refusal | None]:
        """Create the state, or reset it with a higher state epoch; -1: a start offset comes later.

        FENCED_STATE_EPOCH: the state has a higher epoch.
        """
        ...

    def read(self, key: ShareKey, leader_epoch: int) -> Deferred[ShareState | Refusal]:
        """Return the state, and fence changes of leaders with a lower epoch from now on.

        FENCED_LEADER_EPOCH: a later leader has read or changed it.
        """
        ...

    def write(self, key: ShareKey, change: ShareChange) -> Deferred[Refusal | None]:
        """Merge a change into the state.

        FENCED_LEADER_EPOCH or FENCED_STATE_EPOCH: read the state anew, or give the partition up.
        """
        ...

    def delete(self, key: ShareKey) -> Deferred[Refusal | None]:
        """Delete the state; a state that does not exist is deleted."""
        ...

    def summary(self, key: ShareKey, leader_epoch: int = -1) -> Deferred[ShareSummary | Refusal]:
        """Return the summary of the state; a leader epoch of -1 is not checked."""
        ...
