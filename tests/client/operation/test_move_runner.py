"""Moves are begun a few at a time; the progress is reported, and errors end the run."""

from collections.abc import Sequence

import pytest

from penstock.client.cluster import Cluster
from penstock.client.operation.move_runner import MoveProgress, MoveRunner
from penstock.client.operation.replica_moves import ReplicaMove
from penstock.client.operation.stalled_moves import (
    STALL_SECONDS,
    AddedReplica,
    MovingPartition,
    stalled,
)
from penstock.client.transport.addresses import Address
from penstock.core.errors import BrokerAnswerError, RequestTimedOutError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    alter_partition_reassignments,
    describe_log_dirs,
    elect_leaders,
    list_partition_reassignments,
    metadata,
)
from tests.client.conftest import StepClock
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


# --- Moves without progress ---


class StuckBrokers(Brokers):
    """Partition 0 gets replicas on 2 and 3, and never ends; the one on 2 is in sync.

    Producers write, so the replica on 2 grows.
    """

    def __init__(self, ids: tuple[int, ...] = (1, 2, 3)) -> None:
        super().__init__()
        self.fake.broker_ids = ids
        self.clock = StepClock()
        self.in_sync: tuple[int, ...] = (1, 2)
        self.leader = 1
        self.grows_until = 0.0
        self.fake.handlers |= {
            list_partition_reassignments.ListPartitionReassignmentsRequest: self._list_all,
            metadata.MetadataRequest: self._describe,
        }

    def wait(self, at_once: int = 2, stall_seconds: float = STALL_SECONDS) -> None:
        with Cluster([Address("fake", 9001)], self.fake.connect, clock=self.clock) as cluster:
            runner = MoveRunner(
                cluster, at_once=at_once, sleep=self.clock.sleep, stall_seconds=stall_seconds
            )
            runner.run(ReplicaMove(TopicPartition("t", one), (1,), (1, 2, 3), 100) for one in (0,))

    def _list_all(self, _broker_id: int, _request: object, _code: ErrorCode) -> object:
        messages = list_partition_reassignments
        parts = tuple(
            messages.OngoingPartitionReassignment(partition_index=one) for one in self.moving
        )
        topic = messages.OngoingTopicReassignment(name="t", partitions=parts)
        return messages.ListPartitionReassignmentsResponse(topics=(topic,))

    def _describe(self, _broker_id: int, _request: object, _code: ErrorCode) -> object:
        part = metadata.MetadataResponsePartition(
            partition_index=0,
            leader_id=self.leader,
            replica_nodes=(1, 2, 3),
            isr_nodes=self.in_sync,
        )
        return metadata.MetadataResponse(
            brokers=tuple(
                metadata.MetadataResponseBroker(node_id=one, host="fake", port=9000 + one)
                for one in self.fake.broker_ids
            ),
            topics=(metadata.MetadataResponseTopic(name="t", partitions=(part,)),),
            controller_id=1,
        )

    def _sizes(self, broker_id: int, _request: object, _code: ErrorCode) -> object:
        is_growing = broker_id == 2 or self.clock.seconds < self.grows_until
        part = describe_log_dirs.DescribeLogDirsPartition(
            partition_index=0,
            partition_size=round(self.clock.seconds * 10) if is_growing else 7,
            offset_lag=0,
            is_future_key=False,
        )
        topic = describe_log_dirs.DescribeLogDirsTopic(name="t", partitions=(part,))
        directory = describe_log_dirs.DescribeLogDirsResult(log_dir="d", topics=(topic,))
        return describe_log_dirs.DescribeLogDirsResponse(results=(directory,))


def test_a_move_to_a_broker_that_stopped_ends_the_wait() -> None:
    brokers = StuckBrokers(ids=(1, 2))
    with pytest.raises(RequestTimedOutError) as caught:
        brokers.wait()
    assert "no progress for 30 s: t-0 (broker 3 is not registered" in str(caught.value)
    assert "the moves go on in the cluster" in str(caught.value)
    assert "`penstock topic replicas t --cancel`" in caught.value.hint
    assert STALL_SECONDS <= brokers.clock.seconds < STALL_SECONDS + 2
    assert brokers.moving


@pytest.mark.parametrize(
    ("in_sync", "leader", "reason"),
    [
        ((1, 2), 1, "(the replica on broker 3 does not catch up)"),
        ((1, 2), -1, "(no broker leads it)"),
        ((1, 2, 3), 1, "(its new replicas are in sync, and the controller"),
    ],
)
def test_the_reason_is_named(in_sync: tuple[int, ...], leader: int, reason: str) -> None:
    brokers = StuckBrokers()
    brokers.in_sync, brokers.leader = in_sync, leader
    with pytest.raises(RequestTimedOutError) as caught:
        brokers.wait()
    assert reason in str(caught.value)


def test_a_replica_that_is_behind_and_grows_is_waited_for() -> None:
    brokers = StuckBrokers()
    brokers.grows_until = 200.0
    with pytest.raises(RequestTimedOutError):
        brokers.wait(stall_seconds=60.0)
    assert 255 < brokers.clock.seconds < 270


def test_only_a_few_partitions_are_named() -> None:
    moving = [
        MovingPartition(TopicPartition(f"t{one}", 0), 1, (AddedReplica(3, None),))
        for one in range(5)
    ]
    error = stalled(moving, {1, 2}, 30.0)
    assert str(error).count("broker 3") == 3
    assert " and 2 more. " in str(error)
    assert "`penstock topic replicas TOPIC --cancel`" in error.hint
