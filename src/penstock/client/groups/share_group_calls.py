"""Calls about share groups as values: one function for each API, each for one group.

As in `client.groups.group_calls`: plain values in, a `Call` out, nothing is retried. An error of
the group or of one of its partitions is raised. A missing group is None.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.client.calls import by_topic
from penstock.client.transport.call import Call, raise_error
from penstock.core.errors import BrokerAnswerError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    share_group_describe,
)

_NOT_THERE = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})


class ShareOffset(NamedTuple):
    """The position of a share group in one partition."""

    start_offset: int | None
    """The first offset whose delivery is not complete; None before the first fetch."""
    lag: int | None
    """Records starting at it whose delivery is not complete; None when the broker reports none."""


def describe_share_group(group_id: str) -> Call[share_group_describe.DescribedGroup | None]:
    """Describe a share group; None when it is missing or of another type."""
    request = share_group_describe.ShareGroupDescribeRequest(
        group_ids=(group_id,), include_authorized_operations=False
    )

    def read(
        answer: share_group_describe.ShareGroupDescribeResponse,
    ) -> share_group_describe.DescribedGroup | None:
        (group,) = answer.groups
        if group.error_code in _NOT_THERE:
            return None
        raise_error(group.error_code, group.error_message, group_id)
        return group

    return Call(request, share_group_describe.ShareGroupDescribeResponse, read)


def share_offsets(group_id: str) -> Call[dict[TopicPartition, ShareOffset]]:
    """Fetch the positions of all partitions with delivery state."""
    group = describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(
        group_id=group_id, topics=None
    )
    request = describe_share_group_offsets.DescribeShareGroupOffsetsRequest(groups=(group,))

    def read(
        answer: describe_share_group_offsets.DescribeShareGroupOffsetsResponse,
    ) -> dict[TopicPartition, ShareOffset]:
        (found,) = answer.groups
        raise_error(found.error_code, found.error_message, group_id)
        offsets: dict[TopicPartition, ShareOffset] = {}
        for topic in found.topics:
            for part in topic.partitions:
                at = TopicPartition(topic.topic_name, part.partition_index)
                raise_error(part.error_code, part.error_message, f"{group_id}: {at}")
                start = part.start_offset if part.start_offset >= 0 else None
                offsets[at] = ShareOffset(start, part.lag if part.lag >= 0 else None)
        return offsets

    return Call(request, describe_share_group_offsets.DescribeShareGroupOffsetsResponse, read)


def alter_share_offsets(group_id: str, offsets: Mapping[TopicPartition, int]) -> Call[None]:
    """Reset start offsets; the coordinator accepts it only for a group without members."""
    request = alter_share_group_offsets.AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=tuple(
            alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,
                partitions=tuple(
                    alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(
                        partition_index=at.partition, start_offset=offsets[at]
                    )
                    for at in partitions
                ),
            )
            for topic, partitions in by_topic(offsets).items()
        ),
    )

    def read(answer: alter_share_group_offsets.AlterShareGroupOffsetsResponse) -> None:
        raise_error(answer.error_code, answer.error_message, group_id)
        for topic in answer.responses:
            for part in topic.partitions:
                at = TopicPartition(topic.topic_name, part.partition_index)
                raise_error(part.error_code, part.error_message, f"{group_id}: {at}")

    return Call(request, alter_share_group_offsets.AlterShareGroupOffsetsResponse, read)


def delete_share_offsets(group_id: str, topics: Iterable[str]) -> Call[BrokerAnswerError | None]:
    """Delete the delivery state of topics; only for a group without members.

    The first error of a topic is returned, not raised: a later attempt has the same error, although
    its code is retriable elsewhere.
    """
    request = delete_share_group_offsets.DeleteShareGroupOffsetsRequest(
        group_id=group_id,
        topics=tuple(
            delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name=topic)
            for topic in topics
        ),
    )

    def read(
        answer: delete_share_group_offsets.DeleteShareGroupOffsetsResponse,
    ) -> BrokerAnswerError | None:
        raise_error(answer.error_code, answer.error_message, group_id)
        try:
            for topic in answer.responses:
                subject = f"{group_id}: {topic.topic_name}"
                raise_error(topic.error_code, topic.error_message, subject)
        except BrokerAnswerError as error:
            return error
        return None

    return Call(request, delete_share_group_offsets.DeleteShareGroupOffsetsResponse, read)
