"""Reassignment: the states of a partition whose replicas move; and rules that always hold."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.elections import NO_LEADER, Members, elected, joined, reconciled
from penstock.cluster.image import BrokerState, PartitionImage, Replica
from penstock.cluster.moves.reassignment import (
    begun,
    cancelled,
    completed,
    has_valid_copy,
    is_moving,
    origin_of,
    requested,
    target_of,
)

IDS = (1, 2, 3, 4, 5, 6)
NODES = dict.fromkeys(IDS, 1)


def epoch(broker_id: int) -> int:
    """Every broker registered once, at this revision."""
    return 10 * broker_id


def members(*gone: int, draining: frozenset[int] = frozenset()) -> Members:
    epochs = {one: epoch(one) for one in IDS if one not in gone}
    return Members(epochs, NODES, frozenset(epochs) - draining, draining)


def state(
    replicas: tuple[int, ...],
    leader: int,
    isr: tuple[int, ...],
    *,
    elr: tuple[int, ...] = (),
    min_isr: int = 2,
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
) -> PartitionImage:
    return PartitionImage(
        replicas,
        leader,
        5,
        isr,
        77,
        broker_epoch=0 if leader == NO_LEADER else epoch(leader),
        isr_epochs=tuple(map(epoch, isr)),
        elr=tuple(Replica(one, epoch(one)) for one in elr),
        min_isr=min_isr,
        adding=adding,
        removing=removing,
    )


def shape(found: PartitionImage | None) -> tuple[object, ...]:
    assert found is not None
    return found.replicas, found.adding, found.removing, found.leader, found.leader_epoch, found.isr


def in_sync(before: PartitionImage, *joining: int) -> PartitionImage:
    for one in joining:
        before = joined(before, Replica(one, epoch(one)))
    return before


def test_a_move_begins_with_all_replicas() -> None:
    found = begun(state((1, 2, 3), 1, (1, 2, 3)), (3, 4, 5))
    assert shape(found) == ((3, 4, 5, 1, 2), (4, 5), (1, 2), 1, 5, (1, 2, 3))
    assert target_of(found) == (3, 4, 5)
    assert origin_of(found) == (3, 1, 2)
    assert is_moving(found)
    assert begun(found, (3, 4, 5)) is found


def test_it_is_completed_when_the_whole_target_is_in_sync() -> None:
    moving = begun(state((1, 2, 3), 1, (1, 2, 3)), (3, 4, 5))
    assert completed(moving, members()) is None
    almost = in_sync(moving, 4)
    assert completed(almost, members()) is None
    # The leader is not in the target: the first replica of the target leads.
    found = completed(in_sync(almost, 5), members())
    assert shape(found) == ((3, 4, 5), (), (), 3, 6, (3, 4, 5))
    # The first of the target is about to stop.
    found = completed(in_sync(almost, 5), members(draining=frozenset({3})))
    assert shape(found)[3:5] == (4, 6)


def test_a_leader_that_stays_leads_in_the_next_epoch_if_a_replica_leaves() -> None:
    moving = in_sync(begun(state((1, 2), 1, (1, 2)), (1, 3)), 3)
    assert shape(completed(moving, members())) == ((1, 3), (), (), 1, 6, (1, 3))
    grown = in_sync(begun(state((1, 2), 1, (1, 2)), (1, 2, 3)), 3)
    assert shape(completed(grown, members())) == ((1, 2, 3), (), (), 1, 5, (1, 2, 3))


def test_it_waits_for_an_election() -> None:
    """A replica or a leader whose broker has gone is the controller's first concern."""
    moving = in_sync(begun(state((1, 2), 1, (1, 2)), (1, 3)), 3)
    assert completed(moving, members(1)) is None
    assert completed(moving, members(3)) is None
    assert completed(moving, members(2)) is not None
    assert completed(moving._replace(leader=NO_LEADER, broker_epoch=0), members()) is None


