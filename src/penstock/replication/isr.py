"""`InSyncReplicas`: the followers of a partition that this broker leads in one epoch. Pure.

Guarantees:

- `committed_below` never counts a record that a possible member of the in-sync replicas (ISR) has
  not reported as synced. While a change of the ISR is being written, that is each member of the old
  and of the new state (`isr_max`), because either may be in force.
- While fewer than `min_isr` members are certain, nothing more is committed (`has_enough`).
- A follower joins only when it has everything that was committed, and everything that was in the
  log when this epoch began: it then has every record that an earlier leader acknowledged. After it
  has left, it joins by a later report: a broker whose disk failed has left, and reports nothing.
- One change is under way at a time. A newer state of the partition ends it: the change compares the
  state that it was decided on, so it has landed before or never will.

Reports count only from the registration of a broker that the image has now. It writes nothing
(`replication.isr_writer` does) and reads no clock.
"""

from collections.abc import Mapping
from typing import NamedTuple

from penstock.cluster.elections import joined, shrunk, with_min_isr
from penstock.cluster.image import BrokerImage, BrokerState, PartitionImage, Replica

NOTHING = -1
"""The offset of a follower that has not reported in this epoch."""


class IsrChange(NamedTuple):
    """The next state of a partition, decided by its leader."""

    before: PartitionImage
    after: PartitionImage
    added: tuple[int, ...]
    """Followers that join: their registration must not have changed."""


class FollowerProgress:
    """The reports of one follower in this epoch."""

    __slots__ = ("broker_epoch", "caught_up_seconds", "end_seen", "offset", "seen_seconds")

    def __init__(self, now: float) -> None:
        self.offset = NOTHING
        """It has synced everything below."""
        self.broker_epoch = 0
        self.caught_up_seconds = now
        """When it last had everything; at first, when this broker began to lead."""
        self.seen_seconds = now
        self.end_seen = 0
        """The end of the log at its last fetch."""

    def report(self, broker_epoch: int, offset: int, end_offset: int, now: float) -> None:
        """The follower has synced everything below `offset`."""
        if broker_epoch < self.broker_epoch:
            # A slow read of a request that the process before it has sent.
            return
        if broker_epoch != self.broker_epoch:
            # Another process: the reports of the one before do not bind it.
            self.broker_epoch, self.offset = broker_epoch, NOTHING
        if offset >= end_offset:
            self.caught_up_seconds = now
        elif offset >= self.end_seen:
            # It has everything that its last fetch could see. Under a steady load it never has all.
            self.caught_up_seconds = max(self.caught_up_seconds, self.seen_seconds)
        self.offset, self.end_seen, self.seen_seconds = offset, end_offset, now

    def forget(self) -> None:
        """The follower has left the in-sync replicas: only a later report counts."""
        self.offset = NOTHING


