"""One replica's role and high watermark: a pure state machine.

Invariants, asserted by `validate()`:

- the high watermark never goes back while this replica leads in one epoch;
- it never passes the durable offset of any in-sync replica. On one node that set is this broker, so
  the high watermark is the durable offset of the local log: a consumer never sees a record that a
  power cut could lose.

It holds no log and does no IO: `replication.manager` reports durable offsets to it.
"""

from penstock.core.errors import (
    FencedLeaderEpochError,
    NotLeaderError,
    UnknownLeaderEpochError,
)
from penstock.core.types import TopicPartition

NO_EPOCH = -1
"""Sent by clients that do not know the leader epoch."""


class PartitionState:
    """Leadership and watermark of one partition on this broker."""

    __slots__ = ("high_watermark", "is_leader", "leader_epoch", "local_durable_offset", "name")

    def __init__(
        self, name: TopicPartition, *, leader_epoch: int, is_leader: bool, durable_offset: int
    ) -> None:
        self.name = name
        self.leader_epoch = leader_epoch
        self.is_leader = is_leader
        self.local_durable_offset = durable_offset
        self.high_watermark = durable_offset

    def local_durable(self, offset: int) -> bool:
        """The local log is on disk up to `offset`. True if the high watermark moved."""
        assert offset >= self.local_durable_offset, "the durable offset never decreases"
        self.local_durable_offset = offset
        if offset == self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def require_leader(self, current_leader_epoch: int) -> None:
        """Raise if this broker does not lead, or leads in another epoch (KIP-320)."""
        if not self.is_leader:
            raise NotLeaderError(f"this broker does not lead {self.name}")
        if current_leader_epoch <= NO_EPOCH or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise FencedLeaderEpochError(
                f"{self.name} is at leader epoch {self.leader_epoch}, asked {current_leader_epoch}"
            )
        raise UnknownLeaderEpochError(
            f"{self.name} is at leader epoch {self.leader_epoch}, asked {current_leader_epoch}"
        )

    def validate(self) -> None:
        """Assert the invariants."""
        assert 0 <= self.high_watermark <= self.local_durable_offset
        assert self.leader_epoch >= 0