def test_a_cancelled_move_has_the_former_replicas() -> None:
    moving = in_sync(begun(state((1, 2, 3), 1, (1, 2, 3)), (4, 5, 6)), 4)
    found = cancelled(moving, members(), is_unclean_allowed=False)
    assert shape(found) == ((1, 2, 3), (), (), 1, 6, (1, 2, 3))
    # A new replica leads: a former one in sync leads again.
    led = moving._replace(leader=4, broker_epoch=epoch(4))
    found = cancelled(led, members(), is_unclean_allowed=False)
    assert shape(found) == ((1, 2, 3), (), (), 1, 6, (1, 2, 3))
    found = cancelled(moving._replace(leader=NO_LEADER), members(), is_unclean_allowed=False)
    assert shape(found) == ((1, 2, 3), (), (), NO_LEADER, 6, (1, 2, 3))
    # Nothing left: only the reassignment ends.
    shrinking = begun(state((1, 2, 3), 1, (1, 3)), (1, 2))
    found = cancelled(shrinking, members(), is_unclean_allowed=False)
    assert shape(found) == ((1, 2, 3), (), (), 1, 5, (1, 3))


def test_a_new_replica_is_not_eligible_after_a_cancellation() -> None:
    moving = begun(state((1, 2), 1, (1,), elr=(2,)), (3,))._replace(
        elr=(Replica(2, epoch(2)), Replica(3, epoch(3)))
    )
    found = cancelled(moving, members(), is_unclean_allowed=False)
    assert found is not None
    assert found.elr == (Replica(2, epoch(2)),)


def test_a_cancellation_without_a_former_replica_in_sync_needs_an_unclean_election() -> None:
    moving = begun(state((1, 2), 1, (1, 2), min_isr=1), (3, 4))
    alone = in_sync(moving, 3)._replace(
        leader=3, broker_epoch=epoch(3), isr=(3,), isr_epochs=(epoch(3),)
    )
    assert cancelled(alone, members(), is_unclean_allowed=False) is None
    found = cancelled(alone, members(), is_unclean_allowed=True)
    assert shape(found) == ((1, 2), (), (), 1, 6, (1,))
    assert found is not None
    assert found.is_recovering
    # No former replica runs.
    assert cancelled(alone, members(1, 2), is_unclean_allowed=True) is None
    # An eligible one has everything that was acknowledged.
    eligible = alone._replace(min_isr=2, elr=(Replica(2, epoch(2)),))
    found = cancelled(eligible, members(), is_unclean_allowed=False)
    assert shape(found) == ((1, 2), (), (), 2, 6, (2,))


def test_a_cancellation_after_the_leader_has_gone_leaves_the_election_open() -> None:
    moving = begun(state((1, 2), 1, (1,)), (1, 3))
    found = cancelled(moving, members(1), is_unclean_allowed=False)
    assert shape(found) == ((1, 2), (), (), NO_LEADER, 6, (1,))


def test_another_target_replaces_the_first() -> None:
    first = in_sync(begun(state((1, 2, 3), 1, (1, 2, 3)), (4, 5, 6)), 4, 6)
    other = begun(first, (4, 5, 2))
    assert other.replicas == (4, 5, 2, 6, 1, 3)
    assert (set(other.adding), set(other.removing)) == ({4, 5, 6}, {1, 3, 6})
    assert target_of(other) == (4, 5, 2)
    # 6 keeps its copy until the others have theirs, and it is not a former replica.
    assert origin_of(other) == (2, 1, 3)
    assert 6 in other.isr
    found = completed(in_sync(other, 5), members())
    assert shape(found)[0] == (4, 5, 2)
    assert set(shape(found)[5]) == {2, 4, 5}  # type: ignore[call-overload]
    found = cancelled(other, members(), is_unclean_allowed=False)
    assert shape(found)[0] == (2, 1, 3)
    # Back to the first list, as a target: done at once, because all are in sync.
    back = requested(first, (1, 2, 3), members(), is_unclean_allowed=bool)
    assert shape(back) == ((1, 2, 3), (), (), 1, 6, (1, 2, 3))


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        # Another order: nothing is copied, and the epoch stays.
        ((3, 2, 1), ((3, 2, 1), (), (), 1, 5, (1, 2, 3))),
        # Fewer replicas: nothing to wait for.
        ((1, 2), ((1, 2), (), (), 1, 6, (1, 2))),
        ((2,), ((2,), (), (), 2, 6, (2,))),
        ((1, 2, 3), ((1, 2, 3), (), (), 1, 5, (1, 2, 3))),
        ((1, 4), ((1, 4, 2, 3), (4,), (2, 3), 1, 5, (1, 2, 3))),
    ],
)
def test_a_request_without_copies_is_completed_at_once(
    target: tuple[int, ...], expected: tuple[object, ...]
) -> None:
    found = requested(state((1, 2, 3), 1, (1, 2, 3)), target, members(), is_unclean_allowed=bool)
    assert shape(found) == expected


