"""The requests of clients to a group shard, in golden conversations and in other tests.

`join client=a group=g topics=t1,t2` and so on; the member id is the client's last one unless it is
given. Embedded metadata and assignments are those of Kafka's consumers, so that topics can be read.
"""

import dataclasses
import itertools
import struct
from collections.abc import Callable, Mapping
from typing import cast
from uuid import UUID

from penstock.coordinator.groups.consumer.consumer_group import ConsumerGroup
from penstock.coordinator.groups.embedded_protocol import decode_assignment, version_of
from penstock.coordinator.groups.refused import RefusedError
from penstock.coordinator.groups.settings import GroupSettings
from penstock.coordinator.groups.shard import GroupShard
from penstock.coordinator.groups.share.share_group import ShareGroup
from penstock.coordinator.ports import GroupTimes
from penstock.protocol.codec import Message, encode_buffers
from penstock.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    RequestTopicPartitions,
)
from penstock.protocol.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock.protocol.stored.codec import decode_group_record
from tests.coordinator.conversation import Arguments, Spoken
from tests.coordinator.groups.share import share_words
from tests.coordinator.rig import ShardRig


def subscription(*topics: str, version: int = 0, extra: bytes = b"") -> bytes:
    """The metadata of a consumer that reads these topics."""
    names = (len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    head = version.to_bytes(2, "big") + len(topics).to_bytes(4, "big")
    return head + b"".join(names) + (-1).to_bytes(4, "big", signed=True) + extra


class GroupVocabulary:
    """Commands for a group shard."""

    def __init__(
        self, settings: GroupSettings | None = None, times: GroupTimes | None = None
    ) -> None:
        self.settings = settings or GroupSettings()
        self._times = times
        self._ids = itertools.count(1)
        self.commands: Mapping[str, Callable[[Arguments], Spoken]] = {
            "join": self._join,
            "sync": self._sync,
            "heartbeat": self._heartbeat,
            "leave": self._leave,
            "commit": self._commit,
            "commit-in-transaction": self._commit_in_transaction,
            "fetch": self._fetch,
            "delete-offsets": self._delete_offsets,
            "describe": self._describe,
            "list": self._list,
            "delete": self._delete,
            "consumer-heartbeat": self._consumer_heartbeat,
            "consumer-describe": self._consumer_describe,
            **share_words.COMMANDS,
        }

    # --- The kind of shard ---

    def make_shard(self) -> GroupShard:
        return GroupShard(self.settings, lambda: str(next(self._ids)), self._times)

    def decode(self, key: bytes, value: bytes | None) -> tuple[Message, Message | None] | None:
        return decode_group_record(key, value)

    def snapshot(self, shard: GroupShard) -> object:
        return snapshot(shard)

    def configure(self, arguments: Arguments) -> None:
        changes = {name: int(value) for name, value in arguments.items()}
        self.settings = dataclasses.replace(self.settings, **changes)  # type: ignore[arg-type]

    def finish(self, rig: ShardRig[GroupShard], arguments: Arguments) -> None:
        share_words.finish(rig, arguments)

    def render_bytes(self, value: bytes) -> str | None:
        partitions = _partitions_in(value)
        if partitions is not None:
            return f"gets({','.join(partitions)})"
        topics = _topics_in(value)
        return None if topics is None else f"reads({','.join(topics)})"

    # --- The classic protocol ---

    def _join(self, arguments: Arguments) -> Spoken:
        topics = [topic for topic in arguments.get("topics", "").split(",") if topic]
        names = arguments.get("protocols", "range").split(",")
        request = JoinGroupRequest(
            group_id=arguments.get("group", "g"),
            session_timeout_ms=int(arguments.get("session", "10000")),
            rebalance_timeout_ms=int(arguments.get("rebalance", "60000")),
            member_id=arguments.get("member", ""),
            group_instance_id=arguments.get("instance"),
            protocol_type=arguments.get("type", "consumer"),
            protocols=tuple(
                JoinGroupRequestProtocol(name=name, metadata=_metadata(topics, arguments))
                for name in names
                if name
            ),
        )
        return Spoken(request, int(arguments.get("v", "9")), arguments.get("client", "c"))

    def _sync(self, arguments: Arguments) -> Spoken:
        given = [part for part in arguments.get("assign", "").split(",") if part]
        pairs = (part.partition(":") for part in given)
        request = SyncGroupRequest(
            group_id=arguments.get("group", "g"),
            generation_id=int(arguments["generation"]),
            member_id=arguments["member"],
            group_instance_id=arguments.get("instance"),
            protocol_type=arguments.get("type"),
            protocol_name=arguments.get("protocol"),
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=member, assignment=given.encode())
                for member, _, given in pairs
            )
            + tuple(
                SyncGroupRequestAssignment(
                    member_id=member, assignment=assignment(*partitions.split("+"))
                )
                for member, _, partitions in (
                    part.partition(":") for part in arguments.get("plan", "").split(",") if part
                )
            ),
        )
        return Spoken(request, int(arguments.get("v", "5")))

    def _heartbeat(self, arguments: Arguments) -> Spoken:
        request = HeartbeatRequest(
            group_id=arguments.get("group", "g"),
            generation_id=int(arguments["generation"]),
            member_id=arguments["member"],
            group_instance_id=arguments.get("instance"),
        )
        return Spoken(request, 4)

    def _leave(self, arguments: Arguments) -> Spoken:
        members = arguments.get("members", arguments.get("member", "")).split(",")
        request = LeaveGroupRequest(
            group_id=arguments.get("group", "g"),
            members=tuple(
                MemberIdentity(member_id=member, group_instance_id=arguments.get("instance"))
                for member in members
            ),
        )
        return Spoken(request, 5)

    # --- Offsets ---

    def _commit(self, arguments: Arguments) -> Spoken:
        partition = OffsetCommitRequestPartition(
            partition_index=int(arguments.get("partition", "0")),
            committed_offset=int(arguments["offset"]),
            committed_metadata=arguments.get("metadata"),
        )
        request = OffsetCommitRequest(
            group_id=arguments.get("group", "g"),
            generation_id_or_member_epoch=int(arguments.get("generation", "-1")),
            member_id=arguments.get("member", ""),
            group_instance_id=arguments.get("instance"),
            topics=(
                OffsetCommitRequestTopic(name=arguments.get("topic", "t"), partitions=(partition,)),
            ),
            retention_time_ms=int(arguments.get("retention", "-1")),
        )
        return Spoken(request, int(arguments.get("v", "9")))

    def _commit_in_transaction(self, arguments: Arguments) -> Spoken:
        partition = TxnOffsetCommitRequestPartition(
            partition_index=int(arguments.get("partition", "0")),
            committed_offset=int(arguments["offset"]),
            committed_metadata=arguments.get("metadata"),
        )
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id=arguments.get("group", "g"),
            producer_id=int(arguments["producer"]),
            producer_epoch=int(arguments.get("epoch", "0")),
            generation_id=int(arguments.get("generation", "-1")),
            member_id=arguments.get("member", ""),
            group_instance_id=arguments.get("instance"),
            topics=(
                TxnOffsetCommitRequestTopic(
                    name=arguments.get("topic", "t"), partitions=(partition,)
                ),
            ),
        )
        return Spoken(request, 5)

    def _fetch(self, arguments: Arguments) -> Spoken:
        topics = None
        if "topic" in arguments:
            indexes = tuple(int(index) for index in arguments.get("partitions", "0").split(","))
            topic = OffsetFetchRequestTopics(name=arguments["topic"], partition_indexes=indexes)
            topics = (topic,)
        group = OffsetFetchRequestGroup(
            group_id=arguments.get("group", "g"),
            member_id=arguments.get("member"),
            member_epoch=int(arguments.get("epoch", "-1")),
            topics=topics,
        )
        return Spoken(OffsetFetchRequest(groups=(group,), require_stable="stable" in arguments), 9)

    def _delete_offsets(self, arguments: Arguments) -> Spoken:
        indexes = (int(index) for index in arguments.get("partitions", "0").split(","))
        partitions = tuple(OffsetDeleteRequestPartition(partition_index=i) for i in indexes)
        topic = OffsetDeleteRequestTopic(name=arguments.get("topic", "t"), partitions=partitions)
        request = OffsetDeleteRequest(group_id=arguments.get("group", "g"), topics=(topic,))
        return Spoken(request, 0)

    # --- Administration ---

    def _describe(self, arguments: Arguments) -> Spoken:
        groups = tuple(arguments.get("group", "g").split(","))
        return Spoken(DescribeGroupsRequest(groups=groups), int(arguments.get("v", "6")))

    def _list(self, arguments: Arguments) -> Spoken:
        states = tuple(state for state in arguments.get("states", "").split(",") if state)
        types = tuple(kind for kind in arguments.get("types", "").split(",") if kind)
        return Spoken(ListGroupsRequest(states_filter=states, types_filter=types), 5)

    def _delete(self, arguments: Arguments) -> Spoken:
        groups = tuple(arguments.get("group", "g").split(","))
        return Spoken(DeleteGroupsRequest(groups_names=groups), 2)

    # --- Consumer groups ---

    def _consumer_heartbeat(self, arguments: Arguments) -> Spoken:
        topics = arguments.get("topics")
        request = ConsumerGroupHeartbeatRequest(
            group_id=arguments.get("group", "g"),
            member_id=arguments.get("member", ""),
            member_epoch=int(arguments["epoch"]),
            instance_id=arguments.get("instance"),
            rebalance_timeout_ms=int(arguments.get("rebalance", "-1")),
            subscribed_topic_names=(
                None if topics is None else tuple(topic for topic in topics.split(",") if topic)
            ),
            subscribed_topic_regex=arguments.get("regex"),
            server_assignor=arguments.get("assignor"),
            topic_partitions=_owned(arguments),
        )
        return Spoken(request, int(arguments.get("v", "1")), arguments.get("client", "c"))

    def _consumer_describe(self, arguments: Arguments) -> Spoken:
        groups = tuple(arguments.get("group", "g").split(","))
        return Spoken(
            ConsumerGroupDescribeRequest(group_ids=groups, include_authorized_operations=False), 1
        )


