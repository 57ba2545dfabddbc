"""`Arrangement`: the resources that exist before the matrix runs, and that stay as they are.

The super user creates topics, commits offsets, joins a group and opens a transaction. It then
keeps its member alive, and creates the topic again that a cell was allowed to delete.
"""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from penstock.protocol.codec import Message
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    add_partitions_to_txn,
    consumer_group_heartbeat,
    create_topics,
    init_producer_id,
    metadata,
    offset_commit,
)
from penstock.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from penstock.protocol.messages.create_topics import CreateTopicsResponse
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.protocol.messages.init_producer_id import InitProducerIdResponse
from penstock.protocol.messages.metadata import MetadataResponse
from penstock.protocol.messages.offset_commit import OffsetCommitResponse
from penstock.protocol.messages.produce import ProduceResponse
from tests.access_matrix.names import (
    CONSUMER_GROUP,
    DOOMED_BY_NAME,
    DOOMED_TOPIC,
    FRESH_TRANSACTION,
    GROUP,
    OTHER_GROUP,
    OTHER_TOPIC,
    OTHER_TRANSACTION,
    TOPIC,
    TRANSACTION,
    World,
)
from tests.access_matrix.record_requests import IDEMPOTENT_PRODUCER_ID, produce_request
from tests.access_matrix.targets import Target

SECONDS_MAX: Final = 60.0
PAUSE_SECONDS: Final = 0.01
BEAT_SECONDS: Final = 5.0
"""A member is removed after 45 seconds without a heartbeat."""
TRANSACTION_TIMEOUT_MS: Final = 900_000
"""Kafka's maximum. The transaction stays open for the whole run."""
MEMBER: Final = "matrix-member"
Answer = TypeVar("Answer")


class Arrangement:
    """The super user's connection and the state that it keeps."""

    def __init__(self, target: Target) -> None:
        self.world = World()
        self._connection = target.connect(None)
        self._member_epoch = 0
        self._last_beat = 0.0

    def build(self) -> None:
        """Create everything."""
        for name in (TOPIC, OTHER_TOPIC, DOOMED_TOPIC, DOOMED_BY_NAME):
            self._create_topic(name)
        for name in (TOPIC, OTHER_TOPIC):
            self._produce(name)
        for group in (GROUP, OTHER_GROUP):
            self._commit(group)
        for transaction in (FRESH_TRANSACTION, OTHER_TRANSACTION):
            self._initialize(transaction)
        self._add_partitions(*self._initialize(TRANSACTION))
        self._until(self._joins)

    def keep_alive(self) -> None:
        """Send the member's heartbeat if it is time."""
        if time.monotonic() - self._last_beat > BEAT_SECONDS:
            answer = self._beat()
            assert answer.error_code == ErrorCode.NONE, answer

    def recreate(self, name: str) -> None:
        """Create the topic again that a cell has deleted."""
        self._create_topic(name)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def ask(self, message: Message, version: int, answer_type: type[Answer]) -> Answer:
        """Send a request as the super user."""
        (answer,) = self._connection.ask([(message, version)])
        assert isinstance(answer, answer_type)
        return answer

    def _until(self, condition: Callable[[], bool]) -> None:
        """Wait: coordinators start at the first request, and Kafka applies changes later."""
        deadline = time.monotonic() + SECONDS_MAX
        while not condition():
            assert time.monotonic() < deadline, condition
            time.sleep(PAUSE_SECONDS)

    # --- Topics ---

    def _create_topic(self, name: str) -> None:
        topic = create_topics.CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
        )
        request = create_topics.CreateTopicsRequest(topics=(topic,), timeout_ms=10_000)
        (created,) = self.ask(request, 7, CreateTopicsResponse).topics
        assert created.error_code == ErrorCode.NONE, created
        assert created.topic_id is not None
        self.world.topic_ids[name] = created.topic_id
        self._until(lambda: self._is_served(name))

    def _is_served(self, name: str) -> bool:
        request = metadata.MetadataRequest(
            topics=(metadata.MetadataRequestTopic(name=name),), allow_auto_topic_creation=False
        )
        (topic,) = self.ask(request, 13, MetadataResponse).topics
        return topic.topic_id == self.world.topic_ids[name] and not any(
            partition.error_code for partition in topic.partitions
        )

    def _produce(self, name: str) -> None:
        """Write a record with a producer id, so that the partition has an active producer."""
        request = produce_request([self.world.topic_ids[name]], producer_id=IDEMPOTENT_PRODUCER_ID)
        (topic,) = self.ask(request, 13, ProduceResponse).responses
        assert topic.partition_responses[0].error_code == ErrorCode.NONE, topic

    # --- Groups ---

    def _find(self, key: str, key_type: int) -> None:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=(key,))

        def is_found() -> bool:
            (found,) = self.ask(request, 6, FindCoordinatorResponse).coordinators
            return found.error_code == ErrorCode.NONE

        self._until(is_found)

    def _commit(self, group: str) -> None:
        self._find(group, 0)
        partition = offset_commit.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=1
        )
        topics = tuple(
            offset_commit.OffsetCommitRequestTopic(name=name, partitions=(partition,))
            for name in (TOPIC, OTHER_TOPIC)
        )
        request = offset_commit.OffsetCommitRequest(group_id=group, member_id="", topics=topics)

        def is_committed() -> bool:
            answer = self.ask(request, 9, OffsetCommitResponse)
            return not any(one.partitions[0].error_code for one in answer.topics)

        self._until(is_committed)

    def _joins(self) -> bool:
        self._find(CONSUMER_GROUP, 0)
        answer = self._beat()
        return answer.error_code == ErrorCode.NONE and bool(
            answer.assignment and answer.assignment.topic_partitions
        )

    def _beat(self) -> ConsumerGroupHeartbeatResponse:
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=CONSUMER_GROUP,
            member_id=MEMBER,
            member_epoch=self._member_epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=(TOPIC,),
            topic_partitions=() if self._member_epoch == 0 else None,
        )
        self._last_beat = time.monotonic()
        answer = self.ask(request, 1, ConsumerGroupHeartbeatResponse)
        if answer.error_code == ErrorCode.NONE:
            self._member_epoch = answer.member_epoch
        return answer

    # --- Transactions ---

    def _initialize(self, transaction: str) -> tuple[int, int]:
        self._find(transaction, 1)
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=transaction, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        found: list[tuple[int, int]] = []

        def is_initialized() -> bool:
            answer = self.ask(request, 5, InitProducerIdResponse)
            found.append((answer.producer_id, answer.producer_epoch))
            return answer.error_code == ErrorCode.NONE

        self._until(is_initialized)
        return found[-1]

    def _add_partitions(self, producer_id: int, epoch: int) -> None:
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTION,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=tuple(
                add_partitions_to_txn.AddPartitionsToTxnTopic(name=name, partitions=(0,))
                for name in (TOPIC, OTHER_TOPIC)
            ),
        )

        def is_added() -> bool:
            answer = self.ask(request, 3, AddPartitionsToTxnResponse)
            return not any(
                partition.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for partition in topic.results_by_partition
            )

        self._until(is_added)
