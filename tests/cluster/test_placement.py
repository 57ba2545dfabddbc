"""Placement of replicas: different brokers, different racks, one leader after the other."""

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.controller import NewTopic
from penstock.cluster.image import BrokerState, TopicImage
from penstock.cluster.placement import placed
from penstock.cluster.topic_changes import MorePartitions
from penstock.cluster.topic_rules import check_factor
from penstock.core.errors import InvalidReplicaAssignmentError, InvalidReplicationFactorError
from tests.cluster.shared_store import Cluster, run_cluster

RACKS = st.dictionaries(
    st.integers(0, 50), st.one_of(st.none(), st.sampled_from("abc")), min_size=1, max_size=9
)


@given(RACKS, st.uuids(), st.integers(1, 40), st.data())
def test_replicas_are_apart(
    racks: dict[int, str | None], topic_id: UUID, count: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    found = placed(racks, topic_id, range(count), factor)
    assert found == placed(racks, topic_id, range(count), factor)
    assert len(found) == count
    names = [rack if rack is not None else f"own {one}" for one, rack in racks.items()]
    for replicas in found:
        assert len(set(replicas)) == factor
        used = {racks[one] if racks[one] is not None else f"own {one}" for one in replicas}
        assert len(used) == min(factor, len(set(names)))
    leaders = Counter(replicas[0] for replicas in found)
    assert max(leaders.values()) - min(leaders.get(one, 0) for one in racks) <= 1


@given(RACKS, st.uuids(), st.integers(1, 10), st.integers(1, 10))
def test_more_partitions_continue_the_turn(
    racks: dict[int, str | None], topic_id: UUID, first: int, more: int
) -> None:
    whole = placed(racks, topic_id, range(first + more), 1)
    begun = placed(racks, topic_id, range(first), 1)
    assert begun + placed(racks, topic_id, range(first, first + more), 1, begun) == whole


def test_one_broker_has_everything() -> None:
    assert placed({7: None}, UUID(int=12345), range(3), 1) == ((7,),) * 3


def test_replicas_are_spread_evenly_without_racks() -> None:
    found = placed(dict.fromkeys(range(5)), UUID(int=1), range(50), 3)
    counts = Counter(one for replicas in found for one in replicas)
    assert max(counts.values()) - min(counts.values()) <= 5


def test_topics_do_not_all_begin_at_the_same_broker() -> None:
    racks = dict.fromkeys((1, 2, 3))
    firsts = {placed(racks, UUID(int=number), range(1), 1)[0] for number in range(9)}
    assert firsts == {(1,), (2,), (3,)}


def test_running_brokers_get_the_replicas_while_there_are_enough() -> None:
    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        await cluster.join(4, is_running=False)
        await services[1].change_state(BrokerState.DRAINING)
        await cluster.settle()
        service = services[0]
        wanted = NewTopic(name="t", partition_count=6, replication_factor=2)
        (topic,) = await service.create_topics([wanted])
        assert isinstance(topic, TopicImage)
        assert {one for state in topic.partitions for one in state.replicas} == {1, 3}
        assert all(state.isr == state.replicas for state in topic.partitions)
        (error,) = await service.create_topics([NewTopic(name="u", replication_factor=5)])
        assert isinstance(error, InvalidReplicationFactorError)
        assert "only 4 broker(s) are registered" in str(error)
        grown = await service.create_partitions(MorePartitions("t", 8))
        assert {one for state in grown.partitions for one in state.replicas} == {1, 3}

    run_cluster(body)


def test_an_assignment_may_name_brokers_that_do_not_run_yet() -> None:
    """They have the replica, and are not in sync until they have caught up."""

    async def body(cluster: Cluster) -> None:
        service = (await cluster.three())[0]
        await cluster.join(4, is_running=False)
        await cluster.settle()
        (topic,) = await service.create_topics([NewTopic(name="t", assignments=((0, (4, 2)),))])
        assert isinstance(topic, TopicImage)
        state = topic.partitions[0]
        assert (state.replicas, state.isr, state.leader) == ((4, 2), (2,), 2)
        assert state.broker_epoch == service.image.brokers[2].epoch
        (error,) = await service.create_topics([NewTopic(name="u", assignments=((0, (4,)),))])
        assert isinstance(error, InvalidReplicaAssignmentError)
        with pytest.raises(InvalidReplicaAssignmentError):
            await service.create_partitions(MorePartitions("t", 2, ((4,),)))

    run_cluster(body)


def test_brokers_that_do_not_run_get_the_last_replicas_if_the_others_are_too_few() -> None:
    """As in Kafka: a broker that is down for a while does not stop the creation of topics."""

    async def body(cluster: Cluster) -> None:
        service = (await cluster.three())[0]
        await service.create_topics([NewTopic(name="t", replication_factor=3)])
        await cluster.stop_broker(3)
        await cluster.settle()
        (created,) = await service.create_topics(
            [NewTopic(name="u", partition_count=4, replication_factor=3)]
        )
        assert isinstance(created, TopicImage)
        grown = await service.create_partitions(MorePartitions("t", 2))
        for state in (*created.partitions, grown.partitions[1]):
            assert (set(state.isr), state.replicas[2]) == ({1, 2}, 3)
            assert state.leader == state.replicas[0]
        (assigned,) = await service.create_topics([NewTopic(name="v", assignments=((0, (3, 1)),))])
        assert isinstance(assigned, TopicImage)
        assert (assigned.partitions[0].leader, assigned.partitions[0].isr) == (1, (1,))

    run_cluster(body)


def test_more_replicas_than_known_brokers_are_refused() -> None:
    async def body(cluster: Cluster) -> None:
        service = (await cluster.three())[0]
        (error,) = await service.create_topics([NewTopic(name="t", replication_factor=4)])
        assert isinstance(error, InvalidReplicationFactorError)
        (error,) = await service.create_topics([NewTopic(name="u", assignments=((0, (1, 9)),))])
        assert isinstance(error, InvalidReplicaAssignmentError)

    run_cluster(body)


def test_absent_brokers_take_turns() -> None:
    found = placed({1: None}, UUID(int=0), range(3), 2, absent=[5, 6])
    assert found == ((1, 5), (1, 6), (1, 5))


def test_nothing_is_placed_while_no_broker_runs() -> None:
    with pytest.raises(InvalidReplicationFactorError, match="All brokers are currently fenced"):
        check_factor(1, 0, 3)
