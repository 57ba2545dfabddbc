"""`Groups`: the groups of a cluster for administration: classic, consumer and share groups.

It finds the coordinator of a group, sends the request, and returns one kind of description for all
protocols. A description was true when the coordinator answered; several answers (members, committed
offsets, ends of the log) are NOT one moment. It is not a member of any group.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.client import calls
from penstock.client.cluster import Cluster
from penstock.client.coordinators import Coordinator, CoordinatorKind, Coordinators
from penstock.client.groups import group_calls, share_group_calls
from penstock.client.groups.group_calls import Committed
from penstock.client.groups.share_group_calls import ShareOffset
from penstock.client.transport.call import Call, Result
from penstock.core.errors import BrokerAnswerError, PenstockError
from penstock.core.types import TopicPartition
from penstock.protocol.codec import message_decoder
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    consumer_group_describe,
    describe_groups,
    share_group_describe,
)
from penstock.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from penstock.protocol.wire import WIRE_ERRORS

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
EMPTY: Final = "Empty"
CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type of classic groups whose members consume topics; Connect has another."""

_NOT_EMPTY: Final = frozenset(
    {
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
"""A coordinator's errors for a client that is not a member while the group has members."""

_MEMBER_TYPES: Final[Mapping[int, str]] = {0: CLASSIC, 1: CONSUMER}


class UnknownGroupError(PenstockError):
    """No group has this name."""

    def __init__(self, group_id: str) -> None:
        super().__init__(f"group {group_id!r} not found.")
        self.group_id = group_id


class GroupNotEmptyError(PenstockError):
    """A group has members, so other clients may not change it."""


class ListedGroup(NamedTuple):
    """One line of the list of groups; fields that an old broker does not report are empty."""

    group_id: str
    group_type: str
    state: str
    protocol_type: str
    coordinator_id: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member; fields that its protocol does not have are None."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None = None
    partitions: tuple[TopicPartition, ...] | None = None
    """None: the members of this group share something else than partitions."""
    target: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None
    rack_id: str | None = None
    subscribed: tuple[str, ...] | None = None
    subscribed_regex: str | None = None
    member_type: str | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group of any protocol."""

    group_id: str
    group_type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: Coordinator
    members: tuple[GroupMember, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None


class Groups:
    """The groups of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators = Coordinators(cluster, CoordinatorKind.GROUP)

    def list_all(self) -> list[ListedGroup]:
        """Return every group by name: each broker lists the groups that it coordinates."""

        def attempt() -> list[ListedGroup]:
            listed = []
            for broker_id, address in self._cluster.brokers().items():
                for one in self._cluster.at(address, group_calls.list_all()):
                    self._coordinators.remember(one.group_id, Coordinator(broker_id, address))
                    kind = one.group_type.lower()
                    listed.append(
                        ListedGroup(
                            one.group_id, kind, one.group_state, one.protocol_type, broker_id
                        )
                    )
            return listed

        return sorted(self._cluster.repeat(attempt, repeatable=True))

    def describe(self, group_id: str) -> GroupDescription:
        """Describe a group with its members; raise `UnknownGroupError` when it is missing."""
        found = self.find(group_id)
        if found is None:
            raise UnknownGroupError(group_id)
        return found

    def find(self, group_id: str, likely_type: str = CONSUMER) -> GroupDescription | None:
        """Describe a group with its members, or return None; the likely type is tried first."""
        finders = {
            CONSUMER: self._find_consumer_group,
            CLASSIC: self._find_classic_group,
            SHARE: self._find_share_group,
        }
        likely = finders.pop(likely_type, None)
        for find in ([likely] if likely else []) + list(finders.values()):
            found = find(group_id)
            if found is not None:
                return found
        return None

    def committed(self, group_id: str) -> dict[TopicPartition, Committed]:
        """Return the committed offsets, sorted by partition; empty when the group is missing."""
        found = self._coordinators.ask(
            group_id, group_calls.fetch_offsets(group_id), repeatable=True
        )
        return dict(sorted(found.items()))

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the committed offsets. The group may be new, but must have no members."""
        self._change(group_id, group_calls.commit_offsets(group_id, offsets), repeatable=True)

    def share_offsets(self, group_id: str) -> dict[TopicPartition, ShareOffset]:
        """Return the positions of a share group; empty when the group is missing."""
        found = self._coordinators.ask(
            group_id, share_group_calls.share_offsets(group_id), repeatable=True
        )
        return dict(sorted(found.items()))

    def positions(self, group_id: str, group_type: str) -> dict[TopicPartition, Committed]:
        """Return the committed offsets of a group, or the start offsets of a share group."""
        if group_type != SHARE:
            return self.committed(group_id)
        return {
            at: Committed(found.start_offset)
            for at, found in self.share_offsets(group_id).items()
            if found.start_offset is not None
        }

    def move(self, group_id: str, group_type: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the positions of a group. The group may be new, but must have no members."""
        if group_type == SHARE:
            call = share_group_calls.alter_share_offsets(group_id, offsets)
            self._change(group_id, call, repeatable=True)
        else:
            self.commit(group_id, offsets)

    def delete_share_offsets(self, group_id: str, topics: Iterable[str]) -> None:
        """Delete what a share group has delivered of topics; it must have no members."""
        call = share_group_calls.delete_share_offsets(group_id, topics)
        refused = self._change(group_id, call, repeatable=False)
        if refused is not None:
            raise refused

    def delete(self, group_id: str) -> None:
        """Delete a group without members, with all its offsets."""
        self._change(group_id, group_calls.delete(group_id), repeatable=False)

    def _change(self, group_id: str, call: Call[Result], *, repeatable: bool) -> Result:
        try:
            return self._coordinators.ask(group_id, call, repeatable=repeatable)
        except BrokerAnswerError as error:
            if error.code in _NOT_EMPTY:
                raise GroupNotEmptyError(
                    f"group {group_id!r} has members.",
                    hint="Stop them, or wait until their sessions end, then repeat the command.",
                ) from error
            if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
                raise UnknownGroupError(group_id) from error
            raise

    def _find_consumer_group(self, group_id: str) -> GroupDescription | None:
        try:
            found = self._coordinators.ask(
                group_id,
                group_calls.describe_consumer_group(group_id),
                repeatable=True,
            )
        except BrokerAnswerError as error:
            if error.code != ErrorCode.UNSUPPORTED_VERSION:
                raise
            return None  # a broker without the consumer protocol has classic groups only
        if found is None:
            return None
        return _of_consumer_group(found, self._coordinators.find(group_id))

    def _find_share_group(self, group_id: str) -> GroupDescription | None:
        try:
            found = self._coordinators.ask(
                group_id, share_group_calls.describe_share_group(group_id), repeatable=True
            )
        except BrokerAnswerError as error:
            if error.code != ErrorCode.UNSUPPORTED_VERSION:
                raise
            return None  # a broker without share groups
        if found is None:
            return None
        return _of_share_group(found, self._coordinators.find(group_id))

    def _find_classic_group(self, group_id: str) -> GroupDescription | None:
        found = self._coordinators.ask(
            group_id, group_calls.describe_classic_group(group_id), repeatable=True
        )
        if found is None:
            return None
        return _of_classic_group(found, self._coordinators.find(group_id))


def end_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the end of the log, for partitions that exist and have a leader."""
    wanted = set(partitions)
    if not wanted:
        return {}
    present = {
        TopicPartition(topic.name or "", part.partition_index)
        for topic in cluster.topics(sorted({at.topic for at in wanted}))
        if topic.error_code == ErrorCode.NONE
        for part in topic.partitions
        if part.error_code == ErrorCode.NONE
    }
    return cluster.find_offsets(dict.fromkeys(sorted(wanted & present), calls.LATEST_TIMESTAMP))


def _of_consumer_group(
    group: consumer_group_describe.DescribedGroup, coordinator: Coordinator
) -> GroupDescription:
    return GroupDescription(
        group.group_id,
        CONSUMER,
        group.group_state,
        CONSUMER_PROTOCOL,
        group.assignor_name,
        coordinator,
        tuple(sorted(map(_of_consumer_member, group.members), key=lambda one: one.member_id)),
        group.group_epoch,
        group.assignment_epoch,
    )


def _of_consumer_member(member: consumer_group_describe.Member) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.client_id,
        member.client_host,
        member.instance_id,
        _named(member.assignment),
        _named(member.target_assignment),
        member.member_epoch,
        member.rack_id,
        tuple(sorted(member.subscribed_topic_names)),
        member.subscribed_topic_regex or None,
        _MEMBER_TYPES.get(member.member_type),
    )


def _named(assignment: consumer_group_describe.Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, partition)
            for topic in assignment.topic_partitions
            for partition in topic.partitions
        )
    )


def _of_share_group(
    group: share_group_describe.DescribedGroup, coordinator: Coordinator
) -> GroupDescription:
    members = (
        GroupMember(
            member.member_id,
            member.client_id,
            member.client_host,
            partitions=tuple(
                sorted(
                    TopicPartition(topic.topic_name, partition)
                    for topic in member.assignment.topic_partitions
                    for partition in topic.partitions
                )
            ),
            epoch=member.member_epoch,
            rack_id=member.rack_id,
            subscribed=tuple(sorted(member.subscribed_topic_names)),
            member_type=SHARE,
        )
        for member in group.members
    )
    return GroupDescription(
        group.group_id,
        SHARE,
        group.group_state,
        SHARE,
        group.assignor_name,
        coordinator,
        tuple(sorted(members, key=lambda one: one.member_id)),
        group.group_epoch,
        group.assignment_epoch,
    )


def _of_classic_group(
    group: describe_groups.DescribedGroup, coordinator: Coordinator
) -> GroupDescription:
    consumes = group.protocol_type in {CONSUMER_PROTOCOL, ""}
    members = (
        GroupMember(
            member.member_id,
            member.client_id,
            member.client_host,
            member.group_instance_id,
            read_assignment(member.member_assignment) if consumes else None,
            member_type=CLASSIC,
        )
        for member in group.members
    )
    return GroupDescription(
        group.group_id,
        CLASSIC,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        coordinator,
        tuple(sorted(members, key=lambda one: one.member_id)),
    )


def read_assignment(data: bytes) -> tuple[TopicPartition, ...] | None:
    """Return the assignment from a classic group's leader; None when it cannot be parsed."""
    if not data:
        return ()
    version = int.from_bytes(data[:2], "big", signed=True)
    highest = ConsumerProtocolAssignment.VERSIONS[1]
    if version < 0:
        return None
    try:
        decode = message_decoder(ConsumerProtocolAssignment, min(version, highest))
        body = memoryview(data)
        assignment = decode(body, 2, len(body), len(body))
    except WIRE_ERRORS:
        return None
    assert isinstance(assignment, ConsumerProtocolAssignment)
    return tuple(
        sorted(
            TopicPartition(topic.topic, partition)
            for topic in assignment.assigned_partitions
            for partition in topic.partitions
        )
    )
