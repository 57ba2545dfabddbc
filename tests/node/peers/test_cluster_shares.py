"""Share state in a cluster: each broker reaches each share coordinator, and a new one loads it."""

import asyncio
from typing import TypeVar
from uuid import UUID

from penstock.coordinator.shares.ports import (
    Refusal,
    ShareChange,
    ShareKey,
    ShareState,
    ShareStates,
    ShareSummary,
    StateBatch,
)
from penstock.coordinator.shares.share_keys import key_text
from penstock.core.deferred import Deferred
from penstock.core.types import SHARE_STATE_TOPIC
from penstock.protocol.error_codes import ErrorCode
from tests.node.peers.three_brokers import ThreeBrokers, run, until

TOPIC = "orders"
ACKNOWLEDGED = 2

Result = TypeVar("Result")


async def result_of(answer: Deferred[Result]) -> Result:
    future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    answer.then(future.set_result)
    async with asyncio.timeout(10):
        return await future


def states_of(brokers: ThreeBrokers, broker_id: int) -> ShareStates:
    return brokers.served(broker_id).coordinators.share_states


async def keys_of(brokers: ThreeBrokers) -> list[ShareKey]:
    """Share-partitions with different coordinators."""
    await brokers.create(TOPIC, 1)
    topic_id: UUID = brokers.topic(TOPIC).id
    return [ShareKey(f"group-{number}", topic_id, 0) for number in range(6)]


async def initialized(brokers: ThreeBrokers, keys: list[ShareKey]) -> None:
    """Initialize the states from the first broker; its first call creates the topic."""
    states = states_of(brokers, 1)
    for key in keys:
        found: Refusal | None = await result_of(states.initialize(key, 1, 0))
        while found is not None and found.is_retriable:
            await brokers.next_turn()
            found = await result_of(states.initialize(key, 1, 0))
        assert found is None
    await brokers.until_served(SHARE_STATE_TOPIC)


def test_each_broker_reaches_each_coordinator() -> None:
    async def act(brokers: ThreeBrokers) -> None:
        keys = await keys_of(brokers)
        await initialized(brokers, keys)
        coordinators = {brokers.coordinator(SHARE_STATE_TOPIC, key_text(key)) for key in keys}
        assert len(coordinators) > 1, "the test needs several coordinators"
        for key in keys:
            for broker_id in brokers.servers:
                states = states_of(brokers, broker_id)
                assert await result_of(states.read(key, broker_id)) == ShareState(
                    1, 0, tuple(StateBatch(at, at, ACKNOWLEDGED, at) for at in range(1, broker_id))
                )
                batch = StateBatch(broker_id, broker_id, ACKNOWLEDGED, broker_id)
                change = ShareChange(1, broker_id, -1, (batch,), broker_id)
                assert await result_of(states.write(key, change)) is None
                assert await result_of(states.summary(key)) == ShareSummary(
                    1, broker_id, 0, broker_id
                )
            late = await result_of(states_of(brokers, 1).read(key, 1))
            assert isinstance(late, Refusal)
            assert late.error_code == ErrorCode.FENCED_LEADER_EPOCH
            assert await result_of(states_of(brokers, 2).delete(key)) is None

    run(act)


def test_changes_of_one_leader_arrive_in_order() -> None:
    async def act(brokers: ThreeBrokers) -> None:
        keys = await keys_of(brokers)
        await initialized(brokers, keys)
        for broker_id in brokers.servers:
            states = states_of(brokers, broker_id)
            answers = [
                (number, key, states.write(key, ShareChange(1, -1, number, (), number)))
                for number in range(20)
                for key in keys
            ]
            for _, _, answer in answers:
                assert await result_of(answer) is None
            for key in keys:
                assert await result_of(states.summary(key)) == ShareSummary(1, 0, 19, 19)

    run(act)


def test_the_next_coordinator_loads_the_state() -> None:
    async def act(brokers: ThreeBrokers) -> None:
        keys = await keys_of(brokers)
        await initialized(brokers, keys)
        gone = brokers.coordinator(SHARE_STATE_TOPIC, key_text(keys[0]))
        for key in keys:
            states = states_of(brokers, 1)
            read = await result_of(states.read(key, 7))
            assert isinstance(read, ShareState)
            change = ShareChange(1, 7, 3, (StateBatch(3, 5, ACKNOWLEDGED, 1),), 3)
            assert await result_of(states.write(key, change)) is None
        await brokers.stop(gone)
        await until(
            lambda: (
                gone not in {brokers.coordinator(SHARE_STATE_TOPIC, key_text(key)) for key in keys}
            )
        )
        states = states_of(brokers, next(iter(brokers.servers)))
        wanted = ShareState(1, 3, (StateBatch(3, 5, ACKNOWLEDGED, 1),))
        for key in keys:
            found = await result_of(states.read(key, 7))
            while isinstance(found, Refusal) and found.error_code != ErrorCode.FENCED_LEADER_EPOCH:
                assert found.is_retriable, found
                await brokers.next_turn()
                found = await result_of(states.read(key, 7))
            assert found == wanted
            late = await result_of(states.write(key, ShareChange(1, 6, 9, ())))
            assert late is not None
            assert late.error_code == ErrorCode.FENCED_LEADER_EPOCH

    run(act)
