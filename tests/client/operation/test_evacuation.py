"""Plans that take all replicas off a broker."""

from dataclasses import replace

from hypothesis import given

from penstock.client.operation.cluster_state import BrokerFacts, BrokerMode, ClusterState
from penstock.client.operation.evacuation import plan_evacuation
from penstock.client.operation.replica_moves import rack_count
from tests.client.operation.states import brokers, cluster, partition, states

GIB = 1 << 30


def test_each_replica_gets_another_broker_at_its_place() -> None:
    state = cluster(brokers(1, 2, 3, 4), partition(0, [1, 2, 3]), partition(1, [3, 1, 2]))
    plan = plan_evacuation(state, 1)
    assert {move.at.partition: move.after for move in plan.moves} == {0: (4, 2, 3), 1: (3, 4, 2)}
    assert plan.stuck == plan.under_way == ()
    assert [(move.added, move.removed) for move in plan.moves] == [((4,), (1,)), ((4,), (1,))]


def test_leaders_stay_spread() -> None:
    state = cluster(brokers(1, 2, 3, 4), *(partition(number, [1, 2, 3]) for number in range(9)))
    firsts = [move.after[0] for move in plan_evacuation(state, 1).moves]
    assert {one: firsts.count(one) for one in (2, 3, 4)} == {2: 3, 3: 3, 4: 3}


def test_racks_come_before_free_disks() -> None:
    racks = {1: "a", 2: "b", 3: "b", 4: "a"}
    facts = brokers(1, 2, 3, 4, racks=racks)
    facts[3] = replace(facts[3], disk_bytes=100 * GIB, free_bytes=99 * GIB)
    facts[4] = replace(facts[4], disk_bytes=100 * GIB, free_bytes=50 * GIB)
    (move,) = plan_evacuation(cluster(facts, partition(0, [1, 2])), 1).moves
    assert move.after == (4, 2)


def test_the_emptiest_disk_is_first_and_a_full_one_gets_nothing() -> None:
    facts = brokers(1, 2, 3)
    facts[2] = replace(facts[2], disk_bytes=100 * GIB, free_bytes=90 * GIB)
    facts[3] = replace(facts[3], disk_bytes=100 * GIB, free_bytes=20 * GIB)
    large = [partition(number, [1], size_bytes=40 * GIB) for number in range(4)]
    plan = plan_evacuation(cluster(facts, *large), 1)
    # Two fit on broker 2, none on broker 3, with a twentieth of the disk left free.
    assert [move.after for move in plan.moves] == [(2,), (2,)]
    assert len(plan.stuck) == 2


def test_a_broker_that_is_drained_or_down_gets_nothing() -> None:
    facts = brokers(1, 2, 3, 4, b3=BrokerMode.DRAINED, b4=BrokerMode.DOWN)
    plan = plan_evacuation(cluster(facts, partition(0, [1]), partition(1, [1, 2])), 1)
    assert [move.after for move in plan.moves] == [(2,)]
    assert [one.at.partition for one in plan.stuck] == [1]


def test_moves_under_way_are_not_planned_again() -> None:
    leaving = partition(0, [1, 2, 3], [1, 2], adding=(3,), removing=(1,))
    arriving = partition(1, [2, 3, 1], [2, 3], adding=(1,), removing=(3,))
    plan = plan_evacuation(cluster(brokers(1, 2, 3, 4), leaving, arriving), 1)
    assert plan.under_way == (leaving,)
    (move,) = plan.moves
    # Broker 3 has a copy already and broker 4 has none: both are allowed, and 4 has fewer.
    assert move.after == (2, 4)


@given(states())
def test_a_plan_keeps_the_rules(state: ClusterState) -> None:
    for broker_id in state.brokers:
        plan = plan_evacuation(state, broker_id)
        places = [one.at for one in state.with_replica(broker_id)]
        parts = (plan.moves, plan.under_way, plan.stuck)
        assert sorted(one.at for part in parts for one in part) == sorted(places)
        for move in plan.moves:
            assert broker_id not in move.after
            assert len(move.after) == len(set(move.after)) == len(move.before)
            (target,) = move.added
            assert state.brokers[target].mode is BrokerMode.RUNNING
            # No other broker would be in more racks.
            kept = [one for one in move.after if one != target]
            possible = set(state.in_mode(BrokerMode.RUNNING)) - set(move.before)
            racks = [rack_count(state.brokers, [*kept, one]) for one in possible]
            assert rack_count(state.brokers, move.after) == max(racks)
        for facts in plan.stuck:
            fit = set(state.in_mode(BrokerMode.RUNNING)) - set(facts.replicas)
            assert not fit


def test_a_disk_that_is_not_reported_counts_as_free() -> None:
    facts: dict[int, BrokerFacts] = brokers(1, 2)
    plan = plan_evacuation(cluster(facts, partition(0, [1], size_bytes=GIB)), 1)
    assert plan.moves[0].copied_bytes == GIB
