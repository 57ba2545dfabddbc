"""Conversations with the coordinator of share groups that several tests repeat.

Everything works the same against Penstock and Apache Kafka.
"""

import time
from collections.abc import Callable, Mapping
from uuid import UUID, uuid4

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import alter_share_group_offsets as altering
from penstock.protocol.messages import delete_share_group_offsets as deleting
from penstock.protocol.messages import describe_share_group_offsets as describing
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from penstock.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from tests.broker.handlers.asker import SECONDS_MAX, Asker


def eventually(condition: Callable[[], bool]) -> None:
    """Assert that a condition becomes true while other coordinators work."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


class Member:
    """One member of a share group, as a client: it remembers its epoch and its assignment."""

    def __init__(self, asker: Asker, group: str, *topics: str) -> None:
        self._asker = asker
        self.group = group
        self.topics = topics
        self.member_id = str(uuid4())
        self.epoch = 0
        self.assigned: dict[UUID, set[int]] = {}

    def beat(self, **fields: object) -> ShareGroupHeartbeatResponse:
        """One heartbeat."""
        values: dict[str, object] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "subscribed_topic_names": self.topics if self.epoch == 0 else None,
            **fields,
        }
        request = ShareGroupHeartbeatRequest(**values)  # type: ignore[arg-type]
        answer = self._asker.ask(request, 1, ShareGroupHeartbeatResponse)
        if answer.error_code == ErrorCode.NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = {
                    topic.topic_id: set(topic.partitions)
                    for topic in answer.assignment.topic_partitions
                    if topic.topic_id is not None
                }
        return answer

    def join(self, partition_count: int) -> "Member":
        """Join, and send heartbeats until `partition_count` partitions are assigned."""
        eventually(lambda: self.beat().error_code == ErrorCode.NONE)
        eventually(lambda: self.count_after_beat() == partition_count)
        return self

    def count_after_beat(self) -> int:
        """One more heartbeat; how many partitions are assigned then."""
        assert self.beat().error_code == ErrorCode.NONE
        return sum(map(len, self.assigned.values()))

    def leave(self) -> ShareGroupHeartbeatResponse:
        """Leave the group."""
        answer = self.beat(member_epoch=-1)
        self.epoch = 0
        return answer


def describe(asker: Asker, group: str, **fields: object) -> DescribedGroup:
    """One group."""
    values: dict[str, object] = {"include_authorized_operations": False, **fields}
    request = ShareGroupDescribeRequest(group_ids=(group,), **values)  # type: ignore[arg-type]
    (found,) = asker.ask(request, 1, ShareGroupDescribeResponse).groups
    return found


def listed(asker: Asker, **fields: object) -> dict[str, tuple[str, str, str]]:
    """Type, state and protocol type of groups by name."""
    request = ListGroupsRequest(**fields)  # type: ignore[arg-type]
    answer = asker.ask(request, 5, ListGroupsResponse)
    assert answer.error_code == ErrorCode.NONE
    return {
        one.group_id: (one.group_type, one.group_state, one.protocol_type) for one in answer.groups
    }


def offsets(
    asker: Asker,
    group: str,
    topics: Mapping[str, tuple[int, ...]] | None = None,
    *,
    version: int = 1,
) -> describing.DescribeShareGroupOffsetsResponseGroup:
    """The offsets of partitions; of all partitions if none is named."""
    asked = tuple(
        describing.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=partitions)
        for name, partitions in (topics or {}).items()
    )
    one = describing.DescribeShareGroupOffsetsRequestGroup(
        group_id=group, topics=None if topics is None else asked
    )
    request = describing.DescribeShareGroupOffsetsRequest(groups=(one,))
    (found,) = asker.ask(request, version, describing.DescribeShareGroupOffsetsResponse).groups
    return found


def starts(found: describing.DescribeShareGroupOffsetsResponseGroup) -> dict[str, dict[int, int]]:
    """Start offsets by topic and partition."""
    return {
        topic.topic_name: {one.partition_index: one.start_offset for one in topic.partitions}
        for topic in found.topics
    }


def alter(
    asker: Asker, group: str, topic: str, **starts_at: int
) -> altering.AlterShareGroupOffsetsResponse:
    """Reset start offsets: `p0=5`."""
    partitions = tuple(
        altering.AlterShareGroupOffsetsRequestPartition(
            partition_index=int(name[1:]), start_offset=offset
        )
        for name, offset in starts_at.items()
    )
    one = altering.AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)
    request = altering.AlterShareGroupOffsetsRequest(group_id=group, topics=(one,))
    return asker.ask(request, 0, altering.AlterShareGroupOffsetsResponse)


def delete_offsets(
    asker: Asker, group: str, *topics: str
) -> deleting.DeleteShareGroupOffsetsResponse:
    """Delete the offsets of topics."""
    asked = tuple(deleting.DeleteShareGroupOffsetsRequestTopic(topic_name=one) for one in topics)
    request = deleting.DeleteShareGroupOffsetsRequest(group_id=group, topics=asked)
    return asker.ask(request, 0, deleting.DeleteShareGroupOffsetsResponse)


def delete_group(asker: Asker, group: str) -> ErrorCode:
    """Delete a group."""
    request = DeleteGroupsRequest(groups_names=(group,))
    (result,) = asker.ask(request, 2, DeleteGroupsResponse).results
    return result.error_code