def _owned(arguments: Arguments) -> tuple[RequestTopicPartitions, ...] | None:
    """`owned=1:0+1,2:5`: partitions by the number of the topic's id; `owned=` is none at all."""
    if "owned" not in arguments:
        return () if arguments["epoch"] == "0" else None
    parts = (part.partition(":") for part in arguments["owned"].split(",") if part)
    return tuple(
        RequestTopicPartitions(
            topic_id=UUID(int=int(topic)),
            partitions=tuple(int(number) for number in numbers.split("+")),
        )
        for topic, _, numbers in parts
    )


def _metadata(topics: list[str], arguments: Arguments) -> bytes:
    """`owned=t-0+t-1`: what a cooperative consumer says that it has."""
    if "owned" not in arguments:
        return subscription(*topics)
    owned = assignment(*arguments["owned"].split("+"))
    return subscription(*topics, version=1, extra=owned[2:-4])


def assignment(*partitions: str) -> bytes:
    """What a leader gives a consumer: `assignment("t-0", "t-1")`."""
    by_topic: dict[str, list[int]] = {}
    for partition in partitions:
        topic, _, number = partition.rpartition("-")
        by_topic.setdefault(topic, []).append(int(number))
    body = ConsumerProtocolAssignment(
        assigned_partitions=tuple(
            TopicPartition(topic=topic, partitions=tuple(numbers))
            for topic, numbers in by_topic.items()
        )
    )
    return bytes(2) + b"".join(encode_buffers(body, 0))


