"""Dead letters in a cluster: the leader of the dead-letter partition appends them, wherever."""

import asyncio

import pytest

from penstock.cluster.configs.group_configs import DEAD_LETTER_TOPIC, delivery_settings, group_rules
from penstock.cluster.controller import NewTopic
from penstock.cluster.image import TopicImage
from penstock.coordinator.shares.delivery.share_delivery import Letter
from penstock.core.settings.coordinator_settings import GroupsSettings
from penstock.node.shares.lazy_shares import NodeShares
from penstock.node.shares.letter_records import Source
from penstock.node.shares.share_dead_letters import DeadLetterError
from tests.node.peers.three_brokers import ThreeBrokers, run, until

SETTINGS = delivery_settings({DEAD_LETTER_TOPIC: "dlq.orders"}, group_rules(GroupsSettings()))
SOURCE = Source("packing", "orders", 0)
LETTERS = (Letter(3, 4, 2, 1), Letter(7, 7, 1, 0))


async def create_letters_topic(brokers: ThreeBrokers, leader: int, *, is_allowed: bool) -> None:
    enable = {"errors.deadletterqueue.group.enable": "true"} if is_allowed else {}
    (created,) = await brokers.metadata.create_topics(
        [
            NewTopic(
                name="dlq.orders",
                partition_count=-1,
                replication_factor=-1,
                assignments=((0, (leader,)),),
                settings=dict(enable),
            )
        ]
    )
    assert isinstance(created, TopicImage), created
    await brokers.until_served("dlq.orders")


@pytest.mark.parametrize("is_allowed", [True, False])
def test_another_broker_leads_the_dead_letter_partition(is_allowed: bool) -> None:
    async def act(brokers: ThreeBrokers) -> None:
        await brokers.create("orders", 1, ((1,),))
        await create_letters_topic(brokers, 2, is_allowed=is_allowed)
        parts = brokers.servers[1]._parts
        assert parts is not None
        await until(lambda: parts.metadata.image.topic("dlq.orders") is not None)
        shares = parts.services.shares
        assert isinstance(shares, NodeShares)
        letters = shares._open_letters()
        hosted = brokers.replica(1, "orders", 0)
        if is_allowed:
            assert await letters.write(SOURCE, hosted, SETTINGS, LETTERS) == 3
            end = brokers.replica(2, "dlq.orders", 0).state.high_watermark
            assert end == 3
        else:
            with pytest.raises(DeadLetterError, match="does not allow dead letters"):
                await letters.write(SOURCE, hosted, SETTINGS, LETTERS)
            assert brokers.replica(2, "dlq.orders", 0).state.high_watermark == 0

    run(act)


def test_a_leader_that_is_gone_is_an_error() -> None:
    async def act(brokers: ThreeBrokers) -> None:
        await brokers.create("orders", 1, ((1,),))
        await create_letters_topic(brokers, 3, is_allowed=True)
        parts = brokers.servers[1]._parts
        assert parts is not None
        await until(lambda: parts.metadata.image.topic("dlq.orders") is not None)
        shares = parts.services.shares
        assert isinstance(shares, NodeShares)
        letters = shares._open_letters()
        await brokers.stop(3)
        with pytest.raises(DeadLetterError):
            async with asyncio.timeout(9):
                await letters.write(SOURCE, brokers.replica(1, "orders", 0), SETTINGS, LETTERS)

    run(act)
