"""The state of a cluster from answers of brokers that do not answer all, or not at all."""

import pytest

from penstock.client.cluster import Cluster
from penstock.client.operation.cluster_state import BrokerMode, ClusterState
from penstock.client.operation.state_reading import (
    DRAIN_SETTING,
    MIN_IN_SYNC_SETTING,
    TOPICS_PER_REQUEST,
    read_state,
)
from penstock.client.transport.addresses import Address
from penstock.core.errors import BrokerAnswerError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    describe_configs,
    describe_log_dirs,
    list_partition_reassignments,
)
from tests.client.fake_broker import FakeCluster

TOPIC_RESOURCE = 2
TOPIC = "orders"


class Answers:
    """Answers of three brokers: settings, sizes and reassignments."""

    def __init__(self) -> None:
        self.fake = FakeCluster((1, 2, 3))
        self.fake.replication_factor = 3
        self.fake.add_topic(TOPIC, 3)
        self.drained: set[int] = set()
        self.size_code = ErrorCode.NONE
        self.topic_code = ErrorCode.NONE
        self.asked_topics: list[int] = []
        self.fake.handlers = {
            describe_configs.DescribeConfigsRequest: self._settings,
            describe_log_dirs.DescribeLogDirsRequest: self._sizes,
            list_partition_reassignments.ListPartitionReassignmentsRequest: self._moving,
        }

    def read(self) -> ClusterState:
        with Cluster([Address("fake", 9001)], self.fake.connect) as cluster:
            return read_state(cluster)

    def _settings(self, broker_id: int, request: object, _code: ErrorCode) -> object:
        assert isinstance(request, describe_configs.DescribeConfigsRequest)
        is_topic = request.resources[0].resource_type == TOPIC_RESOURCE
        if is_topic:
            self.asked_topics.append(len(request.resources))
            values = {MIN_IN_SYNC_SETTING: "2"}
        else:
            # As a client may write it.
            values = {DRAIN_SETTING: " True"} if broker_id in self.drained else {}
        code = self.topic_code if is_topic else ErrorCode.NONE
        return describe_configs.DescribeConfigsResponse(
            results=tuple(
                describe_configs.DescribeConfigsResult(
                    error_code=code,
                    error_message=None,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=tuple(
                        describe_configs.DescribeConfigsResourceResult(
                            name=name, value=value, read_only=False, is_sensitive=False, synonyms=()
                        )
                        for name, value in values.items()
                    ),
                )
                for resource in request.resources
            )
        )

    def _sizes(self, broker_id: int, _request: object, _code: ErrorCode) -> object:
        part = describe_log_dirs.DescribeLogDirsPartition(
            partition_index=0, partition_size=100 * broker_id, offset_lag=0, is_future_key=False
        )
        topic = describe_log_dirs.DescribeLogDirsTopic(name=TOPIC, partitions=(part,))
        directory = describe_log_dirs.DescribeLogDirsResult(
            log_dir="d", topics=(topic,), total_bytes=1_000, usable_bytes=600
        )
        return describe_log_dirs.DescribeLogDirsResponse(
            error_code=self.size_code, results=() if self.size_code else (directory,)
        )

    def _moving(self, _broker_id: int, _request: object, _code: ErrorCode) -> object:
        moving = list_partition_reassignments.OngoingPartitionReassignment(
            partition_index=1, replicas=(2, 1, 3), adding_replicas=(3, 9), removing_replicas=(1,)
        )
        topic = list_partition_reassignments.OngoingTopicReassignment(
            name=TOPIC, partitions=(moving,)
        )
        return list_partition_reassignments.ListPartitionReassignmentsResponse(topics=(topic,))


def test_all_parts_of_a_state() -> None:
    answers = Answers()
    answers.drained = {2}
    state = answers.read()
    assert (state.cluster_id, state.controller_id) == ("fake-cluster", 1)
    assert [one.mode for one in state.brokers.values()] == [
        BrokerMode.RUNNING,
        BrokerMode.DRAINED,
        BrokerMode.RUNNING,
    ]
    assert (state.brokers[1].disk_bytes, state.brokers[1].free_bytes) == (1_000, 600)
    first, second, _ = state.partitions
    assert first.min_in_sync == 2
    # The largest replica.
    assert first.size_bytes == 300
    assert state.replica_bytes[2] == {TopicPartition(TOPIC, 0): 200}
    # Broker 9 is not a replica any more: the move ended between two answers.
    assert (second.adding, second.removing) == ((3,), (1,))


def test_a_broker_that_is_registered_and_does_not_answer_is_down() -> None:
    answers = Answers()
    answers.fake.ports_down = {9003}
    state = answers.read()
    assert state.in_mode(BrokerMode.DOWN) == [3]
    assert state.brokers[3].address == "fake:9003"
    assert state.brokers[3].disk_bytes is None
    assert 3 not in state.replica_bytes


def test_sizes_that_a_client_may_not_read_are_unknown() -> None:
    answers = Answers()
    answers.size_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    state = answers.read()
    assert state.in_mode(BrokerMode.RUNNING) == [1, 2, 3]
    assert {one.disk_bytes for one in state.brokers.values()} == {None}
    assert {one.size_bytes for one in state.partitions} == {0}


def test_settings_that_a_client_may_not_read_are_an_error() -> None:
    answers = Answers()
    answers.topic_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    # Without min.insync.replicas, a plan could stop the records of a topic.
    with pytest.raises(BrokerAnswerError, match="TOPIC_AUTHORIZATION_FAILED"):
        answers.read()
    answers.topic_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {one.min_in_sync for one in answers.read().partitions} == {1}


def test_a_request_for_settings_names_a_bounded_number_of_topics() -> None:
    answers = Answers()
    for number in range(TOPICS_PER_REQUEST):
        answers.fake.add_topic(f"t{number}")
    answers.read()
    assert answers.asked_topics == [TOPICS_PER_REQUEST, 1]
