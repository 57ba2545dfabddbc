"""The next broker to restart."""

from penstock.client.operation.cluster_state import BrokerMode
from penstock.client.operation.restart_order import next_restart
from tests.client.operation.states import brokers, cluster, partition


def test_the_controller_is_last() -> None:
    full = partition(0, [1, 2, 3], min_in_sync=2)
    state = cluster(brokers(1, 2, 3), full, controller_id=1)
    first = next_restart(state)
    assert (first.broker_id, first.waiting) == (2, (3, 1))
    assert next_restart(state, [2]).broker_id == 3
    assert next_restart(state, [2, 3]).broker_id == 1
    done = next_restart(state, [1, 2, 3])
    assert done == (None, (), (), ())


def test_a_partition_must_keep_its_minimum() -> None:
    lagging = partition(0, [1, 2, 3], [1, 2], min_in_sync=2)
    state = cluster(brokers(1, 2, 3), lagging)
    # Broker 3 is not in sync: nothing gets worse without it.
    found = next_restart(state)
    assert found.broker_id == 3
    assert [(one.broker_id, one.left) for one in found.obstacles] == [(1, 1), (2, 1)]
    none = next_restart(state, [3])
    assert none.broker_id is None
    assert none.waiting == (1, 2)
    assert none.obstacles[0].partition is lagging


def test_in_sync_replicas_on_a_broker_that_is_down_do_not_count() -> None:
    state = cluster(
        brokers(1, 2, 3, b3=BrokerMode.DOWN),
        partition(0, [1, 2, 3], [1, 2, 3], min_in_sync=2),
    )
    found = next_restart(state)
    assert found.broker_id is None
    assert found.down == (3,)
    assert {one.broker_id for one in found.obstacles} == {1, 2}


def test_the_last_in_sync_replica_stays() -> None:
    state = cluster(brokers(1, 2), partition(0, [1, 2], [1], min_in_sync=1))
    assert next_restart(state).broker_id == 2
    assert next_restart(state, [2]).broker_id is None


def test_a_single_replica_is_an_obstacle_unless_it_is_accepted() -> None:
    state = cluster(brokers(1, 2), partition(0, [1]), partition(1, [1]))
    found = next_restart(state)
    assert found.broker_id == 2
    assert found.obstacles[0].others == 1
    assert next_restart(state, accepts_single=True).broker_id == 1


def test_other_partitions_do_not_matter() -> None:
    offline = partition(0, [1, 2], [1, 2], min_in_sync=2, leader=-1)
    state = cluster(brokers(1, 2, 3, 4), offline, partition(1, [3, 4], min_in_sync=1))
    assert next_restart(state, [1, 2]).broker_id == 3
