"""Coordinators follow the roles of their partitions: one shard for each leader epoch."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast
from uuid import UUID

import pytest

from penstock.cluster.changes import PartitionsChanged, TopicPublished, TopicRemoved
from penstock.cluster.image import BrokerState
from penstock.coordinator.groups.shard import GroupShard
from penstock.coordinator.transactions.effects import WriteMarkers
from penstock.coordinator.transactions.shard import TransactionShard
from penstock.core.errors import (
    BrokerUnreachableError,
    CoordinatorLoadingError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    TopicExistsError,
)
from penstock.core.types import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTransaction,
)
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.protocol.messages.list_transactions import ListTransactionsRequest
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.node.peers.cluster_scene import Context, Scene, image_with, topic_image
from tests.node.peers.peers import broker

LIST = ListGroupsRequest(states_filter=(), types_filter=())
TOPIC_ID = UUID(int=77)
COMMIT = OffsetCommitRequest(
    group_id="g",
    generation_id_or_member_epoch=-1,
    member_id="",
    topics=(
        OffsetCommitRequestTopic(
            name="orders",
            partitions=(
                OffsetCommitRequestPartition(
                    partition_index=0, committed_offset=5, committed_metadata=""
                ),
            ),
        ),
    ),
)


def run(act: Callable[[Scene], Awaitable[None]], *, has_peers: bool = True) -> None:
    async def begin() -> None:
        async with asyncio.TaskGroup() as tasks:
            scene = Scene(tasks, has_peers=has_peers)
            scene.coordinators.start()
            await act(scene)
            scene.coordinators.stop()

    asyncio.run(begin())


def epoch_of(scene: Scene) -> int:
    runtime = scene.coordinators.runtime("transaction")
    assert runtime is not None
    driver = runtime.driver(0)
    assert driver is not None
    assert isinstance(driver.shard, TransactionShard)
    return driver.shard._coordinator_epoch


def test_a_partition_that_another_broker_leads_has_no_shard() -> None:
    async def act(scene: Scene) -> None:
        scene.role(OFFSETS_TOPIC, epoch=1, leads=False)
        (answer,) = scene.ask(LIST)
        assert isinstance(answer, NotCoordinatorError)

    run(act)


def test_a_waiting_request_is_refused_when_the_role_ends() -> None:
    async def act(scene: Scene) -> None:
        answers = scene.ask(COMMIT)
        assert answers == [], "it waits for the sync"
        scene.role(OFFSETS_TOPIC, epoch=1, leads=False)
        assert [type(one) for one in answers] == [NotCoordinatorError]
        await asyncio.sleep(0)
        runtime = scene.coordinators.runtime("group")
        assert runtime is not None
        assert 0 not in runtime, "closed without a request"

    run(act)


def test_a_request_in_the_same_turn_does_not_reach_the_shard_of_the_role_that_is_over() -> None:
    async def act(scene: Scene) -> None:
        assert isinstance(scene.ask(LIST)[0], ListGroupsResponse)
        scene.role(OFFSETS_TOPIC, epoch=1, leads=False)
        assert isinstance(scene.ask(LIST)[0], NotCoordinatorError)

    run(act)


def test_the_next_epoch_has_a_shard_of_its_own_that_reads_the_log() -> None:
    async def act(scene: Scene) -> None:
        answers = scene.ask(COMMIT)
        scene.node.sync()
        assert isinstance(answers[0], OffsetCommitResponse)
        runtime = scene.coordinators.runtime("group")
        assert runtime is not None
        first = runtime.driver(0)
        scene.role(OFFSETS_TOPIC, epoch=1, leads=False)
        scene.role(OFFSETS_TOPIC, epoch=2, leads=True)
        await asyncio.sleep(0)
        second = runtime.driver(0)
        assert second is not None
        assert second is not first
        for _ in range(10):
            await asyncio.sleep(0)
        (listed,) = scene.ask(LIST)
        assert [group.group_id for group in listed.groups] == ["g"]

    run(act)


def test_the_coordinator_epoch_is_the_leader_epoch() -> None:
    async def act(scene: Scene) -> None:
        scene.role(TRANSACTIONS_TOPIC, epoch=7, leads=True)
        await asyncio.sleep(0)
        assert epoch_of(scene) == 7, "opened without a request: transactions must end"
        scene.role(TRANSACTIONS_TOPIC, epoch=8, leads=True)
        await asyncio.sleep(0)
        assert epoch_of(scene) == 8

    run(act)


def test_a_broker_that_is_alone_keeps_coordinator_epoch_0() -> None:
    async def act(scene: Scene) -> None:
        scene.role(TRANSACTIONS_TOPIC, epoch=7, leads=True)
        await asyncio.sleep(0)
        assert epoch_of(scene) == 0

    run(act, has_peers=False)


def test_a_partition_that_is_served_no_more_has_no_shard() -> None:
    async def act(scene: Scene) -> None:
        answers = scene.ask(COMMIT)
        scene.node.replicas.drop(TopicPartition(OFFSETS_TOPIC, 0))
        await asyncio.sleep(0)
        assert len(answers) == 1
        assert isinstance(scene.ask(LIST)[0], NotCoordinatorError)

    run(act)


def test_an_isolated_broker_answers_no_request() -> None:
    async def act(scene: Scene) -> None:
        scene.peers.isolated = True
        (answer,) = scene.ask(LIST)
        assert isinstance(answer, NotCoordinatorError)
        assert "etcd" in str(answer)
        scene.peers.isolated = False
        assert isinstance(scene.ask(LIST)[0], ListGroupsResponse)

    run(act)


def test_too_few_replicas_in_sync_make_the_coordinator_unavailable() -> None:
    async def act(scene: Scene) -> None:
        partition = scene.role(OFFSETS_TOPIC, epoch=1, leads=True, isr=(1,))
        await asyncio.sleep(0)
        (answer,) = scene.ask(COMMIT)
        assert isinstance(answer, CoordinatorNotAvailableError)
        assert partition.log.end_offset == 0, "nothing is appended that could not be committed"

    run(act)


def test_a_commit_that_followers_do_not_confirm_is_answered_after_five_seconds() -> None:
    """As in Kafka (offsets.commit.timeout.ms); the records stay, and may be committed later."""

    async def act(scene: Scene) -> None:
        partition = scene.role(OFFSETS_TOPIC, epoch=1, leads=True, isr=(1, 2))
        await asyncio.sleep(0)
        answers = scene.ask(COMMIT)
        scene.node.timer.advance(4.9)
        assert answers == []
        scene.node.timer.advance(0.2)
        assert [type(one) for one in answers] == [CoordinatorNotAvailableError]
        assert partition.log.end_offset > 0

    run(act)


# --- Topics ---


def revision_of(scene: Scene) -> int:
    runtime = scene.coordinators.runtime("group")
    assert runtime is not None
    (driver,) = runtime
    assert isinstance(driver.shard, GroupShard)
    return driver.shard.state.topics.revision


def test_shards_hear_of_created_topics_and_not_of_in_sync_replicas() -> None:
    async def act(scene: Scene) -> None:
        before = scene.metadata.image
        orders = topic_image("orders", TOPIC_ID)
        topics = before.topics.changed({"orders": orders})
        scene.metadata.publish(
            replace(before, revision=2, topics=topics), TopicPublished("orders", TOPIC_ID, 1, 2)
        )
        assert revision_of(scene) == 2
        image = scene.metadata.image
        moved = orders.partitions[0]._replace(isr=(1,))
        changed = replace(orders, partitions=(moved,))
        scene.metadata.publish(
            replace(image, revision=3, topics=topics.changed({"orders": changed})),
            PartitionsChanged(TOPIC_ID, {0: moved}),
        )
        assert revision_of(scene) == 2

    run(act)


def test_offsets_of_a_deleted_topic_are_deleted() -> None:
    async def act(scene: Scene) -> None:
        before = scene.metadata.image
        orders = topic_image("orders", TOPIC_ID)
        scene.metadata.publish(
            replace(before, revision=2, topics=before.topics.changed({"orders": orders})),
            TopicPublished("orders", TOPIC_ID, 1, 2),
        )
        scene.ask(COMMIT)
        scene.node.sync()
        end_offset = scene.groups.log.end_offset
        scene.metadata.publish(replace(before, revision=3), TopicRemoved("orders"))
        assert scene.groups.log.end_offset > end_offset, "tombstones"

    run(act)


def test_a_deleted_internal_topic_closes_its_shards() -> None:
    async def act(scene: Scene) -> None:
        assert isinstance(scene.ask(LIST)[0], ListGroupsResponse)
        others = topic_image(TRANSACTIONS_TOPIC, scene.transactions.topic_id)
        scene.metadata.publish(image_with(others, revision=2), TopicRemoved(OFFSETS_TOPIC))
        runtime = scene.coordinators.runtime("group")
        assert runtime is not None
        assert 0 not in runtime
        assert isinstance(scene.ask(LIST)[0], NotCoordinatorError), "its log is still here"

    run(act)


# --- Creation of internal topics ---


@pytest.mark.parametrize(
    ("count", "factor", "min_isr"), [(1, 1, None), (2, 2, None), (3, 3, "2"), (5, 3, "2")]
)
def test_internal_topics_have_as_many_replicas_as_brokers_up_to_three(
    count: int, factor: int, min_isr: str | None
) -> None:
    """A broker that is starting counts: it is one of the cluster."""

    async def act(scene: Scene) -> None:
        brokers = {one: broker(one) for one in range(1, count + 1)}
        brokers[count] = replace(broker(count), state=BrokerState.STARTING)
        scene.metadata.image = replace(image_with(), brokers=MappingProxyType(brokers))
        scene.topics.outcome = TopicExistsError("another broker was faster")
        assert await scene.coordinators.ensure_topic("group") is None
        (created,) = scene.topics.created
        assert created.replication_factor == factor
        assert created.settings.get("min.insync.replicas") == min_isr
        assert created.settings["cleanup.policy"] == "compact"

    run(act)


def test_a_broker_that_is_alone_creates_them_as_before() -> None:
    async def act(scene: Scene) -> None:
        scene.metadata.image = image_with()
        assert await scene.coordinators.ensure_topic("transaction") is None
        (created,) = scene.topics.created
        assert created.replication_factor == -1
        assert "min.insync.replicas" not in created.settings

    run(act, has_peers=False)


# --- Questions ---

QUESTION = AddPartitionsToTxnTransaction(
    transactional_id="t", producer_id=1, producer_epoch=0, verify_only=True, topics=()
)


def lead_elsewhere(scene: Scene, leader: int) -> None:
    topic = topic_image(TRANSACTIONS_TOPIC, scene.transactions.topic_id, leader=leader)
    scene.metadata.image = image_with(topic)


def test_a_question_goes_to_the_broker_that_coordinates_the_transaction() -> None:
    async def act(scene: Scene) -> None:
        lead_elsewhere(scene, 3)
        answer = await scene.coordinators.verify(QUESTION, cast("Any", Context()))
        assert answer is scene.peers.answer
        assert scene.peers.asked == [(3, QUESTION)]

    run(act)


def test_a_coordinator_that_does_not_answer_lets_the_client_retry() -> None:
    async def act(scene: Scene) -> None:
        lead_elsewhere(scene, 3)
        scene.peers.answer = BrokerUnreachableError("away")
        answer = await scene.coordinators.verify(QUESTION, cast("Any", Context()))
        assert isinstance(answer, CoordinatorLoadingError)
        assert "away" in str(answer)

    run(act)


def test_a_question_about_an_own_transaction_stays_here() -> None:
    async def act(scene: Scene) -> None:
        answer = await scene.coordinators.verify(QUESTION, cast("Any", Context()))
        assert isinstance(answer, AddPartitionsToTxnResponse)
        assert scene.peers.asked == []

    run(act)


def test_without_a_leader_the_client_retries() -> None:
    async def act(scene: Scene) -> None:
        scene.role(TRANSACTIONS_TOPIC, epoch=3, leads=False)
        lead_elsewhere(scene, -1)
        answer = await scene.coordinators.verify(QUESTION, cast("Any", Context()))
        assert isinstance(answer, NotCoordinatorError)

    run(act)


def test_unfinished_ends_are_forgotten_with_their_shard() -> None:
    async def act(scene: Scene) -> None:
        filters = ListTransactionsRequest(state_filters=(), producer_id_filters=())
        scene.ask(filters, "transaction", 2)
        effects = scene.coordinators._effects
        assert effects is not None
        effects._unfinished[WriteMarkers("t", 1, 0, 0, True, (), 2)] = cast("Any", None)
        scene.role(TRANSACTIONS_TOPIC, epoch=3, leads=False)
        await asyncio.sleep(0)
        assert effects._unfinished == {}

    run(act)