def snapshot(shard: GroupShard) -> object:
    """The replicated state of a group shard, as a value."""
    state = shard.state
    consumer = {
        group_id: cast("ConsumerGroup", group).snapshot()
        for group_id, group in state.consumer.items()
    }
    share = {
        group_id: cast("ShareGroup", group).snapshot() for group_id, group in state.share.items()
    }
    return state.offsets.snapshot(), dict(state.stored_classic), consumer, share


def _partitions_in(value: bytes) -> list[str] | None:
    """The partitions of a consumer's assignment; None: it is something else."""
    try:
        given = decode_assignment(value)
        head = (version_of(value)).to_bytes(2, "big")
        whole = head + b"".join(encode_buffers(given, version_of(value)))
    except (RefusedError, struct.error, TypeError):
        return None
    if whole != value:
        return None
    return [f"{part.topic}-{n}" for part in given.assigned_partitions for n in part.partitions]


def _topics_in(value: bytes) -> list[str] | None:
    """The topics of a consumer's metadata; None: it is something else."""
    if len(value) < 10 or value[0] != 0:
        return None
    count, position, topics = int.from_bytes(value[2:6], "big"), 6, []
    for _ in range(min(count, 1_000)):
        end = position + 2 + int.from_bytes(value[position : position + 2], "big")
        if end > len(value) - 4:
            return None
        topics.append(value[position + 2 : end].decode())
        position = end
    return topics
