"""Requests of the matrix that describe, create, change and delete topics."""

from typing import Final

from penstock.protocol.api_keys import ApiKey
from penstock.protocol.codec import Message
from penstock.protocol.messages import (
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    describe_topic_partitions,
    elect_leaders,
    list_partition_reassignments,
    metadata,
)
from tests.access_matrix.names import (
    DOOMED_BY_NAME,
    DOOMED_TOPIC,
    INVALID_TOPIC,
    MISSING_TOPIC,
    OTHER_MISSING_TOPIC,
    OTHER_TOPIC,
    TOPIC,
    UNKNOWN_TOPIC_ID,
    CaseList,
    World,
)
from tests.access_matrix.record_requests import NAMES, TIMEOUT_MS, topic_ids

CASES: Final = CaseList()


@CASES.add(ApiKey.METADATA, 13, "by name")
def metadata_by_name(world: World) -> Message:
    return metadata.MetadataRequest(
        topics=tuple(metadata.MetadataRequestTopic(name=name) for name in NAMES),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )


@CASES.add(ApiKey.METADATA, 13, "by id")
def metadata_by_id(world: World) -> Message:
    return metadata.MetadataRequest(
        topics=tuple(
            metadata.MetadataRequestTopic(name=None, topic_id=one) for one in topic_ids(world)
        ),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )


@CASES.add(ApiKey.METADATA, 13, "all topics")
def metadata_of_all(world: World) -> Message:
    return metadata.MetadataRequest(topics=None)


@CASES.add(ApiKey.METADATA, 13, "create a topic")
def metadata_with_creation(world: World) -> Message:
    return metadata.MetadataRequest(
        topics=(metadata.MetadataRequestTopic(name=INVALID_TOPIC),), allow_auto_topic_creation=True
    )


@CASES.add(ApiKey.METADATA, 10, "operations on the cluster")
def metadata_of_cluster(world: World) -> Message:
    return metadata.MetadataRequest(
        topics=(), allow_auto_topic_creation=False, include_cluster_authorized_operations=True
    )


@CASES.add(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, "by name")
def partitions_by_name(world: World) -> Message:
    return describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=tuple(describe_topic_partitions.TopicRequest(name=name) for name in NAMES)
    )


@CASES.add(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, "all topics")
def partitions_of_all(world: World) -> Message:
    return describe_topic_partitions.DescribeTopicPartitionsRequest(topics=())


@CASES.add(ApiKey.CREATE_TOPICS, 7)
def create_no_topics(world: World) -> Message:
    return create_topics.CreateTopicsRequest(
        topics=tuple(
            create_topics.CreatableTopic(
                name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
            )
            for name in (MISSING_TOPIC, OTHER_MISSING_TOPIC, TOPIC)
        ),
        timeout_ms=TIMEOUT_MS,
        validate_only=True,
    )


@CASES.add(ApiKey.DELETE_TOPICS, 6, "by name")
def delete_topics_by_name(world: World) -> Message:
    return delete_topics.DeleteTopicsRequest(
        topics=tuple(
            delete_topics.DeleteTopicState(name=name, topic_id=None)
            for name in (DOOMED_BY_NAME, MISSING_TOPIC, OTHER_MISSING_TOPIC)
        ),
        timeout_ms=TIMEOUT_MS,
    )


@CASES.add(ApiKey.DELETE_TOPICS, 6, "by id")
def delete_topics_by_id(world: World) -> Message:
    return delete_topics.DeleteTopicsRequest(
        topics=tuple(
            delete_topics.DeleteTopicState(name=None, topic_id=one)
            for one in (world.topic_ids[DOOMED_TOPIC], UNKNOWN_TOPIC_ID)
        ),
        timeout_ms=TIMEOUT_MS,
    )


@CASES.add(ApiKey.CREATE_PARTITIONS, 3)
def create_no_partitions(world: World) -> Message:
    return create_partitions.CreatePartitionsRequest(
        topics=tuple(
            create_partitions.CreatePartitionsTopic(name=name, count=2, assignments=None)
            for name in NAMES
        ),
        timeout_ms=TIMEOUT_MS,
        validate_only=True,
    )


@CASES.add(ApiKey.ELECT_LEADERS, 2)
def elect_the_same_leaders(world: World) -> Message:
    return elect_leaders.ElectLeadersRequest(
        topic_partitions=tuple(
            elect_leaders.TopicPartitions(topic=name, partitions=(0,)) for name in NAMES
        ),
        timeout_ms=TIMEOUT_MS,
    )


@CASES.add(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0)
def list_reassignments(world: World) -> Message:
    return list_partition_reassignments.ListPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS, topics=None
    )


@CASES.add(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1)
def cancel_reassignments(world: World) -> Message:
    partition = alter_partition_reassignments.ReassignablePartition(
        partition_index=0, replicas=None
    )
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS,
        topics=tuple(
            alter_partition_reassignments.ReassignableTopic(name=name, partitions=(partition,))
            for name in (TOPIC, OTHER_TOPIC)
        ),
    )
