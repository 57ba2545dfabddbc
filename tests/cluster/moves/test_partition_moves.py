"""Requests that move replicas, and their completion by the controller, over a shared store."""

import pytest

from penstock.cluster import elections
from penstock.cluster.configs.setting_changes import EditKind, SettingEdit, SettingsChange
from penstock.cluster.controller import NewTopic
from penstock.cluster.elections import joined
from penstock.cluster.image import MetadataImage, PartitionImage, Replica, TopicImage
from penstock.cluster.link import controller_role, controlling
from penstock.cluster.link.partition_moves import PartitionMoves
from penstock.cluster.link.partition_writes import PartitionWrite
from penstock.cluster.moves.requested_moves import MOVES_PER_REQUEST_MAX, ReplicaMove
from penstock.cluster.service import MetadataService
from penstock.cluster.topic_changes import MorePartitions
from penstock.core.errors import (
    InvalidReplicaAssignmentError,
    NoReassignmentError,
    PenstockError,
    PolicyViolationError,
    UnknownTopicOrPartitionError,
)
from penstock.testing.memory_store import Fault
from tests.cluster.shared_store import Cluster, run_cluster, until


async def create(service: MetadataService, replicas: tuple[int, ...], count: int = 1) -> TopicImage:
    wanted = NewTopic(name="t", assignments=tuple((index, replicas) for index in range(count)))
    (topic,) = await service.create_topics([wanted])
    assert isinstance(topic, TopicImage), topic
    return topic


def states(service: MetadataService) -> tuple[PartitionImage, ...]:
    return service.image.topics["t"].partitions


async def move(
    service: MetadataService, target: tuple[int, ...] | None, *numbers: int
) -> list[PenstockError | None]:
    moves = [ReplicaMove("t", number, target) for number in numbers or (0,)]
    return await PartitionMoves(service).move(moves, may_change_factor=True)


async def join(cluster: Cluster, follower: int, *numbers: int) -> None:
    """The leader lets a follower join the in-sync replicas."""
    topic = (await cluster.settle()).topics["t"]
    entry = Replica(follower, cluster.services[follower].broker_epoch)
    writes = [
        PartitionWrite(topic.id, number, before, joined(before, entry), (follower,))
        for number, before in enumerate(topic.partitions)
        if number in numbers
    ]
    leader = cluster.services[topic.partitions[0].leader]
    assert await leader.write_partitions(writes) == [True] * len(numbers)


async def completed(service: MetadataService, replicas: tuple[int, ...]) -> list[PartitionImage]:
    await until(
        lambda: all(one.replicas == replicas and not one.removing for one in states(service))
    )
    return [*states(service)]


@pytest.mark.parametrize("count", [1, 120])
def test_any_broker_begins_a_move_and_the_controller_completes_it(count: int) -> None:
    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        await create(services[0], (1, 2), count)
        assert await move(services[2], (3, 2), *range(count)) == [None] * count
        assert {one.replicas for one in states(services[2])} == {(3, 2, 1)}
        await join(cluster, 3, *range(count))
        found = await completed(services[1], (3, 2))
        assert {(one.leader, one.leader_epoch) for one in found} == {(3, 1)}
        assert {frozenset(one.isr) for one in found} == {frozenset({2, 3})}
        await cluster.settle()

    run_cluster(body)


