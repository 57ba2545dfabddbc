"""Calls about groups as values: one function for each API, each for one group.

As in `client.calls`: plain values in, a `Call` out, nothing is retried. An error of the group or of
one of its partitions is raised, because the caller requested exactly that group. The one exception
is a missing group: the result is None where a caller can continue without it.

Offset calls stay below the versions that identify topics only by id: a group may have offsets of a
deleted topic, and these must be shown too.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.client.calls import by_topic
from penstock.client.transport.call import Call, raise_error
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    consumer_group_describe,
    delete_groups,
    describe_groups,
    list_groups,
    offset_commit,
    offset_fetch,
)

OFFSET_FETCH_VERSION_MAX: Final = 9
"""Version 10 identifies topics by id only."""
OFFSET_COMMIT_VERSION_MAX: Final = 9
"""Version 10 identifies topics by id only."""
NO_GENERATION: Final = -1
"""The generation of a commit by a client that is not a member."""
DEAD: Final = "Dead"
"""The state of a missing group in old versions of DescribeGroups."""


class Committed(NamedTuple):
    """A group's committed offset of one partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def list_all() -> Call[tuple[list_groups.ListedGroup, ...]]:
    """List the groups that one broker coordinates."""

    def read(answer: list_groups.ListGroupsResponse) -> tuple[list_groups.ListedGroup, ...]:
        raise_error(answer.error_code, None, "listing groups")
        return answer.groups

    return Call(list_groups.ListGroupsRequest(), list_groups.ListGroupsResponse, read)


def describe_consumer_group(
    group_id: str,
) -> Call[consumer_group_describe.DescribedGroup | None]:
    """Describe a group of the consumer protocol; None when it is missing or a classic group."""
    request = consumer_group_describe.ConsumerGroupDescribeRequest(
        group_ids=(group_id,), include_authorized_operations=False
    )

    def read(
        answer: consumer_group_describe.ConsumerGroupDescribeResponse,
    ) -> consumer_group_describe.DescribedGroup | None:
        (group,) = answer.groups
        if group.error_code in {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION}:
            return None
        raise_error(group.error_code, group.error_message, group_id)
        return group

    return Call(request, consumer_group_describe.ConsumerGroupDescribeResponse, read)


def describe_classic_group(group_id: str) -> Call[describe_groups.DescribedGroup | None]:
    """Describe a classic group; None when it is missing."""
    request = describe_groups.DescribeGroupsRequest(groups=(group_id,))

    def read(
        answer: describe_groups.DescribeGroupsResponse,
    ) -> describe_groups.DescribedGroup | None:
        (group,) = answer.groups
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise_error(group.error_code, group.error_message, group_id)
        return None if group.group_state == DEAD else group

    return Call(request, describe_groups.DescribeGroupsResponse, read)


def fetch_offsets(
    group_id: str, *, is_stable: bool = False
) -> Call[dict[TopicPartition, Committed]]:
    """Fetch all committed offsets of the group; empty when the group is missing.

    `is_stable`: offsets of an undecided transaction are an error that may be retried.
    """
    request = offset_fetch.OffsetFetchRequest(
        groups=(offset_fetch.OffsetFetchRequestGroup(group_id=group_id, topics=None),),
        require_stable=is_stable,
    )

    def read(answer: offset_fetch.OffsetFetchResponse) -> dict[TopicPartition, Committed]:
        (group,) = answer.groups
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return {}
        raise_error(group.error_code, None, group_id)
        found: dict[TopicPartition, Committed] = {}
        for topic in group.topics:
            for part in topic.partitions:
                at = TopicPartition(topic.name, part.partition_index)
                raise_error(part.error_code, None, f"{group_id}: {at}")
                if part.committed_offset >= 0:
                    found[at] = Committed(
                        part.committed_offset, part.committed_leader_epoch, part.metadata or ""
                    )
        return found

    return Call(request, offset_fetch.OffsetFetchResponse, read, OFFSET_FETCH_VERSION_MAX)


def commit_offsets(group_id: str, offsets: Mapping[TopicPartition, int]) -> Call[None]:
    """Commit as a non-member; the coordinator accepts it only for a group without members."""
    request = offset_commit.OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=NO_GENERATION,
        member_id="",
        topics=tuple(
            offset_commit.OffsetCommitRequestTopic(
                name=topic,
                partitions=tuple(
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=at.partition,
                        committed_offset=offsets[at],
                        committed_metadata="",
                    )
                    for at in partitions
                ),
            )
            for topic, partitions in by_topic(offsets).items()
        ),
    )

    def read(answer: offset_commit.OffsetCommitResponse) -> None:
        for topic in answer.topics:
            for part in topic.partitions:
                at = TopicPartition(topic.name, part.partition_index)
                raise_error(part.error_code, None, f"{group_id}: {at}")

    return Call(request, offset_commit.OffsetCommitResponse, read, OFFSET_COMMIT_VERSION_MAX)


def delete(group_id: str) -> Call[None]:
    """Delete a group that has no members."""
    request = delete_groups.DeleteGroupsRequest(groups_names=(group_id,))

    def read(answer: delete_groups.DeleteGroupsResponse) -> None:
        for result in answer.results:
            raise_error(result.error_code, None, group_id)

    return Call(request, delete_groups.DeleteGroupsResponse, read)
