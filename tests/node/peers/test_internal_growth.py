"""Internal topics of a cluster that was smaller when they were created."""

from penstock.core.types import OFFSETS_TOPIC
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tests.node.peers.three_brokers import ThreeBrokers, run_some, until

GROUP = 0


def test_internal_topics_get_replicas_on_brokers_that_join() -> None:
    async def body(brokers: ThreeBrokers) -> None:
        await brokers.start_one(1)
        await until(lambda: brokers.is_running(1))
        request = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=("group",))
        await brokers.ask(1, request, FindCoordinatorResponse)
        await until(lambda: brokers.image.topic(OFFSETS_TOPIC) is not None)
        assert {one.replicas for one in brokers.topic(OFFSETS_TOPIC).partitions} == {(1,)}
        await brokers.start_one(2)
        await until(lambda: has_replicas(brokers, {1, 2}))
        # Two replicas: both would have to be there for each record.
        assert "min.insync.replicas" not in brokers.topic(OFFSETS_TOPIC).settings
        await brokers.start_one(3)
        await until(lambda: has_replicas(brokers, {1, 2, 3}))
        await until(
            lambda: all(one.min_isr == 2 for one in brokers.topic(OFFSETS_TOPIC).partitions)
        )
        assert brokers.topic(OFFSETS_TOPIC).settings["min.insync.replicas"] == "2"
        # First replicas on each broker: groups are spread.
        assert {one.replicas[0] for one in brokers.topic(OFFSETS_TOPIC).partitions} == {1, 2, 3}

    run_some(body)


def has_replicas(brokers: ThreeBrokers, expected: set[int]) -> bool:
    """Whether each partition has its replicas on these brokers, in sync."""
    return all(
        set(one.replicas) == set(one.isr) == expected and not one.adding
        for one in brokers.topic(OFFSETS_TOPIC).partitions
    )
