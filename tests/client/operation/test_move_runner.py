"""Moves are begun a few at a time; the progress is reported, and errors end the run."""

from collections.abc import Sequence

import pytest

from penstock.client.cluster import Cluster
from penstock.client.operation.move_runner import MoveProgress, MoveRunner
from penstock.client.operation.replica_moves import ReplicaMove
from penstock.client.transport.addresses import Address
from penstock.core.errors import BrokerAnswerError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    alter_partition_reassignments,
    describe_log_dirs,
    elect_leaders,
    list_partition_reassignments,
)
from tests.client.fake_broker import FakeCluster

LOOKS = 2
"""Looks until a move is done."""


class Brokers:
    """Brokers that move replicas; each look copies half of a replica's 100 bytes."""

    def __init__(self) -> None:
        self.fake = FakeCluster((1, 2))
        self.moving: dict[int, int] = {}
        self.most = 0
        self.codes: dict[int, ErrorCode] = {}
        self.fake.handlers = {
            alter_partition_reassignments.AlterPartitionReassignmentsRequest: self._alter,
            list_partition_reassignments.ListPartitionReassignmentsRequest: self._list,
            describe_log_dirs.DescribeLogDirsRequest: self._sizes,
            elect_leaders.ElectLeadersRequest: self._elect,
        }

    def run(self, moves: Sequence[ReplicaMove], at_once: int = 2) -> list[MoveProgress]:
        reports: list[MoveProgress] = []
        with Cluster([Address("fake", 9001)], self.fake.connect) as cluster:
            runner = MoveRunner(
                cluster, at_once=at_once, report=reports.append, sleep=lambda _: None
            )
            runner.run(moves)
        return reports

    def _alter(self, _broker_id: int, request: object, _code: ErrorCode) -> object:
        messages = alter_partition_reassignments
        assert isinstance(request, messages.AlterPartitionReassignmentsRequest)
        (topic,) = request.topics
        results = []
        for one in topic.partitions:
            code = self.codes.get(one.partition_index, ErrorCode.NONE)
            if not code:
                self.moving[one.partition_index] = LOOKS
            results.append(
                messages.ReassignablePartitionResponse(
                    partition_index=one.partition_index, error_code=code
                )
            )
        self.most = max(self.most, len(self.moving))
        answer = messages.ReassignableTopicResponse(name=topic.name, partitions=tuple(results))
        return messages.AlterPartitionReassignmentsResponse(responses=(answer,))

    def _list(self, _broker_id: int, _request: object, _code: ErrorCode) -> object:
        messages = list_partition_reassignments
        self.moving = {at: left - 1 for at, left in self.moving.items() if left > 0}
        parts = tuple(
            messages.OngoingPartitionReassignment(partition_index=one) for one in self.moving
        )
        topic = messages.OngoingTopicReassignment(name="t", partitions=parts)
        return messages.ListPartitionReassignmentsResponse(topics=(topic,))

    def _sizes(self, _broker_id: int, _request: object, _code: ErrorCode) -> object:
        parts = tuple(
            describe_log_dirs.DescribeLogDirsPartition(
                partition_index=at,
                partition_size=50 * (LOOKS - left),
                offset_lag=0,
                is_future_key=False,
            )
            for at, left in self.moving.items()
        )
        topic = describe_log_dirs.DescribeLogDirsTopic(name="t", partitions=parts)
        directory = describe_log_dirs.DescribeLogDirsResult(log_dir="d", topics=(topic,))
        return describe_log_dirs.DescribeLogDirsResponse(results=(directory,))

    def _elect(self, _broker_id: int, request: object, _code: ErrorCode) -> object:
        assert isinstance(request, elect_leaders.ElectLeadersRequest)
        results = tuple(
            elect_leaders.PartitionResult(
                partition_id=one, error_code=self.codes.get(one, ErrorCode.NONE)
            )
            for topic in request.topic_partitions or ()
            for one in topic.partitions
        )
        topic = elect_leaders.ReplicaElectionResult(topic="t", partition_result=results)
        return elect_leaders.ElectLeadersResponse(replica_election_results=(topic,))


def moves(count: int) -> list[ReplicaMove]:
    return [ReplicaMove(TopicPartition("t", one), (1,), (2,), 100) for one in range(count)]


def test_a_few_at_a_time_with_progress_in_bytes() -> None:
    brokers = Brokers()
    reports = brokers.run(moves(5))
    assert brokers.most == 2
    assert reports[-1] == MoveProgress(5, 5, 500, 500)
    copied = [one.copied_bytes for one in reports]
    assert copied == sorted(copied)
    assert 100 in copied
    assert {one.total_bytes for one in reports} == {500}


def test_a_topic_that_was_deleted_counts_as_moved() -> None:
    brokers = Brokers()
    brokers.codes[1] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert brokers.run(moves(3), at_once=1)[-1].moved == 3


def test_an_error_ends_the_run() -> None:
    brokers = Brokers()
    brokers.codes[1] = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    with pytest.raises(BrokerAnswerError, match="t-1"):
        brokers.run(moves(3), at_once=1)
    # The first move ended, the third never began.
    assert 2 not in brokers.moving


def test_nothing_to_do() -> None:
    assert Brokers().run([]) == [MoveProgress(0, 0, 0, 0)]


def test_elections_of_first_replicas() -> None:
    brokers = Brokers()
    brokers.codes = {
        1: ErrorCode.ELECTION_NOT_NEEDED,
        2: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        3: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    with Cluster([Address("fake", 9001)], brokers.fake.connect) as cluster:
        runner = MoveRunner(cluster, at_once=1)
        assert runner.let_first_lead(TopicPartition("t", one) for one in range(5)) == 2
        brokers.codes[4] = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        with pytest.raises(BrokerAnswerError, match="t-4"):
            runner.let_first_lead(TopicPartition("t", one) for one in range(5))
