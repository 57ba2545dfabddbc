"""Elections: who leads after a broker has gone, come, drained; and rules that always hold."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster import elections
from penstock.cluster.changes import PartitionsChanged, TopicPublished, apply
from penstock.cluster.elections import (
    NO_LEADER,
    Members,
    election_writes,
    joined,
    member_decision,
    reconciled,
    shrunk,
    unserved,
    with_min_isr,
    with_preferred_leader,
    without_drained_leader,
    without_drained_replicas,
)
from penstock.cluster.image import (
    BrokerImage,
    BrokerState,
    Endpoint,
    MetadataImage,
    NodeImage,
    PartitionImage,
    Replica,
)
from penstock.cluster.keys import Keys
from penstock.cluster.stores.port import Compare, CompareTarget, Put
from penstock.cluster.values import read_partition
from penstock.core.limits import STORE_COMPARES_MAX, STORE_OPERATIONS_MAX

KEYS = Keys()
NODES = {1: 10, 2: 20, 3: 30, 4: 40}


def members(
    draining: frozenset[int] = frozenset(),
    starting: frozenset[int] = frozenset(),
    nodes: dict[int, int] = NODES,
    **epochs: int,
) -> Members:
    """Return registered brokers: `b1=11` is broker 1 with epoch 11."""
    found = {int(name[1:]): epoch for name, epoch in epochs.items()}
    return Members(found, nodes, frozenset(found) - draining - starting, draining)


def state(
    leader: int,
    isr: dict[int, int],
    elr: dict[int, int] | None = None,
    *,
    replicas: tuple[int, ...] = (1, 2, 3),
    min_isr: int = 2,
    is_recovering: bool = False,
) -> PartitionImage:
    return PartitionImage(
        replicas,
        leader,
        5,
        tuple(isr),
        77,
        broker_epoch=isr.get(leader, 0),
        isr_epochs=tuple(isr.values()),
        elr=tuple(Replica(*one) for one in (elr or {}).items()),
        min_isr=min_isr,
        is_recovering=is_recovering,
    )


def short(found: PartitionImage | None) -> tuple[object, ...]:
    """Return leader, epoch, ISR and ELR."""
    assert found is not None
    elr = {one.broker_id: one.epoch for one in found.elr}
    return (
        found.leader,
        found.leader_epoch,
        dict(zip(found.isr, found.isr_epochs, strict=True)),
        elr,
    )


ALL = {1: 11, 2: 21, 3: 31}


def test_nothing_changes_while_all_are_there() -> None:
    assert reconciled(state(1, ALL), members(b1=11, b2=21, b3=31)) is None


def test_a_follower_that_has_gone_leaves_the_isr_and_the_epoch_stays() -> None:
    assert short(reconciled(state(1, ALL), members(b1=11, b2=21))) == (1, 5, {1: 11, 2: 21}, {})


def test_below_min_isr_it_becomes_eligible() -> None:
    found = reconciled(state(1, {1: 11, 2: 21}), members(b1=11))
    assert short(found) == (1, 5, {1: 11}, {2: 21})


def test_a_leader_that_has_gone_is_followed_by_the_next_replica_in_sync() -> None:
    found = reconciled(state(1, ALL), members(b2=21, b3=31))
    assert short(found) == (2, 6, {2: 21, 3: 31}, {})
    found = reconciled(state(1, {1: 11, 3: 31}), members(b2=21, b3=31))
    assert short(found) == (3, 6, {3: 31}, {1: 11})


def test_the_last_replica_in_sync_stays_and_the_partition_has_no_leader() -> None:
    found = reconciled(state(1, {1: 11}), members(b2=21, b3=31))
    assert short(found) == (NO_LEADER, 6, {1: 11}, {})
    assert found is not None
    # No change from there, until it comes back.
    assert reconciled(found, members(b2=21, b3=31)) is None
    assert short(reconciled(found, members(b1=15, b2=21))) == (1, 7, {1: 15}, {})


def test_a_leader_that_restarted_leads_in_the_next_epoch() -> None:
    found = reconciled(state(1, {1: 11}), members(b1=15))
    assert short(found) == (1, 6, {1: 15}, {})
    # With others in sync, one of those leads: it has not been away.
    found = reconciled(state(1, ALL), members(b1=15, b2=21, b3=31))
    assert short(found) == (2, 6, {2: 21, 3: 31}, {})


def test_a_disk_that_lost_something_is_not_elected() -> None:
    wiped = {**NODES, 1: 15}
    found = reconciled(state(1, {1: 11}), members(nodes=wiped, b1=15))
    assert short(found) == (NO_LEADER, 6, {1: 11}, {})
    # An eligible replica is. The former entry is kept: it may get its disk back.
    found = reconciled(state(1, {1: 11}, {2: 21, 3: 31}), members(nodes=wiped, b1=15, b3=35))
    assert short(found) == (3, 6, {3: 35}, {2: 21, 1: 11})
    # Current ones first, before the order of the replicas.
    eligible = state(1, {1: 11}, {2: 21, 3: 31})
    found = reconciled(eligible, members(nodes=wiped, b2=25, b3=31))
    assert short(found) == (3, 6, {3: 31}, {2: 21, 1: 11})


def test_an_unclean_election_takes_any_running_replica_if_it_is_allowed() -> None:
    lost = state(1, {1: 11})
    assert short(reconciled(lost, members(b2=21, b3=31)))[0] == NO_LEADER
    found = reconciled(lost, members(b2=21, b3=31), is_unclean_allowed=True)
    assert short(found) == (2, 6, {2: 21}, {})
    assert found is not None
    assert found.is_recovering
    # The last leader first.
    wiped = members(nodes={**NODES, 3: 35}, b2=21, b3=35)
    found = reconciled(state(3, {3: 31}), wiped, is_unclean_allowed=True)
    assert short(found) == (3, 6, {3: 35}, {})
    # A clean one is better, also of a draining broker.
    found = reconciled(
        lost, members(draining=frozenset({1}), b1=15, b2=21), is_unclean_allowed=True
    )
    assert short(found) == (1, 6, {1: 15}, {})
    assert found is not None
    assert not found.is_recovering


def test_a_starting_broker_is_not_elected() -> None:
    starting = members(starting=frozenset({1}), b1=15)
    found = reconciled(state(1, {1: 11}), starting, is_unclean_allowed=True)
    assert short(found) == (NO_LEADER, 6, {1: 11}, {})


def test_leaders_and_replicas_of_a_draining_broker_move() -> None:
    drained = members(draining=frozenset({1}), b1=11, b2=21, b3=31)
    moved = without_drained_leader(state(1, ALL), drained)
    assert short(moved) == (2, 6, ALL, {})
    assert moved is not None
    assert short(without_drained_replicas(moved, drained)) == (2, 6, {2: 21, 3: 31}, {})
    # Not below min_isr, and not the leader itself.
    assert without_drained_replicas(state(2, {1: 11, 2: 21}), drained) is None
    assert without_drained_replicas(state(1, ALL), drained) is None
    # No other leader: it leads on.
    assert without_drained_leader(state(1, {1: 11}), drained) is None
    assert without_drained_leader(state(2, ALL), drained) is None


def test_the_preferred_leader_leads_again() -> None:
    everyone = members(b1=11, b2=21, b3=31)
    assert short(with_preferred_leader(state(2, ALL), everyone)) == (1, 6, ALL, {})
    assert with_preferred_leader(state(1, ALL), everyone) is None
    assert with_preferred_leader(state(2, {2: 21, 3: 31}), everyone) is None
    assert with_preferred_leader(state(2, ALL), members(b2=21, b3=31)) is None
    drained = members(draining=frozenset({1}), b1=11, b2=21, b3=31)
    assert with_preferred_leader(state(2, ALL), drained) is None
    assert with_preferred_leader(state(NO_LEADER, ALL), everyone) is None


def test_a_replica_that_cannot_be_served_is_named_and_never_valid() -> None:
    assert short(unserved(state(1, ALL), 2)) == (1, 5, {1: 11, 2: 0, 3: 31}, {})
    assert short(unserved(state(1, ALL), 1)) == (NO_LEADER, 6, {1: 0, 2: 21, 3: 31}, {})
    assert short(unserved(state(1, {1: 11}, {3: 31}), 3)) == (1, 5, {1: 11}, {3: 0})
    assert unserved(state(1, {1: 11}), 2) is None
    assert not members(b1=11).is_valid(Replica(1, 0))
    assert not members(b9=11).is_valid(Replica(9, 11))


# --- Rules that always hold ---

EPOCHS = st.integers(1, 60)
IDS = st.sampled_from([1, 2, 3, 4])


@st.composite
def states(draw: st.DrawFn) -> PartitionImage:
    replicas = draw(st.permutations([1, 2, 3, 4]))[: draw(st.integers(1, 4))]
    count = draw(st.integers(1, len(replicas)))
    order = draw(st.permutations(replicas))
    isr = {one: draw(EPOCHS) for one in order[:count]}
    min_isr = draw(st.integers(1, 3))
    elr = {} if count >= min_isr else {one: draw(EPOCHS) for one in order[count:]}
    leader = draw(st.sampled_from([NO_LEADER, *isr]))
    return state(leader, isr, elr, replicas=tuple(replicas), min_isr=min_isr)


@st.composite
def memberships(draw: st.DrawFn) -> Members:
    epochs = draw(st.dictionaries(IDS, EPOCHS, max_size=4))
    nodes = {one: draw(st.integers(1, 60)) for one in (1, 2, 3, 4)}
    kinds = {one: draw(st.sampled_from(BrokerState)) for one in epochs}
    return Members(
        epochs,
        {one: min(since, epochs.get(one, since)) for one, since in nodes.items()},
        frozenset(one for one in epochs if kinds[one] is BrokerState.RUNNING),
        frozenset(one for one in epochs if kinds[one] is BrokerState.DRAINING),
    )


def check(before: PartitionImage, after: PartitionImage, known: Members) -> None:
    """The rules of every change."""
    leaders = (before.leader, before.broker_epoch), (after.leader, after.broker_epoch)
    is_raised = leaders[0] != leaders[1] or (after.is_recovering and not before.is_recovering)
    assert after.leader_epoch == before.leader_epoch + is_raised
    assert after.isr
    assert set(after.isr) <= set(after.replicas) == set(before.replicas)
    assert len(set(after.isr)) == len(after.isr) == len(after.isr_epochs)
    eligible = [one.broker_id for one in after.elr]
    assert len(set(eligible)) == len(eligible)
    assert set(eligible).isdisjoint(after.isr)
    assert after.min_isr == before.min_isr
    if after.leader != NO_LEADER:
        assert after.leader in after.isr
        if is_raised:
            assert known.epochs[after.leader] == after.broker_epoch
            assert after.leader in known.running | known.draining
            assert Replica(after.leader, after.broker_epoch) in after.in_sync
    # An unclean election apart, a replica is only dropped, never added, except the leader.
    if not after.is_recovering:
        noted = {*before.in_sync, *before.elr}
        assert {*after.in_sync, *after.elr} - noted <= {Replica(after.leader, after.broker_epoch)}


@given(states(), memberships(), st.booleans())
def test_rules_of_every_election(
    before: PartitionImage, known: Members, is_unclean_allowed: bool
) -> None:
    after = reconciled(before, known, is_unclean_allowed=is_unclean_allowed)
    if after is None:
        assert before.leader == NO_LEADER or known.epochs[before.leader] == before.broker_epoch
        return
    check(before, after, known)
    # Nothing is left to do.
    assert reconciled(after, known, is_unclean_allowed=is_unclean_allowed) is None
    if after.leader == NO_LEADER:
        # No usable replica is valid.
        usable = known.running | known.draining
        assert not any(
            known.is_valid(one) and one.broker_id in usable for one in (*after.in_sync, *after.elr)
        )
        assert not (is_unclean_allowed and set(before.replicas) & known.running)
    elif after.leader_epoch > before.leader_epoch and not after.is_recovering:
        noted = {one.broker_id: one for one in (*before.elr, *before.in_sync)}
        assert known.is_valid(noted[after.leader])
    # Who left and is not eligible left while there were enough.
    left = {*before.isr} - {*after.isr} - {one.broker_id for one in after.elr}
    if left and not after.is_recovering:
        assert len(before.isr) - 1 >= before.min_isr


@given(states(), memberships())
def test_rules_of_drained_and_preferred_leaders(before: PartitionImage, known: Members) -> None:
    for move in (without_drained_leader, with_preferred_leader, without_drained_replicas):
        after = move(before, known)
        if after is not None:
            check(before, after, known)
            assert after.elr == before.elr
            assert len(after.isr) == len(before.isr) or len(after.isr) >= after.min_isr


@given(states(), st.data())
def test_rules_of_a_leader(before: PartitionImage, data: st.DataObject) -> None:
    followers = [one for one in before.isr if one != before.leader]
    if len(before.isr) > 1 and followers:
        one = data.draw(st.sampled_from(followers))
        after = shrunk(before, one)
        assert after.leader_epoch == before.leader_epoch
        assert (one in {r.broker_id for r in after.elr}) is (len(after.isr) < after.min_isr)
        assert set(before.elr) <= set(after.elr)
    new = Replica(data.draw(st.sampled_from(before.replicas)), data.draw(st.integers(61, 99)))
    after = joined(before, new)
    assert new in after.in_sync
    assert len(set(after.isr)) == len(after.isr)
    assert new.broker_id not in {one.broker_id for one in after.elr}
    assert not (after.elr and len(after.isr) >= after.min_isr)
    changed = with_min_isr(before, data.draw(st.integers(1, 4)))
    assert changed.elr == ()
    assert (changed.isr, changed.leader_epoch) == (before.isr, before.leader_epoch)


def test_recovery_ends_with_enough_replicas_in_sync() -> None:
    recovering = state(1, {1: 11}, is_recovering=True)
    assert not joined(recovering, Replica(2, 21)).is_recovering
    assert joined(recovering._replace(min_isr=3), Replica(2, 21)).is_recovering
    assert with_min_isr(recovering, 2).is_recovering
    assert not with_min_isr(recovering, 1).is_recovering


# --- Writes ---


def image_of(states_of: list[PartitionImage], epochs: dict[int, int]) -> MetadataImage:
    topic_id = UUID(int=7)
    image = apply(
        MetadataImage(),
        [
            PartitionsChanged(topic_id, dict(enumerate(states_of))),
            TopicPublished("t", topic_id, len(states_of), 5),
        ],
        80,
    )
    endpoint = (Endpoint("PLAINTEXT", "h", 1),)
    brokers = {one: BrokerImage(one, endpoint, None, "d", epoch) for one, epoch in epochs.items()}
    nodes = {one: NodeImage("d", 1) for one in range(1, 40)}
    return MetadataImage(
        **{
            **{name: getattr(image, name) for name in image.__slots__},
            "brokers": brokers,
            "nodes": nodes,
        }
    )


@pytest.mark.parametrize("spread", [1, 30])
def test_a_death_is_written_in_guarded_transactions(spread: int) -> None:
    """Also when each partition gets another leader, and needs compares of its own."""
    parts = [
        state(1, {1: 11, 2 + n % spread: 21}, replicas=(1, 2 + n % spread), min_isr=1)
        for n in range(250)
    ]
    image = image_of(parts, dict.fromkeys(range(2, 40), 21))
    guards = (Compare.created_at(KEYS.controller(), 3),)
    writes = list(election_writes(KEYS, image, member_decision(image, lambda _: False), guards))
    assert sum(len(write.operations) for write in writes) == 250
    for write in writes:
        assert write.compares[0] == guards[0]
        assert len(write.compares) <= STORE_COMPARES_MAX
        assert len(write.operations) <= min(100, STORE_OPERATIONS_MAX)
        for put in write.operations:
            assert isinstance(put, Put)
            after = read_partition(put.value, 81)
            assert Compare(put.key, CompareTarget.MOD, 77) in write.compares
            assert Compare.created_at(KEYS.broker(after.leader), 21) in write.compares
            assert Compare.unchanged(KEYS.node(after.leader), 1) in write.compares
    few = election_writes(
        KEYS, image, member_decision(image, lambda _: False), guards, count_max=100
    )
    assert sum(len(write.operations) for write in few) == 100


def test_partitions_that_are_not_affected_are_not_written() -> None:
    image = image_of([state(1, ALL), state(2, {2: 21, 3: 31})], ALL)
    assert list(election_writes(KEYS, image, member_decision(image, lambda _: False), ())) == []
    assert elections.Members.of(image).running == {1, 2, 3}
