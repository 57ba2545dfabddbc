"""Requests of the matrix that are about groups and their offsets."""

from typing import Final

from penstock.protocol.api_keys import ApiKey
from penstock.protocol.codec import Message
from penstock.protocol.messages import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    streams_group_describe,
    sync_group,
)
from tests.access_matrix.names import (
    CONSUMER_GROUP,
    GROUP,
    MISSING_GROUP,
    OTHER_GROUP,
    OTHER_MISSING_GROUP,
    OTHER_TOPIC,
    TOPIC,
    CaseList,
    World,
)
from tests.access_matrix.record_requests import NAMES, topic_ids

CASES: Final = CaseList()
UNKNOWN_MEMBER: Final = "unknown-member"
GROUP_KEY: Final = 0


@CASES.add(ApiKey.FIND_COORDINATOR, 6, "groups")
def find_group_coordinators(world: World) -> Message:
    return find_coordinator.FindCoordinatorRequest(
        key_type=GROUP_KEY, coordinator_keys=(GROUP, OTHER_GROUP)
    )


@CASES.add(ApiKey.FIND_COORDINATOR, 3, "one group")
def find_group_coordinator(world: World) -> Message:
    return find_coordinator.FindCoordinatorRequest(key_type=GROUP_KEY, key=GROUP)


@CASES.add(ApiKey.JOIN_GROUP, 9)
def join_as_unknown(world: World) -> Message:
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"")
    return join_group.JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=UNKNOWN_MEMBER,
        protocol_type="consumer",
        protocols=(protocol,),
    )


@CASES.add(ApiKey.SYNC_GROUP, 5)
def sync_as_unknown(world: World) -> Message:
    return sync_group.SyncGroupRequest(
        group_id=GROUP,
        generation_id=1,
        member_id=UNKNOWN_MEMBER,
        protocol_type="consumer",
        protocol_name="range",
        assignments=(),
    )


@CASES.add(ApiKey.SYNC_GROUP, 5, "without a protocol")
def sync_without_protocol(world: World) -> Message:
    return sync_group.SyncGroupRequest(
        group_id=GROUP, generation_id=1, member_id=UNKNOWN_MEMBER, assignments=()
    )


@CASES.add(ApiKey.HEARTBEAT, 4)
def beat_as_unknown(world: World) -> Message:
    return heartbeat.HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=UNKNOWN_MEMBER)


@CASES.add(ApiKey.LEAVE_GROUP, 5)
def leave_as_unknown(world: World) -> Message:
    member = leave_group.MemberIdentity(member_id=UNKNOWN_MEMBER)
    return leave_group.LeaveGroupRequest(group_id=GROUP, members=(member,))


@CASES.add(ApiKey.OFFSET_COMMIT, 10)
def commit_by_id(world: World) -> Message:
    partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return offset_commit.OffsetCommitRequest(
        group_id=GROUP,
        member_id="",
        topics=tuple(
            offset_commit.OffsetCommitRequestTopic(topic_id=one, partitions=(partition,))
            for one in topic_ids(world)
        ),
    )


@CASES.add(ApiKey.OFFSET_COMMIT, 9, "by name")
def commit_by_name(world: World) -> Message:
    partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return offset_commit.OffsetCommitRequest(
        group_id=GROUP,
        member_id="",
        topics=tuple(
            offset_commit.OffsetCommitRequestTopic(name=name, partitions=(partition,))
            for name in NAMES
        ),
    )


@CASES.add(ApiKey.OFFSET_FETCH, 10)
def fetch_offsets_by_id(world: World) -> Message:
    topics = tuple(
        offset_fetch.OffsetFetchRequestTopics(topic_id=one, partition_indexes=(0,))
        for one in topic_ids(world)
    )
    return offset_fetch.OffsetFetchRequest(
        groups=(
            offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=topics),
            offset_fetch.OffsetFetchRequestGroup(group_id=OTHER_GROUP, topics=topics),
        )
    )


