"""Decisions about the leaders and in-sync replicas of partitions. Pure.

Each function returns the next state of a partition, or None if it stays. `election_writes` scans an
image and returns the guarded writes of the controller. Guarantees, which property tests check:

- The leader epoch never falls. It rises exactly when the leader is another broker, the same broker
  after another registration, or none, and when an election is unclean; not for other changes.
- A leader is in the in-sync replicas. These are never empty: the last one stays when it is gone,
  and without a leader the last ones are kept.
- A replica is elected only if its disk has everything that was acknowledged, unless the election is
  unclean. An entry of a replica is *valid* if its broker epoch is not below the revision of
  `nodes/<id>`: since then its disk has kept everything. It is *current* if that registration lasts.
- Eligible leader replicas (ELR) left the in-sync replicas while there were fewer than `min_isr`,
  so nothing was acknowledged without them. With `min_isr` in-sync replicas there are none, and
  after a change of `min_isr` there are none.

The functions of a leader (`shrunk`, `joined`, `with_min_isr`) are here too, because these rules
hold together. It reads no clock, and it does not know which brokers answer.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from penstock.cluster import values
from penstock.cluster.configs.drain_setting import drained_brokers
from penstock.cluster.controller import PARTITIONS_PER_TRANSACTION, GuardedWrites
from penstock.cluster.image import (
    BrokerState,
    MetadataImage,
    PartitionImage,
    Replica,
    TopicImage,
)
from penstock.cluster.keys import Keys
from penstock.cluster.stores.port import Compare, Operation, Put
from penstock.core.limits import STORE_COMPARES_MAX

NO_LEADER: Final = -1


class Members(NamedTuple):
    """The registered brokers, and the disks of all brokers."""

    epochs: Mapping[int, int]
    """Broker epoch of each registered broker."""
    nodes: Mapping[int, int]
    """Revision since which each disk has kept everything."""
    running: frozenset[int]
    """Brokers that may lead."""
    draining: frozenset[int] = frozenset()
    """Brokers that lead only if no other broker can: about to stop, or drained by a setting."""
    staying: frozenset[int] = frozenset()
    """Draining brokers that do not stop: their replicas stay in sync."""

    @staticmethod
    def of(image: MetadataImage) -> "Members":
        """Return the members of an image."""
        brokers = image.brokers.values()
        running = frozenset(one.id for one in brokers if one.state is BrokerState.RUNNING)
        staying = running & drained_brokers(image)
        return Members(
            {broker.id: broker.epoch for broker in brokers},
            {broker_id: node.revision for broker_id, node in image.nodes.items()},
            running - staying,
            frozenset(one.id for one in brokers if one.state is BrokerState.DRAINING) | staying,
            staying,
        )

    def is_valid(self, replica: Replica) -> bool:
        """Return whether the disk still has everything that the replica had reported."""
        since = self.nodes.get(replica.broker_id)
        return since is not None and replica.epoch >= since

    def is_current(self, replica: Replica) -> bool:
        """Return whether the replica is valid, and its broker has not registered again since."""
        is_same = self.epochs.get(replica.broker_id) == replica.epoch
        return is_same and self.is_valid(replica)


# --- The controller ---


def reconciled(
    state: PartitionImage, members: Members, *, is_unclean_allowed: bool = False
) -> PartitionImage | None:
    """Return the state that the present members require: after a broker has gone or come.

    A broker that has registered again has gone and come.
    """
    in_sync, elr = list(state.in_sync), list(state.elr)
    # Disks that have lost something first: the last entry stays, and should be one that kept all.
    for replica in sorted(state.in_sync, key=members.is_valid):
        if not members.is_current(replica) and len(in_sync) > 1:
            in_sync.remove(replica)
            if len(in_sync) < state.min_isr:
                elr.append(replica)
    changed = with_in_sync(state, in_sync)._replace(elr=tuple(elr))
    is_led = members.epochs.get(state.leader) == state.broker_epoch and state.leader in changed.isr
    if not is_led:
        changed = elected(changed, members, is_unclean_allowed=is_unclean_allowed)
    return None if changed == state else changed


def elected(state: PartitionImage, members: Members, *, is_unclean_allowed: bool) -> PartitionImage:
    """Return the state with the best leader that there is, or without a leader."""
    for usable in (members.running, members.running | members.draining):
        found = _clean(state, members, usable)
        if found is not None:
            return found
    if is_unclean_allowed:
        for broker_id in sorted(state.replicas, key=lambda one: _unclean_rank(state, one)):
            if broker_id in members.running | members.staying:
                alone = Replica(broker_id, members.epochs[broker_id])
                unclean = with_in_sync(state, [alone])._replace(elr=(), is_recovering=True)
                return led(unclean, alone)
    if state.leader == NO_LEADER:
        return state
    return state._replace(leader=NO_LEADER, broker_epoch=0, leader_epoch=state.leader_epoch + 1)


def _unclean_rank(state: PartitionImage, broker_id: int) -> tuple[bool, bool]:
    """The last leader first; a replica that a reassignment adds last, it may be empty."""
    return broker_id != state.leader, broker_id in state.adding


def _clean(
    state: PartitionImage, members: Members, usable: frozenset[int]
) -> PartitionImage | None:
    in_sync = {one.broker_id: one for one in state.in_sync}
    eligible = {one.broker_id: one for one in state.elr}
    for found, is_fit in (
        (in_sync, members.is_current),
        (in_sync, members.is_valid),
        (eligible, members.is_current),
        (eligible, members.is_valid),
    ):
        for broker_id in state.replicas:
            if broker_id in usable and broker_id in found and is_fit(found[broker_id]):
                now = Replica(broker_id, members.epochs[broker_id])
                return led(_from_eligible(state, now) if found is eligible else state, now)
    return None


def _from_eligible(state: PartitionImage, leader: Replica) -> PartitionImage:
    others = (one for one in (*state.elr, *state.in_sync) if one.broker_id != leader.broker_id)
    return with_in_sync(state, [leader])._replace(elr=tuple(others))


def led(state: PartitionImage, leader: Replica) -> PartitionImage:
    """Return the state with this leader, in the next epoch."""
    in_sync = [leader if one.broker_id == leader.broker_id else one for one in state.in_sync]
    return with_in_sync(state, in_sync)._replace(
        leader=leader.broker_id,
        broker_epoch=leader.epoch,
        leader_epoch=state.leader_epoch + 1,
    )


def without_drained_leader(state: PartitionImage, members: Members) -> PartitionImage | None:
    """Return the state with a leader that is not draining, if there is one in the ISR.

    A broker that stops hands over to a drained one rather than to none.
    """
    if state.leader not in members.draining:
        return None
    moved = _moved(state, members.running, members, state.replicas)
    if moved is None and state.leader not in members.staying:
        return _moved(state, members.staying, members, state.replicas)
    return moved


def with_preferred_leader(state: PartitionImage, members: Members) -> PartitionImage | None:
    """Return the state with its first replica as the leader, if it is in the ISR."""
    if state.leader in (NO_LEADER, state.replicas[0]):
        return None
    return _moved(state, members.running, members, state.replicas[:1])


def _moved(
    state: PartitionImage, usable: frozenset[int], members: Members, wanted: Iterable[int]
) -> PartitionImage | None:
    in_sync = {one.broker_id: one for one in state.in_sync if members.is_current(one)}
    for broker_id in wanted:
        if broker_id in in_sync and broker_id in usable:
            return led(state, in_sync[broker_id])
    return None


def without_drained_replicas(state: PartitionImage, members: Members) -> PartitionImage | None:
    """Return the state without stopping brokers in the ISR, as long as `min_isr` is satisfied."""
    in_sync = list(state.in_sync)
    stopping = members.draining - members.staying
    for replica in state.in_sync:
        is_drained = replica.broker_id in stopping and replica.broker_id != state.leader
        if is_drained and len(in_sync) > max(1, state.min_isr):
            in_sync.remove(replica)
    return None if len(in_sync) == len(state.isr) else with_in_sync(state, in_sync)


# --- A replica and a leader ---


def unserved(state: PartitionImage, broker_id: int) -> PartitionImage | None:
    """Return the state in which a broker says that it cannot serve its replica.

    It stays named, and epoch 0 is never valid. Without its leader the partition has none.
    """

    def named(entries: tuple[Replica, ...]) -> list[Replica]:
        return [Replica(broker_id, 0) if one.broker_id == broker_id else one for one in entries]

    changed = with_in_sync(state, named(state.in_sync))._replace(elr=tuple(named(state.elr)))
    if state.leader == broker_id:
        changed = changed._replace(
            leader=NO_LEADER, broker_epoch=0, leader_epoch=state.leader_epoch + 1
        )
    return None if changed == state else changed


def shrunk(state: PartitionImage, broker_id: int) -> PartitionImage:
    """Return the state after a follower has left the in-sync replicas."""
    assert broker_id != state.leader, "a leader does not leave its own in-sync replicas"
    left = [one for one in state.in_sync if one.broker_id == broker_id]
    in_sync = [one for one in state.in_sync if one.broker_id != broker_id]
    changed = with_in_sync(state, in_sync)
    return changed._replace(elr=(*state.elr, *left)) if len(in_sync) < state.min_isr else changed


def joined(state: PartitionImage, replica: Replica) -> PartitionImage:
    """Return the state after a follower has caught up."""
    others = [one for one in state.in_sync if one.broker_id != replica.broker_id]
    changed = with_in_sync(state, [*others, replica])
    if len(changed.isr) >= state.min_isr:
        return changed._replace(elr=(), is_recovering=False)
    return changed._replace(
        elr=tuple(one for one in state.elr if one.broker_id != replica.broker_id)
    )


def with_min_isr(state: PartitionImage, min_isr: int) -> PartitionImage:
    """Return the state after a change of `min.insync.replicas`."""
    is_recovering = state.is_recovering and len(state.isr) < min_isr
    return state._replace(min_isr=min_isr, elr=(), is_recovering=is_recovering)


def with_in_sync(state: PartitionImage, in_sync: list[Replica]) -> PartitionImage:
    """Return the state with these in-sync replicas."""
    return state._replace(
        isr=tuple([one.broker_id for one in in_sync]),
        isr_epochs=tuple([one.epoch for one in in_sync]),
    )


# --- Writes of the controller ---

Decide = Callable[[TopicImage, int, PartitionImage], PartitionImage | None]
"""The next state of a partition of a topic, by its number; None if it stays."""


class ChangedState(NamedTuple):
    """A partition with its next state."""

    key: str
    before: PartitionImage
    after: PartitionImage


def election_writes(
    keys: Keys,
    image: MetadataImage,
    decide: Decide,
    guards: tuple[Compare, ...],
    *,
    count_max: int | None = None,
    partition_max: int = PARTITIONS_PER_TRANSACTION,
    skipped: Container[str] = (),
) -> Iterator[GuardedWrites]:
    """Yield the transactions of all changed partitions, at most `count_max` of them.

    `guards` compare the registration and the role of the controller. `partition_max`: of one
    transaction. `skipped`: keys of partitions that are left alone.
    """
    changed = (one for one in _changes(keys, image, decide) if one.key not in skipped)
    return state_writes(
        keys, image, islice(changed, count_max), guards, partition_max=partition_max
    )


def state_writes(
    keys: Keys,
    image: MetadataImage,
    changed: Iterable[ChangedState],
    guards: tuple[Compare, ...],
    *,
    partition_max: int = PARTITIONS_PER_TRANSACTION,
) -> Iterator[GuardedWrites]:
    """Yield the transactions that write these states.

    Each partition is compared, and each new leader: it must still be registered, and its disk must
    have lost nothing.
    """
    compares: dict[Compare, None] = dict.fromkeys(guards)
    operations: list[Operation] = []
    for key, before, after in changed:
        needed = dict.fromkeys(
            (Compare.unchanged(key, before.partition_epoch), *_leader(keys, image, before, after))
        )
        is_full = len(operations) == partition_max
        if is_full or len(compares | needed) > STORE_COMPARES_MAX:
            yield GuardedWrites(tuple(compares), tuple(operations))
            compares, operations = dict.fromkeys(guards), []
        compares |= needed
        # The mark of an earlier writer is not that of this write.
        operations.append(Put(key, values.write_partition(after._replace(written_by=None))))
    if operations:
        yield GuardedWrites(tuple(compares), tuple(operations))


def _changes(keys: Keys, image: MetadataImage, decide: Decide) -> Iterator[ChangedState]:
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            changed = decide(topic, index, state)
            if changed is not None:
                yield ChangedState(keys.partition(topic.id, index), state, changed)


def _leader(
    keys: Keys, image: MetadataImage, before: PartitionImage, after: PartitionImage
) -> tuple[Compare, ...]:
    if after.leader == NO_LEADER or after.leader_epoch == before.leader_epoch:
        return ()
    return (
        Compare.created_at(keys.broker(after.leader), after.broker_epoch),
        Compare.unchanged(keys.node(after.leader), image.nodes[after.leader].revision),
    )


def member_decision(
    image: MetadataImage, is_unclean_allowed: Callable[[TopicImage], bool]
) -> Decide:
    """Return the decision of a controller about partitions whose brokers have gone or come."""
    members = Members.of(image)
    epochs = members.epochs

    def decide(topic: TopicImage, _index: int, state: PartitionImage) -> PartitionImage | None:
        # Most partitions are not affected: a scan of 100,000 must be fast.
        if is_settled(state, epochs):
            return None
        return reconciled(state, members, is_unclean_allowed=is_unclean_allowed(topic))

    return decide


def is_settled(state: PartitionImage, epochs: Mapping[int, int]) -> bool:
    """Return whether leader and in-sync replicas have the registrations with these epochs."""
    if epochs.get(state.leader) != state.broker_epoch:
        return False
    return [epochs.get(one) for one in state.isr] == [*state.isr_epochs]


def preferred_decision(members: Members, places: Container[tuple[UUID, int]]) -> Decide:
    """Return the decision that the first replicas of these partitions lead again."""

    def decide(topic: TopicImage, index: int, state: PartitionImage) -> PartitionImage | None:
        is_wanted = (topic.id, index) in places
        return with_preferred_leader(state, members) if is_wanted else None

    return decide
