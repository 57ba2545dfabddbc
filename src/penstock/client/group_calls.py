"""Typed calls about groups: one function for each API, each for one group.

As `client.calls`: plain values in, plain values out, nothing is retried. An error of the group or
of one of its partitions is raised, because a caller here asked for exactly that group. The one
exception is a group that is not there, which is None where a caller can go on without it.

Offsets stay below the versions that know topics only by id: a group may hold offsets of a topic
that is deleted, and those are to be shown too.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.client.calls import Connection, by_topic, raise_error
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
"""10 names topics by id only."""
OFFSET_COMMIT_VERSION_MAX: Final = 9
"""10 names topics by id only."""
NO_GENERATION: Final = -1
"""Somebody who commits without being a member."""
DEAD: Final = "Dead"
"""The state with which old versions of DescribeGroups say that there is no such group."""


class Committed(NamedTuple):
    """What a group committed for one partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def list_all(connection: Connection) -> tuple[list_groups.ListedGroup, ...]:
    """The groups that this one broker coordinates."""
    response = connection.call(list_groups.ListGroupsRequest(), list_groups.ListGroupsResponse)
    raise_error(response.error_code, None, "listing groups")
    return response.groups


def describe_consumer_group(
    connection: Connection, group_id: str
) -> consumer_group_describe.DescribedGroup | None:
    """A group of the consumer protocol; None when there is none, or it is a classic group."""
    request = consumer_group_describe.ConsumerGroupDescribeRequest(
        group_ids=(group_id,), include_authorized_operations=False
    )
    response = connection.call(request, consumer_group_describe.ConsumerGroupDescribeResponse)
    (group,) = response.groups
    if group.error_code in {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION}:
        return None
    raise_error(group.error_code, group.error_message, group_id)
    return group


def describe_classic_group(
    connection: Connection, group_id: str
) -> describe_groups.DescribedGroup | None:
    """A classic group; None when there is none."""
    request = describe_groups.DescribeGroupsRequest(groups=(group_id,))
    response = connection.call(request, describe_groups.DescribeGroupsResponse)
    (group,) = response.groups
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    raise_error(group.error_code, group.error_message, group_id)
    return None if group.group_state == DEAD else group


def fetch_offsets(connection: Connection, group_id: str) -> dict[TopicPartition, Committed]:
    """Everything that the group committed; nothing when there is no such group."""
    request = offset_fetch.OffsetFetchRequest(
        groups=(offset_fetch.OffsetFetchRequestGroup(group_id=group_id, topics=None),)
    )
    response = connection.call(request, offset_fetch.OffsetFetchResponse, OFFSET_FETCH_VERSION_MAX)
    (group,) = response.groups
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


def commit_offsets(
    connection: Connection, group_id: str, offsets: Mapping[TopicPartition, int]
) -> None:
    """Commit as nobody's member, which a coordinator takes only for a group without members."""
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
    response = connection.call(
        request, offset_commit.OffsetCommitResponse, OFFSET_COMMIT_VERSION_MAX
    )
    for topic in response.topics:
        for part in topic.partitions:
            raise_error(part.error_code, None, f"{group_id}: {topic.name}-{part.partition_index}")


def delete(connection: Connection, group_id: str) -> None:
    """Delete a group that has no members."""
    request = delete_groups.DeleteGroupsRequest(groups_names=(group_id,))
    response = connection.call(request, delete_groups.DeleteGroupsResponse)
    for result in response.results:
        raise_error(result.error_code, None, group_id)