def test_an_unclean_election_takes_a_new_replica_last() -> None:
    """It may be empty."""
    lost = state((4, 5, 1, 2), 1, (1,), adding=(4, 5), removing=(1, 2))
    assert elected(lost, members(1), is_unclean_allowed=True).leader == 2
    assert elected(lost, members(1, 2), is_unclean_allowed=True).leader == 4


# --- Rules that always hold ---


@st.composite
def targets(draw: st.DrawFn) -> tuple[int, ...]:
    return tuple(draw(st.permutations(IDS)))[: draw(st.integers(1, 4))]


@st.composite
def settled(draw: st.DrawFn) -> PartitionImage:
    replicas = draw(targets())
    order = draw(st.permutations(replicas))
    count = draw(st.integers(1, len(order)))
    min_isr = draw(st.integers(1, 3))
    elr = tuple(order[count:]) if count < min_isr and draw(st.booleans()) else ()
    leader = draw(st.sampled_from([NO_LEADER, *order[:count]]))
    return state(replicas, leader, tuple(order[:count]), elr=elr, min_isr=min_isr)


@st.composite
def memberships(draw: st.DrawFn) -> Members:
    kinds = {one: draw(st.sampled_from([*BrokerState, None])) for one in IDS}
    epochs = {
        one: epoch(one) + draw(st.sampled_from([0, 0, 0, 5]))
        for one, kind in kinds.items()
        if kind is not None
    }
    nodes = {one: draw(st.sampled_from([1, 1, 1, epoch(one) + 3])) for one in IDS}
    return Members(
        epochs,
        {one: min(since, epochs.get(one, since)) for one, since in nodes.items()},
        frozenset(one for one, kind in kinds.items() if kind is BrokerState.RUNNING),
        frozenset(one for one, kind in kinds.items() if kind is BrokerState.DRAINING),
    )


def check(before: PartitionImage, after: PartitionImage, known: Members) -> None:
    """The rules of every change of a move."""
    assert after.replicas
    assert len(set(after.replicas)) == len(after.replicas)
    assert set(after.adding) | set(after.removing) <= set(after.replicas)
    assert target_of(after)
    assert origin_of(after)
    assert after.isr
    assert set(after.isr) <= set(after.replicas)
    assert after.leader == NO_LEADER or after.leader in after.isr
    assert {one.broker_id for one in after.elr} <= set(after.replicas) - set(after.isr)
    # Nothing can be acknowledged while there are eligible replicas outside the ISR.
    if after.elr:
        assert len(after.isr) < min(after.min_isr, len(after.replicas))
    # No replica gets into the ISR or the ELR by a move; an election renews the leader's entry.
    if not after.is_recovering:
        noted = {*before.in_sync, *before.elr}
        added = {*after.in_sync, *after.elr} - noted
        assert {one.broker_id for one in added} <= {after.leader}
        if after.leader_epoch > before.leader_epoch and after.leader != NO_LEADER:
            entries = [one for one in noted if one.broker_id == after.leader]
            assert after.leader == before.leader or any(map(known.is_valid, entries))
    left = set(before.replicas) - set(after.replicas)
    is_other = (before.leader, before.broker_epoch) != (after.leader, after.broker_epoch)
    assert after.leader_epoch == before.leader_epoch + bool(left or is_other)