@CASES.add(ApiKey.OFFSET_FETCH, 9, "by name")
def fetch_offsets_by_name(world: World) -> Message:
    topics = tuple(
        offset_fetch.OffsetFetchRequestTopics(name=name, partition_indexes=(0,)) for name in NAMES
    )
    return offset_fetch.OffsetFetchRequest(
        groups=(offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=topics),)
    )


@CASES.add(ApiKey.OFFSET_FETCH, 10, "all topics")
def fetch_all_offsets(world: World) -> Message:
    return offset_fetch.OffsetFetchRequest(
        groups=(
            offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=None),
            offset_fetch.OffsetFetchRequestGroup(group_id=OTHER_GROUP, topics=None),
        )
    )


@CASES.add(ApiKey.OFFSET_FETCH, 7, "one group")
def fetch_offsets_of_one_group(world: World) -> Message:
    return offset_fetch.OffsetFetchRequest(
        group_id=GROUP,
        topics=tuple(
            offset_fetch.OffsetFetchRequestTopic(name=name, partition_indexes=(0,))
            for name in NAMES
        ),
    )


@CASES.add(ApiKey.OFFSET_FETCH, 7, "one group, all topics")
def fetch_all_offsets_of_one_group(world: World) -> Message:
    return offset_fetch.OffsetFetchRequest(group_id=GROUP, topics=None)


@CASES.add(ApiKey.OFFSET_DELETE, 0)
def delete_no_offsets(world: World) -> Message:
    partition = offset_delete.OffsetDeleteRequestPartition(partition_index=9)
    return offset_delete.OffsetDeleteRequest(
        group_id=GROUP,
        topics=tuple(
            offset_delete.OffsetDeleteRequestTopic(name=name, partitions=(partition,))
            for name in NAMES
        ),
    )


@CASES.add(ApiKey.DESCRIBE_GROUPS, 6)
def describe_classic_groups(world: World) -> Message:
    return describe_groups.DescribeGroupsRequest(
        groups=(GROUP, OTHER_GROUP, MISSING_GROUP), include_authorized_operations=True
    )


@CASES.add(ApiKey.LIST_GROUPS, 5)
def list_all_groups(world: World) -> Message:
    return list_groups.ListGroupsRequest()


@CASES.add(ApiKey.DELETE_GROUPS, 2)
def delete_no_groups(world: World) -> Message:
    return delete_groups.DeleteGroupsRequest(
        groups_names=(CONSUMER_GROUP, MISSING_GROUP, OTHER_MISSING_GROUP)
    )


def consumer_beat(names: tuple[str, ...] | None = None, regex: str | None = None) -> Message:
    """Return a heartbeat of a member that the group does not have."""
    return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id=CONSUMER_GROUP,
        member_id=UNKNOWN_MEMBER,
        member_epoch=5,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=names,
        subscribed_topic_regex=regex,
    )


@CASES.add(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1)
def beat_without_topics(world: World) -> Message:
    return consumer_beat()


@CASES.add(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, "one topic")
def beat_with_topic(world: World) -> Message:
    return consumer_beat((TOPIC,))


@CASES.add(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, "two topics")
def beat_with_topics(world: World) -> Message:
    return consumer_beat((TOPIC, OTHER_TOPIC))


@CASES.add(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, "regular expression")
def beat_with_regex(world: World) -> Message:
    return consumer_beat(regex="t-.*")


@CASES.add(ApiKey.CONSUMER_GROUP_DESCRIBE, 1)
def describe_consumer_groups(world: World) -> Message:
    return consumer_group_describe.ConsumerGroupDescribeRequest(
        group_ids=(CONSUMER_GROUP, OTHER_GROUP, MISSING_GROUP), include_authorized_operations=True
    )


@CASES.add(ApiKey.STREAMS_GROUP_DESCRIBE, 0)
def describe_streams_groups(world: World) -> Message:
    return streams_group_describe.StreamsGroupDescribeRequest(
        group_ids=(GROUP, OTHER_GROUP, MISSING_GROUP), include_authorized_operations=True
    )
