"""Replicas that move between the brokers of a cluster: copied, joined, removed."""

import asyncio
from functools import partial

import pytest

from penstock.core.errors import NotLeaderError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from penstock.replication.waits import CommitWait
from tests.node.peers.moving import (
    TOPIC,
    has_log,
    hold_back,
    image_of,
    let_go,
    move,
    moved,
    moving,
    produce,
)
from tests.node.peers.three_brokers import ThreeBrokers, run, until

DONE = (ErrorCode.NONE, None)
REFUSED = ErrorCode.INVALID_REPLICA_ASSIGNMENT


def end_offset(brokers: ThreeBrokers, broker_id: int) -> int:
    return brokers.replica(broker_id, TOPIC, 0).log.end_offset


def test_a_partition_moves_with_its_records_and_leaves_no_log() -> None:
    async def body(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, 1, ((1,),))
        offsets = [await produce(brokers, b"before") for _ in range(5)]
        assert await move(brokers, {0: (2, 3)}, at=3) == [DONE]
        await moved(brokers, 0, (2, 3))
        state = brokers.topic(TOPIC).partitions[0]
        assert (state.leader, state.leader_epoch) == (2, 1)
        await until(lambda: not has_log(brokers, 1))
        offsets.append(await produce(brokers, b"after"))
        assert offsets == [0, 1, 2, 3, 4, 5]
        assert await moving(brokers, 1) == {}
        for broker_id in (2, 3):
            await until(lambda at=broker_id: end_offset(brokers, at) == 6)  # type: ignore[misc]

    run(body)


def test_a_running_move_is_listed_replaced_and_cancelled() -> None:
    async def body(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, 2, ((1,), (1,)))
        await produce(brokers, b"one")
        await hold_back(brokers)
        assert await move(brokers, {0: (2,), 1: None}, at=2) == [
            DONE,
            (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None),
        ]
        await until(lambda: has_log(brokers, 2))
        for broker_id in (1, 2, 3):
            await until(partial(is_moving, brokers, broker_id))
            ((listed,),) = (await moving(brokers, broker_id)).values()
            assert listed.replicas == (2, 1)
            assert (listed.adding_replicas, listed.removing_replicas) == ((2,), (1,))
        assert metric(brokers, 1, "reassigning_partitions") == 1
        # The copy of a new replica is under way: nothing is wrong.
        assert metric(brokers, 1, "under_replicated_partitions") == 0
        assert await move(brokers, {0: (3,)}) == [DONE]
        ((listed,),) = (await moving(brokers, 1)).values()
        assert (listed.adding_replicas, listed.removing_replicas) == ((2, 3), (1, 2))
        assert await move(brokers, {0: None}, at=3) == [DONE]
        await moved(brokers, 0, (1,))
        await until(lambda: not has_log(brokers, 2) and not has_log(brokers, 3))
        assert await produce(brokers, b"two") == 1

    run(body)


def metric(brokers: ThreeBrokers, broker_id: int, name: str) -> float:
    parts = brokers.servers[broker_id]._parts
    assert parts is not None
    return parts.metrics.snapshot()[name]


def is_moving(brokers: ThreeBrokers, broker_id: int) -> bool:
    state = image_of(brokers, broker_id).partition(TOPIC, 0)
    return state is not None and bool(state.adding)


def test_a_cancellation_that_would_lose_records_is_refused() -> None:
    async def body(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, 1, ((1,),))
        # The third broker never joins: the move stays, and the second broker leads it alone.
        await brokers.stop(3)
        await until(lambda: 3 not in brokers.image.brokers)
        assert await move(brokers, {0: (2, 3)}) == [DONE]
        await until(lambda: set(brokers.topic(TOPIC).partitions[0].isr) == {1, 2})
        await brokers.stop(1)
        await until(lambda: brokers.topic(TOPIC).partitions[0].isr == (2,))
        ((code, message),) = await move(brokers, {0: None})
        assert code == REFUSED
        assert message == (
            f"Unable to revert partition assignment for {TOPIC}:0 because it would require an "
            "unclean leader election."
        )

    run(body)


def test_the_number_of_replicas_changes_only_if_the_client_says_so() -> None:
    async def body(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, 1, ((1,),))
        strict = partial(move, brokers, may_change_factor=False)
        assert await strict({0: (1, 2)}) == [
            (
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "The replication factor is changed from 1 to 2",
            )
        ]
        assert await strict({0: (3,)}) == [DONE]
        await moved(brokers, 0, (3,))
        assert await move(brokers, {0: (3, 1, 2)}) == [DONE]
        await moved(brokers, 0, (3, 1, 2))
        assert await move(brokers, {0: (1, 3)}) == [DONE]
        await moved(brokers, 0, (1, 3))
        await until(lambda: not has_log(brokers, 2))
        assert brokers.topic(TOPIC).partitions[0].leader == 3

    run(body)