class InSyncReplicas:
    """The in-sync replicas of one partition in one leader epoch, as its leader knows them."""

    __slots__ = (
        "_isr_max",
        "_members",
        "_size_min",
        "broker_id",
        "change",
        "epoch_start",
        "followers",
        "min_isr",
        "state",
    )

    def __init__(self, broker_id: int, state: PartitionImage, epoch_start: int, now: float) -> None:
        """`epoch_start` is the end of this broker's log when it began to lead."""
        self.broker_id = broker_id
        self.epoch_start = epoch_start
        self.followers: dict[int, FollowerProgress] = {}
        self.change: IsrChange | None = None
        """The change that is being written."""
        self.state = state
        self._adopt(state, now)

    def adopt(self, state: PartitionImage, now: float) -> None:
        """Use a newer state of the partition, which ends the change that is being written."""
        assert state.leader_epoch == self.state.leader_epoch, "an epoch has its own object"
        assert state.partition_epoch >= self.state.partition_epoch, "an image never goes back"
        self._adopt(state, now)

    def _adopt(self, state: PartitionImage, now: float) -> None:
        for broker_id, progress in self.followers.items():
            entry = Replica(broker_id, progress.broker_epoch)
            if entry in self.state.in_sync and entry not in state.in_sync:
                progress.forget()
        self.state, self.change = state, None
        self.min_isr = min(state.min_isr, len(state.replicas))
        """A partition with two replicas cannot have three in sync, as in Kafka."""
        for broker_id in state.replicas:
            if broker_id != self.broker_id and broker_id not in self.followers:
                self.followers[broker_id] = FollowerProgress(now)
        for broker_id in tuple(self.followers):
            if broker_id not in state.replicas:
                del self.followers[broker_id]
        self._bound(state, state)

    def _bound(self, one: PartitionImage, other: PartitionImage) -> None:
        self._size_min = min(len(one.isr), len(other.isr))
        self._isr_max = frozenset((*one.isr, *other.isr)) - {self.broker_id}
        self._members = tuple(
            [self.followers.get(broker_id) for broker_id in sorted(self._isr_max)]
        )

    @property
    def isr_max(self) -> frozenset[int]:
        """Each broker, except this one, that may be in the ISR of the stored state."""
        return self._isr_max

    @property
    def has_enough(self) -> bool:
        """Whether certainly enough replicas are in sync to acknowledge a record."""
        return self._size_min >= self.min_isr

    def committed_below(self, synced_offset: int) -> int:
        """Return the offset below which all is committed, given the leader's own synced offset.

        `NOTHING` if not enough replicas are in sync, or one has not reported yet.
        """
        if self._size_min < self.min_isr:
            return NOTHING
        lowest = synced_offset
        for member in self._members:
            if member is None:
                # A member of the ISR that is not a replica: it cannot report.
                return NOTHING
            lowest = min(lowest, member.offset)
        return lowest

    def report(
        self, follower: int, broker_epoch: int, offset: int, end_offset: int, now: float
    ) -> None:
        """A follower has synced everything below `offset`; its registration is the image's."""
        self.followers[follower].report(broker_epoch, offset, end_offset, now)

    # --- Changes ---

    def may_join(self, follower: int, high_watermark: int, broker: BrokerImage | None) -> bool:
        """Return whether a follower is not in the ISR and can join it."""
        if broker is None or broker.state is not BrokerState.RUNNING:
            return False
        progress = self.followers[follower]
        if progress.broker_epoch != broker.epoch:
            return False
        if Replica(follower, broker.epoch) in self.state.in_sync:
            return False
        return progress.offset >= max(high_watermark, self.epoch_start)

    def leaves_at(self, end_offset: int, lag_seconds: float) -> float | None:
        """Return when the first member of the ISR leaves it, if it does not catch up."""
        moments = [
            member.caught_up_seconds + lag_seconds
            for member in self._members
            if member is not None and member.offset < end_offset
        ]
        return min(moments, default=None)

    def next_change(
        self,
        brokers: Mapping[int, BrokerImage],
        *,
        end_offset: int,
        high_watermark: int,
        min_isr: int,
        now: float,
        lag_seconds: float,
    ) -> IsrChange | None:
        """Decide the next change; None if there is none, or one is under way.

        `min_isr` is the setting of the topic; the stored number is in force until it is changed.
        """
        if self.change is not None:
            return None
        state = self.state
        if min_isr != state.min_isr:
            return IsrChange(state, with_min_isr(state, min_isr), ())
        joining = tuple(
            [
                follower
                for follower in state.replicas
                if follower in self.followers
                and self.may_join(follower, high_watermark, brokers.get(follower))
            ]
        )
        if joining:
            after = state
            for follower in joining:
                after = joined(after, Replica(follower, brokers[follower].epoch))
            return IsrChange(state, after, joining)
        after = state
        for follower in state.isr:
            progress = self.followers.get(follower)
            if progress is None or progress.offset >= end_offset:
                continue
            if now - progress.caught_up_seconds >= lag_seconds:
                after = shrunk(after, follower)
        return None if after is state else IsrChange(state, after, ())

    def begin(self, change: IsrChange) -> None:
        """The change is being written: both states may be in force."""
        assert self.change is None, "one change at a time"
        assert change.before is self.state, "decided on an older state"
        self.change = change
        self._bound(change.before, change.after)

    def refused(self, change: IsrChange, now: float) -> None:
        """The change has certainly not landed, and will not."""
        if self.change is change:
            self._adopt(self.state, now)

    def validate(self) -> None:
        """Assert the invariants."""
        assert self.broker_id in self.state.isr, "a leader is in sync"
        assert self.followers.keys() == set(self.state.replicas) - {self.broker_id}
        assert set(self.state.isr) - {self.broker_id} <= self._isr_max
        assert self._size_min <= len(self.state.isr)
