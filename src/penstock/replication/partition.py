"""`PartitionState`: role, leader epoch and high watermark of one partition on this broker. Pure.

Guarantees:

- The high watermark never falls while the object lives, except after an unclean election. A change
  of the leader or of its epoch begins with a new object; the old one leads no more, for ever.
- With one replica the high watermark is the end of the synced log. A leader of several replicas
  moves it when each possible in-sync replica has synced a record (`replication.isr`). A follower
  moves it to the leader's, within its own log.

It parks nothing, writes nothing and reads no clock.
"""

from enum import Enum

from penstock.cluster.elections import NO_LEADER
from penstock.core.errors import (
    FencedLeaderEpochError,
    NotLeaderError,
    PenstockError,
    UnknownLeaderEpochError,
)
from penstock.core.types import TopicPartition
from penstock.replication.isr import InSyncReplicas

NO_EPOCH = -1
"""Sent by clients that do not know the leader epoch."""


class Role(Enum):
    """The part of this broker in a partition."""

    LEADER = "leader"
    FOLLOWER = "follower"
    IDLE = "idle"
    """The partition has no leader, or this broker does not know one."""


class PartitionState:
    """Role and watermark of one partition on this broker, in one leader epoch."""

    __slots__ = (
        "high_watermark",
        "in_sync",
        "is_leader",
        "leader_epoch",
        "leader_id",
        "local_durable_offset",
        "name",
    )

    def __init__(
        self,
        name: TopicPartition,
        *,
        leader_epoch: int,
        is_leader: bool,
        durable_offset: int,
        high_watermark: int | None = None,
        leader_id: int = NO_LEADER,
        in_sync: InSyncReplicas | None = None,
    ) -> None:
        self.name = name
        self.leader_epoch = leader_epoch
        self.is_leader = is_leader
        self.leader_id = leader_id
        """Broker id of the leader that this follower fetches from."""
        self.in_sync = in_sync
        """The other replicas, while this broker leads; None if it has the only one."""
        self.local_durable_offset = durable_offset
        self.high_watermark = durable_offset if high_watermark is None else high_watermark

    @property
    def role(self) -> Role:
        """The role of this broker."""
        if self.is_leader:
            return Role.LEADER
        return Role.IDLE if self.leader_id == NO_LEADER else Role.FOLLOWER

    def local_durable(self, offset: int) -> bool:
        """The local log is on disk up to `offset`. True if the high watermark moved."""
        assert offset >= self.local_durable_offset or not self.is_leader, "a leader cuts nothing"
        self.local_durable_offset = offset
        if self.in_sync is not None:
            offset = self.in_sync.committed_below(offset)
        elif not self.is_leader:
            return False
        return self._raise_to(offset)

    def replicas_moved(self) -> bool:
        """A follower reported, or the in-sync replicas changed. True if the watermark moved."""
        assert self.in_sync is not None, "the leader of several replicas"
        return self._raise_to(self.in_sync.committed_below(self.local_durable_offset))

    def leader_committed(self, high_watermark: int, end_offset: int) -> bool:
        """A follower got the leader's high watermark. True if its own moved."""
        assert not self.is_leader, "a leader decides its own"
        return self._raise_to(min(high_watermark, end_offset))

    def cut(self, start_offset: int, end_offset: int, durable_offset: int) -> None:
        """A follower's log has these offsets now. Only an unclean leader lowers the watermark."""
        assert not self.is_leader, "a leader cuts nothing"
        self.local_durable_offset = durable_offset
        self.high_watermark = max(start_offset, min(self.high_watermark, end_offset))

    def _raise_to(self, offset: int) -> bool:
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def resign(self) -> None:
        """Lead no more, and follow no leader; the object that replaces this one may."""
        self.is_leader, self.leader_id, self.in_sync = False, NO_LEADER, None

    def require_leader(self, current_leader_epoch: int) -> None:
        """Raise if this broker does not lead, or leads in another epoch (KIP-320)."""
        if not self.is_leader:
            raise NotLeaderError(f"this broker does not lead {self.name}")
        if current_leader_epoch > NO_EPOCH and current_leader_epoch != self.leader_epoch:
            raise self._other_epoch(current_leader_epoch)

    def require_follower(self, current_leader_epoch: int) -> None:
        """Raise if this broker does not follow a leader, or follows in another epoch (KIP-392)."""
        if self.leader_id == NO_LEADER:
            raise NotLeaderError(f"this broker neither leads nor follows {self.name}")
        if current_leader_epoch > NO_EPOCH and current_leader_epoch != self.leader_epoch:
            raise self._other_epoch(current_leader_epoch)

    def _other_epoch(self, asked: int) -> PenstockError:
        text = f"{self.name} is at leader epoch {self.leader_epoch}, asked {asked}"
        if asked < self.leader_epoch:
            return FencedLeaderEpochError(text)
        return UnknownLeaderEpochError(text)

    def validate(self) -> None:
        """Assert the invariants."""
        assert self.high_watermark >= 0
        assert self.leader_epoch >= 0
        if self.is_leader:
            assert self.high_watermark <= self.local_durable_offset
        if self.in_sync is not None:
            assert self.is_leader
            self.in_sync.validate()
