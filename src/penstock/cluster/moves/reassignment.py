"""The states of a partition whose replicas move to other brokers. Pure.

    begun      replicas = target, then the replicas that leave; `adding` and `removing` name both
    completed  when each replica of the target is in sync: replicas = target
    cancelled  replicas = the ones before the reassignment

Another target replaces the one of a running reassignment. A replica that only the former target had
is then in `adding` and in `removing`: it leaves if the reassignment is completed, and also if it is
cancelled. Until then it counts, so that no copy is given up before its successors have all records.

Guarantees, which property tests check:

- In-sync replicas (ISR) are replicas, and are never empty; the leader is one of them.
- A replica leaves only after each replica of the target has everything, or by a cancellation. Then
  the leader epoch rises, so that the broker's later fetches do not count.
- A leader is replaced only by a replica that has everything that was acknowledged, or, for a
  cancellation of a topic with unclean elections, by any.
- A copy with everything that was acknowledged stays named, if there is one.
- Eligible leader replicas stay eligible only while nothing can be acknowledged without them.

It copies no records: followers do, and leaders let them join the ISR.
"""

from collections.abc import Callable

from penstock.cluster.elections import (
    NO_LEADER,
    Decide,
    Members,
    elected,
    led,
    reconciled,
    with_in_sync,
)
from penstock.cluster.image import PartitionImage, TopicImage


def is_moving(state: PartitionImage) -> bool:
    """Return whether a reassignment of the partition is running."""
    return bool(state.adding or state.removing)


def target_of(state: PartitionImage) -> tuple[int, ...]:
    """Return the replicas that the partition has after its reassignment."""
    return _without(state.replicas, state.removing)


def origin_of(state: PartitionImage) -> tuple[int, ...]:
    """Return the replicas that the partition had before its reassignment."""
    return _without(state.replicas, state.adding)


def begun(state: PartitionImage, target: tuple[int, ...]) -> PartitionImage:
    """Return the state in which the replicas move to `target`; the same if it is the target now.

    A reassignment that is running is replaced.
    """
    assert target, "a partition has replicas"
    assert len(set(target)) == len(target), target
    if target == target_of(state):
        return state
    origin = origin_of(state)
    leaving = _without(state.replicas, target)
    adding = _without((*target, *leaving), origin)
    return state._replace(replicas=(*target, *leaving), adding=adding, removing=leaving)


def completed(state: PartitionImage, members: Members) -> PartitionImage | None:
    """Return the state after its reassignment, if each replica of the target is in sync.

    A leader that is not in the target is replaced by the first replica that can lead.
    """
    if not is_moving(state):
        return None
    target = target_of(state)
    current = {one.broker_id for one in state.in_sync if members.is_current(one)}
    is_led = members.epochs.get(state.leader) == state.broker_epoch
    if not is_led or not current.issuperset(target):
        return None
    kept = [one for one in state.in_sync if one.broker_id in target]
    moved = with_in_sync(state, kept)._replace(replicas=target, adding=(), removing=(), elr=())
    if state.leader in target:
        has_left = len(target) < len(state.replicas)
        return moved._replace(leader_epoch=state.leader_epoch + has_left)
    by_id = {one.broker_id: one for one in kept}
    for usable in (members.running, members.draining):
        for broker_id in target:
            if broker_id in usable:
                return led(moved, by_id[broker_id])
    return None


def cancelled(
    state: PartitionImage, members: Members, *, is_unclean_allowed: bool
) -> PartitionImage | None:
    """Return the state without its reassignment; None if that needs an unclean election.

    It needs one if no former replica has everything that was acknowledged.
    """
    reverted = _reverted(state, members, is_unclean_allowed=is_unclean_allowed)
    if reverted is None or (has_valid_copy(state, members) > has_valid_copy(reverted, members)):
        return None
    return reverted


def has_valid_copy(state: PartitionImage, members: Members) -> bool:
    """Return whether the state names a replica that has everything that was acknowledged."""
    return any(members.is_valid(one) for one in (*state.in_sync, *state.elr))


def _reverted(
    state: PartitionImage, members: Members, *, is_unclean_allowed: bool
) -> PartitionImage | None:
    assert is_moving(state)
    origin = origin_of(state)
    kept = [one for one in state.in_sync if one.broker_id in origin]
    reverted = with_in_sync(state, kept)._replace(
        replicas=origin,
        adding=(),
        removing=(),
        elr=tuple(one for one in state.elr if one.broker_id in origin),
    )
    is_led = members.epochs.get(state.leader) == state.broker_epoch
    if kept and (state.leader == NO_LEADER or (is_led and state.leader in origin)):
        has_left = len(origin) < len(state.replicas)
        return reverted._replace(leader_epoch=state.leader_epoch + has_left)
    found = elected(reverted, members, is_unclean_allowed=is_unclean_allowed)
    if found.leader == NO_LEADER and (is_led or not kept):
        return None
    return found


def completion_decision(members: Members) -> Decide:
    """Return the decision of a controller about reassignments that can be completed."""

    def decide(_topic: TopicImage, _index: int, state: PartitionImage) -> PartitionImage | None:
        return completed(state, members)

    return decide


def requested(
    state: PartitionImage,
    target: tuple[int, ...] | None,
    members: Members,
    *,
    is_unclean_allowed: Callable[[], bool],
) -> PartitionImage | None:
    """Return the state after a request to move the replicas, or to cancel (`target` is None).

    None if a cancellation needs an unclean election. A reassignment that has nothing to wait for,
    such as another order of the same replicas, is completed at once.
    """
    if target is None:
        # As the controller will have it: brokers may have gone that the state still counts on.
        settled = reconciled(state, members) or state
        found = cancelled(settled, members, is_unclean_allowed=is_unclean_allowed())
        if found is None:
            return None
        # The state between is not stored: the epoch rises once.
        rises = found.leader_epoch > state.leader_epoch
        return found._replace(leader_epoch=state.leader_epoch + rises)
    begins = begun(state, target)
    if begins is state:
        return state
    if not is_moving(begins):
        # The same replicas, in another order.
        return begins
    return completed(begins, members) or begins


def _without(replicas: tuple[int, ...], left_out: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([one for one in replicas if one not in left_out])
