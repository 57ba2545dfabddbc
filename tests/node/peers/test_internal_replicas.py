"""Internal topics that are created while a broker of the cluster is down."""

from penstock.core.types import OFFSETS_TOPIC
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tests.node.peers.three_brokers import ThreeBrokers, run, until

GROUP = 0


def test_an_internal_topic_has_a_replica_on_a_broker_that_is_down() -> None:
    async def body(brokers: ThreeBrokers) -> None:
        await brokers.stop(3)
        await until(lambda: 3 not in brokers.image.brokers)
        request = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=("group",))
        await brokers.ask(1, request, FindCoordinatorResponse)
        await until(lambda: brokers.image.topic(OFFSETS_TOPIC) is not None)
        for state in brokers.topic(OFFSETS_TOPIC).partitions:
            assert (set(state.replicas), set(state.isr)) == ({1, 2, 3}, {1, 2})
            assert state.min_isr == 2
        await brokers.start_one(3)
        await until(
            lambda: all(len(one.isr) == 3 for one in brokers.topic(OFFSETS_TOPIC).partitions)
        )

    run(body)
