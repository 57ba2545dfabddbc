"""Plans for more, fewer or other replicas of a topic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.operation.cluster_state import BrokerMode, ClusterState
from penstock.client.operation.replica_moves import rack_count, receivers
from penstock.client.operation.resizing import (
    chosen_partitions,
    plan_factor,
    plan_replicas,
    under_way,
)
from penstock.core.errors import InvalidReplicationFactorError, UnknownTopicOrPartitionError
from tests.client.operation.states import brokers, cluster, partition, states


def test_new_replicas_are_spread_over_brokers_and_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    state = cluster(brokers(1, 2, 3, 4, racks=racks), partition(0, [1]), partition(1, [2]))
    moves = plan_factor(state, state.partitions, 2)
    assert [move.after for move in moves] == [(1, 3), (2, 4)]
    assert [move.before for move in moves] == [(1,), (2,)]


def test_a_drained_broker_gets_none_and_too_few_are_an_error() -> None:
    state = cluster(brokers(1, 2, 3, b3=BrokerMode.DRAINED), partition(0, [1]))
    assert plan_factor(state, state.partitions, 2)[0].after == (1, 2)
    with pytest.raises(InvalidReplicationFactorError, match="3 replicas need 3 brokers: 2 brokers"):
        plan_factor(state, state.partitions, 3)


def test_replicas_of_lost_brokers_leave_first() -> None:
    state = cluster(brokers(1, 2, 3, b2=BrokerMode.DOWN), partition(0, [1, 2, 3]))
    assert plan_factor(state, state.partitions, 2)[0].after == (1, 3)
    assert plan_factor(state, state.partitions, 3) == []


def test_moves_under_way_count() -> None:
    moving = partition(0, [2, 3, 1], [1], adding=(2, 3), removing=(1,), leader=1, size_bytes=9)
    state = cluster(brokers(1, 2, 3), moving)
    assert plan_factor(state, state.partitions, 2) == []
    assert plan_replicas(state.partitions, (2, 3)) == []
    (other,) = plan_replicas(state.partitions, (3,))
    assert (other.before, other.after) == ((1,), (3,))
    (running,) = under_way(state.partitions)
    assert (running.before, running.after, running.copied_bytes) == ((1,), (2, 3), 18)


def test_partitions_are_chosen_by_number() -> None:
    state = cluster(brokers(1), partition(1, [1]), partition(0, [1]))
    assert [one.at.partition for one in chosen_partitions(state, "t", None)] == [0, 1]
    assert [one.at.partition for one in chosen_partitions(state, "t", {1})] == [1]
    with pytest.raises(UnknownTopicOrPartitionError, match="t has no partition 2"):
        chosen_partitions(state, "t", {1, 2})
    with pytest.raises(UnknownTopicOrPartitionError, match="there is no topic other"):
        chosen_partitions(state, "other", None)


@given(states(), st.integers(1, 6))
def test_rules_of_every_plan(state: ClusterState, factor: int) -> None:
    try:
        moves = plan_factor(state, state.partitions, factor)
    except InvalidReplicationFactorError:
        assert len(receivers(state)) < factor
        return
    planned = {move.at: move for move in moves}
    for facts in state.partitions:
        before = tuple(one for one in facts.replicas if one not in facts.removing)
        after = planned[facts.at].after if facts.at in planned else before
        assert len(after) == len(set(after)) == factor
        assert set(after) - set(before) <= set(receivers(state))
        if len(before) <= factor:
            # Nothing that is there moves.
            assert after[: len(before)] == before
            assert rack_count(state.brokers, after) >= rack_count(state.brokers, before)
        else:
            assert set(after) < set(before)