@given(settled(), st.lists(st.one_of(st.none(), targets()), min_size=1, max_size=6), st.data())
def test_rules_of_every_move(
    before: PartitionImage, wishes: list[tuple[int, ...] | None], data: st.DataObject
) -> None:
    """Requests, joins, deaths and completions, in any order."""
    for wish in wishes:
        known = data.draw(memberships())
        if wish is not None or is_moving(before):
            is_allowed = data.draw(st.booleans())
            after = requested(before, wish, known, is_unclean_allowed=lambda a=is_allowed: a)  # type: ignore[misc]
            if after is None:
                assert wish is None
            else:
                check(before, after, known)
                assert wish is None or target_of(after) == wish
                assert wish is not None or set(after.replicas) == set(origin_of(before))
                before = after._replace(is_recovering=False)
        before = _events(before, known, data)


def _events(before: PartitionImage, known: Members, data: st.DataObject) -> PartitionImage:
    """A follower joins, brokers go, the controller completes."""
    follower = data.draw(st.sampled_from(before.replicas))
    if before.leader != NO_LEADER and follower != before.leader and follower in known.epochs:
        before = joined(before, Replica(follower, known.epochs[follower]))
    before = reconciled(before, known) or before
    after = completed(before, known)
    if after is None:
        return before
    check(before, after, known)
    assert not is_moving(after)
    assert after.replicas == target_of(before)
    assert set(after.isr) == set(after.replicas)
    assert completed(after, known) is None
    return after


def test_a_cancellation_keeps_the_last_copy() -> None:
    """Guards `has_valid_copy`: the former replica has lost its disk, the new one is away."""
    moving = in_sync(begun(state((1,), 1, (1,)), (2, 3)), 3)
    gone = members(3)
    left = reconciled(moving, gone)
    assert left is not None
    assert left.elr == (Replica(3, epoch(3)),)
    wiped = Members({**gone.epochs, 1: 99}, {**NODES, 1: 99}, gone.running)
    lost = reconciled(left, wiped)
    assert lost is not None
    assert has_valid_copy(lost, wiped)
    assert requested(lost, None, wiped, is_unclean_allowed=lambda: False) is None


def test_a_cancellation_does_not_count_on_brokers_that_have_gone() -> None:
    """Guards the `reconciled` of a cancellation that comes before the controller's decision."""
    moving = in_sync(begun(state((1,), 1, (1,), min_isr=1), (2,)), 2)
    assert requested(moving, None, members(1), is_unclean_allowed=lambda: False) is None


@given(st.randoms(use_true_random=False))
def test_a_copy_with_everything_stays_named(random: Random) -> None:
    """Also in states that no sequence of decisions reaches."""
    nodes = {one: random.choice((10, 50)) for one in IDS}
    epochs = {one: max(random.choice((20, 60)), nodes[one]) for one in IDS if random.random() < 0.8}
    running = frozenset(one for one in epochs if random.random() < 0.8)
    present = Members(epochs, nodes, running, frozenset(epochs) - running)
    replicas = tuple(random.sample(IDS, random.randint(2, 4)))
    isr = random.sample(replicas, random.randint(1, len(replicas)))
    eligible = [Replica(one, random.choice((0, 20, 60))) for one in replicas if one not in isr]
    leader = random.choice((NO_LEADER, *isr))
    isr_epochs = tuple(random.choice((0, 20, 60)) for _ in isr)
    before = PartitionImage(
        replicas,
        leader,
        5,
        tuple(isr),
        77,
        broker_epoch=0 if leader == NO_LEADER else isr_epochs[isr.index(leader)],
        isr_epochs=isr_epochs,
        elr=tuple(eligible),
        min_isr=len(isr) + 1,
        adding=tuple(random.sample(replicas, random.randint(0, len(replicas) - 1))),
        removing=tuple(random.sample(replicas, random.randint(0, len(replicas) - 1))),
    )
    target = None if is_moving(before) else tuple(random.sample(IDS, 2))
    after = requested(before, target, present, is_unclean_allowed=lambda: False)
    if after is not None and has_valid_copy(before, present):
        assert has_valid_copy(after, present)
        assert after.isr
        assert {*after.isr, *(one.broker_id for one in after.elr)} <= {*after.replicas}
