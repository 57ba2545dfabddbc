"""Requests of the matrix that are about share groups. None of them creates a group or a state."""

from typing import Final

from penstock.protocol.api_keys import ApiKey
from penstock.protocol.codec import Message
from penstock.protocol.messages import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    delete_share_group_state,
    describe_share_group_offsets,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    write_share_group_state,
)
from tests.access_matrix.names import (
    CONSUMER_GROUP,
    MISSING_GROUP,
    OTHER_MISSING_GROUP,
    OTHER_TOPIC,
    TOPIC,
    UNKNOWN_TOPIC_ID,
    CaseList,
    World,
)

CASES: Final = CaseList()
UNKNOWN_MEMBER: Final = "unknown-member"
NO_GROUP: Final = ""
"""The share coordinator refuses it, whatever its state is."""


def beat(*topics: str) -> Message:
    return share_group_heartbeat.ShareGroupHeartbeatRequest(
        group_id=MISSING_GROUP,
        member_id=UNKNOWN_MEMBER,
        member_epoch=5,
        subscribed_topic_names=topics or None,
    )


@CASES.add(ApiKey.SHARE_GROUP_HEARTBEAT, 1)
def beat_without_topics(world: World) -> Message:
    return beat()


@CASES.add(ApiKey.SHARE_GROUP_HEARTBEAT, 1, "two topics")
def beat_with_topics(world: World) -> Message:
    return beat(TOPIC, OTHER_TOPIC)


@CASES.add(ApiKey.SHARE_GROUP_DESCRIBE, 1)
def describe_share_groups(world: World) -> Message:
    return share_group_describe.ShareGroupDescribeRequest(
        group_ids=(MISSING_GROUP, OTHER_MISSING_GROUP), include_authorized_operations=True
    )


@CASES.add(ApiKey.SHARE_FETCH, 2, "without a session")
def fetch_without_session(world: World) -> Message:
    return share_fetch.ShareFetchRequest(
        group_id=MISSING_GROUP,
        member_id=UNKNOWN_MEMBER,
        share_session_epoch=1,
        max_wait_ms=0,
        min_bytes=0,
        max_records=1,
        batch_size=1,
        topics=(),
        forgotten_topics_data=(),
    )


@CASES.add(ApiKey.SHARE_ACKNOWLEDGE, 2, "without a session")
def acknowledge_without_session(world: World) -> Message:
    return share_acknowledge.ShareAcknowledgeRequest(
        group_id=MISSING_GROUP, member_id=UNKNOWN_MEMBER, share_session_epoch=1, topics=()
    )


@CASES.add(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0)
def initialize_state(world: World) -> Message:
    partition = initialize_share_group_state.PartitionData(
        partition=0, state_epoch=0, start_offset=0
    )
    topic = initialize_share_group_state.InitializeStateData(
        topic_id=UNKNOWN_TOPIC_ID, partitions=(partition,)
    )
    return initialize_share_group_state.InitializeShareGroupStateRequest(
        group_id=NO_GROUP, topics=(topic,)
    )


@CASES.add(ApiKey.READ_SHARE_GROUP_STATE, 0)
def read_state(world: World) -> Message:
    partition = read_share_group_state.PartitionData(partition=0, leader_epoch=0)
    topic = read_share_group_state.ReadStateData(topic_id=UNKNOWN_TOPIC_ID, partitions=(partition,))
    return read_share_group_state.ReadShareGroupStateRequest(group_id=NO_GROUP, topics=(topic,))


@CASES.add(ApiKey.WRITE_SHARE_GROUP_STATE, 1)
def write_state(world: World) -> Message:
    partition = write_share_group_state.PartitionData(
        partition=0, state_epoch=0, leader_epoch=0, start_offset=0, state_batches=()
    )
    topic = write_share_group_state.WriteStateData(
        topic_id=UNKNOWN_TOPIC_ID, partitions=(partition,)
    )
    return write_share_group_state.WriteShareGroupStateRequest(group_id=NO_GROUP, topics=(topic,))


@CASES.add(ApiKey.DELETE_SHARE_GROUP_STATE, 0)
def delete_state(world: World) -> Message:
    partition = delete_share_group_state.PartitionData(partition=0)
    topic = delete_share_group_state.DeleteStateData(
        topic_id=UNKNOWN_TOPIC_ID, partitions=(partition,)
    )
    return delete_share_group_state.DeleteShareGroupStateRequest(group_id=NO_GROUP, topics=(topic,))


@CASES.add(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1)
def read_summary(world: World) -> Message:
    partition = read_share_group_state_summary.PartitionData(partition=0, leader_epoch=0)
    topic = read_share_group_state_summary.ReadStateSummaryData(
        topic_id=UNKNOWN_TOPIC_ID, partitions=(partition,)
    )
    return read_share_group_state_summary.ReadShareGroupStateSummaryRequest(
        group_id=NO_GROUP, topics=(topic,)
    )


@CASES.add(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1)
def describe_offsets(world: World) -> Message:
    topics = tuple(
        describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic(
            topic_name=name, partitions=(0,)
        )
        for name in (TOPIC, OTHER_TOPIC)
    )
    group = describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(
        group_id=MISSING_GROUP, topics=topics
    )
    return describe_share_group_offsets.DescribeShareGroupOffsetsRequest(groups=(group,))


@CASES.add(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0)
def alter_offsets_of_consumers(world: World) -> Message:
    """The group has another type: nothing is altered."""
    partition = alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(
        partition_index=0, start_offset=0
    )
    topics = tuple(
        alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(
            topic_name=name, partitions=(partition,)
        )
        for name in (TOPIC, OTHER_TOPIC)
    )
    return alter_share_group_offsets.AlterShareGroupOffsetsRequest(
        group_id=CONSUMER_GROUP, topics=topics
    )


@CASES.add(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0)
def delete_offsets(world: World) -> Message:
    topics = tuple(
        delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name=name)
        for name in (TOPIC, OTHER_TOPIC)
    )
    return delete_share_group_offsets.DeleteShareGroupOffsetsRequest(
        group_id=MISSING_GROUP, topics=topics
    )