def test_a_completion_does_not_look_at_other_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        await create(services[0], (1, 2), 3)
        await move(services[0], (1, 3), 2)
        await cluster.settle()
        scanned: list[MetadataImage] = []
        writes = elections._changes

        def noted(*arguments: object) -> object:
            scanned.append(arguments[1])  # type: ignore[arg-type]
            return writes(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(elections, "_changes", noted)
        await join(cluster, 3, 2)
        await until(lambda: states(services[0])[2].replicas == (1, 3))
        assert scanned == []

    run_cluster(body)


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.ANSWER_LOST, Fault.REFUSED])
def test_a_completion_whose_write_fails_is_written_again(
    fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_role, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(controlling, "PAUSE_SECONDS", 0.0)

    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        await create(services[0], (2,))
        await move(services[2], (3,))
        # The first broker controls, and its next write is the completion.
        await cluster.settle()
        cluster.stores[1].faults.append(fault)
        await join(cluster, 3, 0)
        (found,) = await completed(services[1], (3,))
        assert (found.leader, found.leader_epoch) == (3, 1)

    run_cluster(body)


def test_new_partitions_get_the_number_of_replicas_after_the_move() -> None:
    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        await create(services[0], (1, 2))
        await move(services[0], (1, 3))
        assert len(states(services[0])[0].replicas) == 3
        await services[0].create_partitions(MorePartitions("t", 2))
        assert len(states(services[0])[1].replicas) == 2

    run_cluster(body)


def test_the_next_controller_completes_a_move() -> None:
    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        await create(services[0], (2,))
        await move(services[2], (3,))
        # The first broker controls, and hears no more before it stops.
        cluster.stores[1].delay_watch()
        before = states(services[1])[0]
        after = joined(before, Replica(3, services[2].broker_epoch))
        write = PartitionWrite(services[1].image.topics["t"].id, 0, before, after, (3,))
        assert await services[1].write_partitions([write]) == [True]
        cluster.stores[1].deliver()
        await cluster.stop_broker(1)
        (found,) = await completed(services[1], (3,))
        assert found.leader == 3

    run_cluster(body)


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.ANSWER_LOST])
@pytest.mark.parametrize("target", [(2, 3), None])
def test_the_outcome_is_known_after_a_lost_answer(
    fault: Fault, target: tuple[int, ...] | None
) -> None:
    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        await create(services[0], (1,))
        if target is None:
            assert await move(services[1], (2, 3)) == [None]
        cluster.stores[2].faults.append(fault)
        assert await move(services[1], target) == [None]
        expected = (1,) if target is None else (2, 3, 1)
        assert states(services[1])[0].replicas == expected
        await cluster.settle()

    run_cluster(body)


def test_two_brokers_that_move_one_partition_do_not_mix() -> None:
    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        await create(services[0], (1,))
        cluster.stores[2].delay_watch()
        assert await move(services[2], (3,)) == [None]
        # The second broker decides on the state before; its compare fails, and it decides again.
        cluster.stores[2].deliver()
        assert await move(services[1], (2,)) == [None]
        state = (await cluster.settle()).topics["t"].partitions[0]
        assert state.replicas == (2, 3, 1)
        assert (set(state.adding), set(state.removing)) == ({2, 3}, {1, 3})

    run_cluster(body)


def test_errors_are_by_partition() -> None:
    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        await create(services[0], (1,), 3)
        moves = [
            ReplicaMove("t", 0, (2,)),
            ReplicaMove("t", 1, (2, 9)),
            ReplicaMove("t", 7, (2,)),
            ReplicaMove("absent", 0, None),
            ReplicaMove("t", 2, None),
            ReplicaMove("t", 1, ()),
            ReplicaMove("t", 1, (2, 2)),
        ]
        found = await PartitionMoves(services[0]).move(moves, may_change_factor=True)
        assert [type(one) for one in found] == [
            type(None),
            InvalidReplicaAssignmentError,
            UnknownTopicOrPartitionError,
            UnknownTopicOrPartitionError,
            NoReassignmentError,
            InvalidReplicaAssignmentError,
            InvalidReplicaAssignmentError,
        ]
        assert [one.replicas for one in states(services[0])] == [(2, 1), (1,), (1,)]

    run_cluster(body)


def test_a_partition_that_is_named_twice_gets_one_change_after_the_other() -> None:
    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        await create(services[0], (1,))
        moves = [ReplicaMove("t", 0, (2,)), ReplicaMove("t", 0, (3,)), ReplicaMove("t", 0, None)]
        found = await PartitionMoves(services[0]).move(moves, may_change_factor=True)
        assert found == [None, None, None]
        (state,) = states(services[0])
        assert (state.replicas, state.adding, state.removing) == ((1,), (), ())

    run_cluster(body)


def test_the_number_of_moves_is_bounded() -> None:
    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        await create(services[0], (1,))
        moves = [ReplicaMove("t", 0, (2,))] * (MOVES_PER_REQUEST_MAX + 1)
        found = await PartitionMoves(services[0]).move(moves, may_change_factor=True)
        assert {type(one) for one in found} == {PolicyViolationError}
        assert states(services[0])[0].replicas == (1,)

    run_cluster(body)


@pytest.mark.parametrize("text", [" true", "TRUE "])
def test_an_unclean_election_is_allowed_with_spaces_around_the_value(text: str) -> None:
    async def body(cluster: Cluster) -> None:
        services = await cluster.three()
        topic = await create(services[0], (1,))
        moves = PartitionMoves(services[0])
        assert not moves._is_unclean_allowed(topic)
        edit = SettingEdit(controlling.UNCLEAN, EditKind.SET, text)
        await services[0].change_settings(SettingsChange("t", (edit,)))
        assert moves._is_unclean_allowed(services[0].image.topics["t"])

    run_cluster(body)