def test_requests_that_wait_look_for_the_new_leader() -> None:
    """The leader is removed by the same write that elects another one."""

    async def body(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, 1, ((1, 2),))
        request = FetchRequest(
            max_wait_ms=5_000,
            min_bytes=1,
            topics=(
                FetchTopic(
                    topic_id=brokers.topic(TOPIC).id,
                    partitions=(
                        FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000),
                    ),
                ),
            ),
        )
        replicas = brokers.served(1).replicas
        partition = brokers.replica(1, TOPIC, 0)
        produced = CommitWait(lambda: None)
        replicas.wait_committed(produced, [(partition, 10)], 5_000)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(brokers.ask(1, request, FetchResponse))
            await until(lambda: len(partition.waits.fetches) > 0)
            assert await move(brokers, {0: (2, 3)}, at=2) == [DONE]
        (topic,) = waiting.result().responses
        assert topic.partitions[0].error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert isinstance(produced.errors[partition.name], NotLeaderError)
        await moved(brokers, 0, (2, 3))

    run(body)


# --- Faults ---


@pytest.mark.parametrize("stopped", [1, 2, 3])
def test_a_broker_that_restarts_in_a_move_does_not_end_it(stopped: int) -> None:
    """The controller and leader (1), a new replica (2), a bystander (3)."""

    async def body(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, 1, ((1, 3),))
        for number in range(3):
            assert await produce(brokers, b"record") == number
        await hold_back(brokers)
        assert await move(brokers, {0: (2, 3)}) == [DONE]
        await until(lambda: has_log(brokers, 2))
        await brokers.stop(stopped)
        await until(lambda: stopped not in brokers.image.brokers)
        await let_go(brokers)
        await brokers.start_one(stopped)
        await moved(brokers, 0, (2, 3))
        assert await produce(brokers, b"last") == 3
        await until(lambda: not has_log(brokers, 1))
        await until(lambda: end_offset(brokers, 2) == end_offset(brokers, 3) == 4)

    run(body)


def test_a_move_ends_while_its_old_broker_is_away() -> None:
    """Its log is set aside when it starts again, and the topic is not served there."""

    async def body(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, 1, ((1, 3),))
        await produce(brokers, b"record")
        await brokers.stop(1)
        await until(lambda: brokers.topic(TOPIC).partitions[0].leader == 3)
        assert await move(brokers, {0: (2, 3)}) == [DONE]
        await moved(brokers, 0, (2, 3))
        await brokers.start_one(1)
        assert not has_log(brokers, 1)
        assert await produce(brokers, b"after") == 1
        # It comes back with an empty log, and copies everything.
        assert await move(brokers, {0: (1, 2)}) == [DONE]
        await moved(brokers, 0, (1, 2))
        assert end_offset(brokers, 1) == 2

    run(body)


def test_a_topic_that_is_deleted_in_a_move_leaves_nothing() -> None:
    async def body(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, 1, ((1,),))
        await produce(brokers, b"record")
        await hold_back(brokers)
        assert await move(brokers, {0: (2, 3)}) == [DONE]
        await until(lambda: has_log(brokers, 2) and has_log(brokers, 3))
        await brokers.served(2).metadata.delete_topics([brokers.topic(TOPIC).id])
        await until(lambda: not any(has_log(brokers, one) for one in (1, 2, 3)))
        assert await moving(brokers, 1) == {}
        # The name is free again.
        await brokers.create(TOPIC, 1, ((2,),))
        assert await produce(brokers, b"new") == 0

    run(body)


def test_a_move_that_is_cancelled_at_once_leaves_no_replica() -> None:
    """Guards the look at the newest replicas in `_begin_role`: logs were opened, and stayed."""
    count = 50

    def ghosts(brokers: ThreeBrokers) -> list[int]:
        logs, states = brokers.served(2).storage.manager.logs, brokers.topic(TOPIC).partitions
        mine = [name.partition for name in logs if name.topic == TOPIC]
        return [index for index in mine if 2 not in states[index].replicas]

    async def body(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, count, ((1,),) * count)
        await hold_back(brokers)
        await move(brokers, dict.fromkeys(range(count), (2,)), at=2)
        await move(brokers, dict.fromkeys(range(count), None), at=2)
        await until(lambda: not any(one.adding for one in brokers.topic(TOPIC).partitions))
        await until(lambda: not ghosts(brokers))

    run(body)
