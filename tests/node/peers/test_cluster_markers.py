"""Markers of transactions in partitions of other brokers: to the leader of now, until committed."""

import asyncio
from typing import Any, cast

import pytest

from penstock.cluster.image import MetadataImage
from penstock.coordinator.transactions.effects import WriteMarkers
from penstock.core.errors import (
    BrokerAnswerError,
    BrokerUnreachableError,
    FencedTransactionCoordinatorError,
    NotLeaderError,
    PenstockError,
)
from penstock.core.types import TopicPartition
from penstock.node.coordination.other_brokers import EndOf
from penstock.node.coordination.transaction_effects import LATE_ATTEMPT, TransactionEffects
from penstock.node.peers.peer_calls import Codes
from penstock.protocol.error_codes import ErrorCode
from penstock.replication.manager import TransactionEnd
from penstock.replication.partition import PartitionState
from tests.node.peers.cluster_scene import FakePeers, image_with, topic_image
from tests.replication.replicas import Node
from tests.storage.logs import Clock

HERE = TopicPartition("here", 0)
ON_2 = TopicPartition("second", 0)
ON_3 = TopicPartition("third", 0)
PRODUCER_ID = 7


class Stage:
    """Effects of broker 1, which leads the topic `here`; brokers 2 and 3 lead one topic each."""

    def __init__(self) -> None:
        self.node = Node()
        self.here = self.node.add(HERE.topic)
        self.peers = FakePeers()
        self.peers.codes = self.codes
        self.refused: dict[TopicPartition, ErrorCode] = {}
        self.image = self.image_of(second=2, third=3)
        self.noted: list[TopicPartition] = []
        self.effects = TransactionEffects(
            self.node.replicas,
            cast("Any", None),
            Clock(),
            lambda name, *_, **__: self.noted.append(name),
            lambda: self.image,
            cast("Any", self.peers),
        )

    def image_of(self, **leaders: int) -> MetadataImage:
        topics = [topic_image(name, self.here.topic_id, leader) for name, leader in leaders.items()]
        return image_with(topic_image(HERE.topic, self.here.topic_id), *topics)

    def codes(self, _: int, end: EndOf) -> Codes | PenstockError:
        return {name: self.refused.get(name, ErrorCode.NONE) for name in end.names}

    def perform(self, *names: TopicPartition, coordinator_epoch: int = 4) -> object:
        effect = WriteMarkers("t", PRODUCER_ID, 1, coordinator_epoch, True, names, 2)

        async def run() -> object:
            task = asyncio.get_running_loop().create_task(self.effects.perform(effect))
            await asyncio.sleep(0)
            self.node.sync()
            return await task

        return asyncio.run(run())

    @property
    def sent(self) -> list[tuple[int, tuple[TopicPartition, ...]]]:
        return [(leader, end.names) for leader, end in self.peers.markers]


def test_each_leader_gets_the_markers_of_its_partitions() -> None:
    stage = Stage()
    other_on_2 = TopicPartition("more", 0)
    stage.image = stage.image_of(second=2, third=3, more=2)
    assert stage.perform(HERE, ON_2, ON_3, other_on_2) is None
    assert stage.sent == [(2, (ON_2, other_on_2)), (3, (ON_3,))]
    _, end = stage.peers.markers[0]
    assert end[:5] == (PRODUCER_ID, 1, 4, True, 2)
    assert stage.noted == [HERE], "the leaders notify their own coordinators"
    assert stage.here.log.end_offset == 1


def test_only_partitions_without_a_marker_are_tried_again() -> None:
    stage = Stage()
    stage.refused = {ON_3: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    with pytest.raises(BrokerAnswerError):
        stage.perform(HERE, ON_2, ON_3)
    stage.peers.markers.clear()
    stage.image = stage.image_of(second=2, third=2)
    stage.refused = {}
    assert stage.perform(HERE, ON_2, ON_3) is None
    assert stage.sent == [(2, (ON_3,))], "to the leader of now"
    assert stage.here.log.end_offset == 1, "once"


def test_a_leader_that_does_not_answer_is_tried_again() -> None:
    stage = Stage()
    stage.peers.codes = lambda *_: BrokerUnreachableError("away")
    with pytest.raises(BrokerUnreachableError):
        stage.perform(ON_2)
    stage.peers.codes = stage.codes
    assert stage.perform(ON_2) is None


def test_a_leader_that_does_not_know_the_partition_yet_is_tried_again() -> None:
    stage = Stage()
    stage.refused = {ON_2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    with pytest.raises(BrokerAnswerError):
        stage.perform(ON_2)
    stage.image = stage.image_of(third=3)
    assert stage.perform(ON_2) is None, "a deleted partition needs no marker"


def test_a_partition_that_is_deleted_while_its_leader_is_asked_needs_no_marker() -> None:
    stage = Stage()

    def deleted(_: int, end: EndOf) -> Codes:
        stage.image = stage.image_of(third=3)
        return dict.fromkeys(end.names, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    stage.peers.codes = deleted
    assert stage.perform(ON_2) is None


def test_a_later_epoch_has_ended_the_transaction() -> None:
    stage = Stage()
    stage.refused = {ON_2: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert stage.perform(ON_2) is None


def test_an_answer_without_the_partition_is_not_a_marker() -> None:
    stage = Stage()
    stage.peers.codes = lambda *_: {}
    with pytest.raises(BrokerAnswerError):
        stage.perform(ON_2)


def test_without_a_leader_the_marker_waits() -> None:
    stage = Stage()
    stage.image = stage.image_of(second=-1)
    with pytest.raises(NotLeaderError):
        stage.perform(ON_2)
    assert stage.sent == []


def test_a_replica_here_that_follows_is_written_by_its_leader() -> None:
    stage = Stage()
    role = PartitionState(HERE, leader_epoch=1, is_leader=False, durable_offset=0, leader_id=2)
    stage.node.replicas.change_role(stage.here, role)
    stage.image = image_with(topic_image(HERE.topic, stage.here.topic_id, 2))
    assert stage.perform(HERE) is None
    assert stage.sent == [(2, (HERE,))]
    assert stage.here.log.end_offset == 0


def test_a_deposed_coordinator_is_fenced_by_the_epoch_of_the_next_one() -> None:
    stage = Stage()
    newer = TransactionEnd(PRODUCER_ID, 0, coordinator_epoch=5, commits=False)
    stage.node.replicas.append_marker(stage.here, newer, 0)
    with pytest.raises(FencedTransactionCoordinatorError):
        stage.perform(HERE, coordinator_epoch=4)
    assert stage.here.log.end_offset == 1
    assert stage.perform(HERE, coordinator_epoch=6) is None


def test_a_moved_leader_is_no_warning_and_a_marker_that_is_late_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    stage.refused = {ON_2: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    for attempt in range(1, LATE_ATTEMPT + 3):
        with pytest.raises(BrokerAnswerError):
            stage.perform(ON_2)
        assert len(caplog.records) == (attempt >= LATE_ATTEMPT)
