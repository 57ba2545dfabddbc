"""Coordinators for the cluster in memory: groups, their offsets, transactions.

It has the state that a client can see: the coordinator of each id, members of groups, committed
offsets. A broker that does not coordinate a group returns that error.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.core.types import TopicPartition
from penstock.protocol.codec import message_encoder
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    consumer_group_describe,
    consumer_protocol_assignment,
    delete_groups,
    describe_groups,
    describe_producers,
    describe_transactions,
    find_coordinator,
    list_groups,
    list_transactions,
    offset_commit,
    offset_fetch,
    share_group_describe,
    write_txn_markers,
)
from tests.client.fake_broker import FakeCluster


@dataclass
class FakeMember:
    member_id: str
    partitions: list[TopicPartition] = field(default_factory=list)
    instance_id: str | None = None


@dataclass
class FakeGroup:
    group_type: str = "classic"
    protocol_type: str = "consumer"
    members: list[FakeMember] = field(default_factory=list)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"


@dataclass
class FakeTransaction:
    producer_id: int
    state: str = "Ongoing"
    started_ms: int = 1_700_000_000_000
    partitions: list[TopicPartition] = field(default_factory=list)


@dataclass
class FakeProducer:
    producer_id: int
    start_offset: int = -1
    coordinator_epoch: int = -1


class FakeCoordinators:
    """Answers about groups and transactions for all brokers of one cluster."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.groups: dict[str, FakeGroup] = {}
        self.transactions: dict[str, FakeTransaction] = {}
        self.producers: dict[TopicPartition, list[FakeProducer]] = {}
        self.coordinator_id = cluster.broker_ids[0]
        handlers: dict[type, Callable[[int, Any, ErrorCode], object]] = {
            find_coordinator.FindCoordinatorRequest: self._find,
            list_groups.ListGroupsRequest: self._list_groups,
            consumer_group_describe.ConsumerGroupDescribeRequest: self._describe_consumer,
            describe_groups.DescribeGroupsRequest: self._describe_classic,
            share_group_describe.ShareGroupDescribeRequest: self._describe_share,
            offset_fetch.OffsetFetchRequest: self._fetch_offsets,
            offset_commit.OffsetCommitRequest: self._commit,
            delete_groups.DeleteGroupsRequest: self._delete,
            list_transactions.ListTransactionsRequest: self._list_transactions,
            describe_transactions.DescribeTransactionsRequest: self._describe_transaction,
            describe_producers.DescribeProducersRequest: self._describe_producers,
            write_txn_markers.WriteTxnMarkersRequest: self._write_markers,
        }
        cluster.handlers.update(handlers)

    def _refusal(self, broker_id: int, code: ErrorCode) -> ErrorCode:
        return code or (
            ErrorCode.NONE if broker_id == self.coordinator_id else ErrorCode.NOT_COORDINATOR
        )

    def _find(
        self, _: int, request: find_coordinator.FindCoordinatorRequest, code: ErrorCode
    ) -> find_coordinator.FindCoordinatorResponse:
        (key,) = request.coordinator_keys
        known = not code
        return find_coordinator.FindCoordinatorResponse(
            coordinators=(
                find_coordinator.Coordinator(
                    key=key,
                    node_id=self.coordinator_id if known else -1,
                    host="fake" if known else "",
                    port=9000 + self.coordinator_id if known else -1,
                    error_code=code,
                ),
            )
        )

    # --- Groups ---

    def _list_groups(
        self, broker_id: int, request: list_groups.ListGroupsRequest, code: ErrorCode
    ) -> list_groups.ListGroupsResponse:
        assert not request.states_filter
        is_here = broker_id == self.coordinator_id
        return list_groups.ListGroupsResponse(
            error_code=code,
            groups=tuple(
                list_groups.ListedGroup(
                    group_id=name,
                    protocol_type=group.protocol_type,
                    group_state=group.state,
                    group_type=group.group_type,
                )
                for name, group in self.groups.items()
                if is_here
            ),
        )

    def _describe_share(
        self,
        broker_id: int,
        request: share_group_describe.ShareGroupDescribeRequest,
        code: ErrorCode,
    ) -> share_group_describe.ShareGroupDescribeResponse:
        """It has no share groups."""
        return share_group_describe.ShareGroupDescribeResponse(
            groups=(
                share_group_describe.DescribedGroup(
                    error_code=self._refusal(broker_id, code) or ErrorCode.GROUP_ID_NOT_FOUND,
                    group_id=request.group_ids[0],
                    group_state="",
                    group_epoch=0,
                    assignment_epoch=0,
                    assignor_name="",
                    members=(),
                ),
            )
        )

    def _describe_consumer(
        self,
        broker_id: int,
        request: consumer_group_describe.ConsumerGroupDescribeRequest,
        code: ErrorCode,
    ) -> consumer_group_describe.ConsumerGroupDescribeResponse:
        (name,) = request.group_ids
        group = self.groups.get(name)
        code = self._refusal(broker_id, code)
        if not code and (group is None or group.group_type != "consumer"):
            code = ErrorCode.GROUP_ID_NOT_FOUND
        members = group.members if group and not code else []
        return consumer_group_describe.ConsumerGroupDescribeResponse(
            groups=(
                consumer_group_describe.DescribedGroup(
                    error_code=code,
                    group_id=name,
                    group_state=group.state if group else "",
                    group_epoch=5,
                    assignment_epoch=4,
                    assignor_name="uniform",
                    members=tuple(map(self._consumer_member, members)),
                ),
            )
        )

    def _consumer_member(self, member: FakeMember) -> consumer_group_describe.Member:
        assignment = consumer_group_describe.Assignment(
            topic_partitions=tuple(
                consumer_group_describe.TopicPartitions(
                    topic_id=None, topic_name=at.topic, partitions=(at.partition,)
                )
                for at in member.partitions
            )
        )
        return consumer_group_describe.Member(
            member_id=member.member_id,
            instance_id=member.instance_id,
            member_epoch=5,
            client_id="app",
            client_host="/10.0.0.1",
            subscribed_topic_names=("orders",),
            assignment=assignment,
            target_assignment=assignment,
            member_type=1,
        )

    def _describe_classic(
        self, broker_id: int, request: describe_groups.DescribeGroupsRequest, code: ErrorCode
    ) -> describe_groups.DescribeGroupsResponse:
        (name,) = request.groups
        group = self.groups.get(name)
        code = self._refusal(broker_id, code)
        if not code and (group is None or group.group_type != "classic"):
            code = ErrorCode.GROUP_ID_NOT_FOUND
        members = group.members if group and not code else []
        return describe_groups.DescribeGroupsResponse(
            groups=(
                describe_groups.DescribedGroup(
                    error_code=code,
                    group_id=name,
                    group_state=group.state if group else "",
                    protocol_type=group.protocol_type if group else "",
                    protocol_data="range" if members else "",
                    members=tuple(
                        describe_groups.DescribedGroupMember(
                            member_id=member.member_id,
                            group_instance_id=member.instance_id,
                            client_id="app",
                            client_host="/10.0.0.1",
                            member_metadata=b"",
                            member_assignment=assignment_bytes(member.partitions),
                        )
                        for member in members
                    ),
                ),
            )
        )

    def _fetch_offsets(
        self, broker_id: int, request: offset_fetch.OffsetFetchRequest, code: ErrorCode
    ) -> offset_fetch.OffsetFetchResponse:
        (asked,) = request.groups
        assert asked.topics is None
        group = self.groups.get(asked.group_id, FakeGroup())
        return offset_fetch.OffsetFetchResponse(
            groups=(
                offset_fetch.OffsetFetchResponseGroup(
                    group_id=asked.group_id,
                    error_code=self._refusal(broker_id, code),
                    topics=tuple(
                        offset_fetch.OffsetFetchResponseTopics(
                            name=at.topic,
                            partitions=(
                                offset_fetch.OffsetFetchResponsePartitions(
                                    partition_index=at.partition, committed_offset=offset
                                ),
                            ),
                        )
                        for at, offset in group.offsets.items()
                    ),
                ),
            )
        )

    def _commit(
        self, broker_id: int, request: offset_commit.OffsetCommitRequest, code: ErrorCode
    ) -> offset_commit.OffsetCommitResponse:
        group = self.groups.setdefault(request.group_id, FakeGroup(protocol_type=""))
        code = self._refusal(broker_id, code)
        if not code and group.members:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        if not code:
            for topic in request.topics:
                for part in topic.partitions:
                    at = TopicPartition(topic.name, part.partition_index)
                    group.offsets[at] = part.committed_offset
        return offset_commit.OffsetCommitResponse(
            topics=tuple(
                offset_commit.OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        offset_commit.OffsetCommitResponsePartition(
                            partition_index=part.partition_index, error_code=code
                        )
                        for part in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )

    def _delete(
        self, broker_id: int, request: delete_groups.DeleteGroupsRequest, code: ErrorCode
    ) -> delete_groups.DeleteGroupsResponse:
        (name,) = request.groups_names
        code = self._refusal(broker_id, code)
        if not code and name not in self.groups:
            code = ErrorCode.GROUP_ID_NOT_FOUND
        if not code and self.groups[name].members:
            code = ErrorCode.NON_EMPTY_GROUP
        if not code:
            del self.groups[name]
        return delete_groups.DeleteGroupsResponse(
            results=(delete_groups.DeletableGroupResult(group_id=name, error_code=code),)
        )

    # --- Transactions ---

    def _list_transactions(
        self, broker_id: int, request: list_transactions.ListTransactionsRequest, code: ErrorCode
    ) -> list_transactions.ListTransactionsResponse:
        return list_transactions.ListTransactionsResponse(
            error_code=code,
            transaction_states=tuple(
                list_transactions.TransactionState(
                    transactional_id=name,
                    producer_id=one.producer_id,
                    transaction_state=one.state,
                )
                for name, one in self.transactions.items()
                if broker_id == self.coordinator_id
                and (not request.state_filters or one.state in request.state_filters)
                and (
                    not request.producer_id_filters
                    or one.producer_id in request.producer_id_filters
                )
            ),
        )

    def _describe_transaction(
        self,
        broker_id: int,
        request: describe_transactions.DescribeTransactionsRequest,
        code: ErrorCode,
    ) -> describe_transactions.DescribeTransactionsResponse:
        (name,) = request.transactional_ids
        one = self.transactions.get(name)
        code = self._refusal(broker_id, code)
        if not code and one is None:
            code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return describe_transactions.DescribeTransactionsResponse(
            transaction_states=(
                describe_transactions.TransactionState(
                    error_code=code,
                    transactional_id=name,
                    transaction_state=one.state if one else "",
                    transaction_timeout_ms=60_000,
                    transaction_start_time_ms=one.started_ms if one else -1,
                    producer_id=one.producer_id if one else -1,
                    producer_epoch=0,
                    topics=tuple(
                        describe_transactions.TopicData(topic=at.topic, partitions=(at.partition,))
                        for at in (one.partitions if one else [])
                    ),
                ),
            )
        )

    def _describe_producers(
        self, _: int, request: describe_producers.DescribeProducersRequest, code: ErrorCode
    ) -> describe_producers.DescribeProducersResponse:
        (topic,) = request.topics
        (number,) = topic.partition_indexes
        found = self.producers.get(TopicPartition(topic.name, number), [])
        return describe_producers.DescribeProducersResponse(
            topics=(
                describe_producers.TopicResponse(
                    name=topic.name,
                    partitions=(
                        describe_producers.PartitionResponse(
                            partition_index=number,
                            error_code=code,
                            active_producers=tuple(
                                describe_producers.ProducerState(
                                    producer_id=one.producer_id,
                                    producer_epoch=0,
                                    last_sequence=4,
                                    last_timestamp=1_700_000_000_000,
                                    coordinator_epoch=one.coordinator_epoch,
                                    current_txn_start_offset=one.start_offset,
                                )
                                for one in found
                            ),
                        ),
                    ),
                ),
            )
        )

    def _write_markers(
        self, _: int, request: write_txn_markers.WriteTxnMarkersRequest, code: ErrorCode
    ) -> write_txn_markers.WriteTxnMarkersResponse:
        (marker,) = request.markers
        (topic,) = marker.topics
        (number,) = topic.partition_indexes
        assert marker.coordinator_epoch >= 0
        assert not marker.transaction_result
        for one in self.producers[TopicPartition(topic.name, number)]:
            if one.producer_id == marker.producer_id and not code:
                one.start_offset = -1
        part = write_txn_markers.WritableTxnMarkerPartitionResult(
            partition_index=number, error_code=code
        )
        return write_txn_markers.WriteTxnMarkersResponse(
            markers=(
                write_txn_markers.WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=(
                        write_txn_markers.WritableTxnMarkerTopicResult(
                            name=topic.name, partitions=(part,)
                        ),
                    ),
                ),
            )
        )


def assignment_bytes(partitions: list[TopicPartition], version: int = 1) -> bytes:
    """What the leader of a classic group gives a member."""
    message = consumer_protocol_assignment.ConsumerProtocolAssignment(
        assigned_partitions=tuple(
            consumer_protocol_assignment.TopicPartition(topic=at.topic, partitions=(at.partition,))
            for at in partitions
        )
    )
    parts: list[Any] = [version.to_bytes(2, "big")]
    encode = message_encoder(
        consumer_protocol_assignment.ConsumerProtocolAssignment, min(version, 3)
    )
    encode(message, parts.append)
    return b"".join(parts)
