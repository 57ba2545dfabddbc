"""Topics over HTTP: list, create, describe, delete, settings, partitions, records.

Each function is one operation, over Kafka's wire. Kafka's rules are not checked here a second time:
the broker rejects the request, and its message is returned.
"""

import base64
import time
import uuid
from typing import Annotated, Final

from pydantic import Field

from penstock.admin.model import (
    INT64_MAX,
    SETTINGS_MAX,
    Answer,
    Input,
    Page,
    PartitionPath,
    SettingEdits,
    SettingList,
    SettingName,
    SettingValue,
    TopicName,
    TopicPath,
)
from penstock.admin.operation import Asked, Operation, page
from penstock.admin.setting_lists import setting_list
from penstock.client.calls import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NewTopic
from penstock.client.cluster import Cluster
from penstock.client.log_sizes import find_log_sizes
from penstock.client.records.record_deletion import ALL_SO_FAR, delete_before
from penstock.core.errors import UnknownTopicOrPartitionError
from penstock.core.limits import PARTITIONS_PER_TOPIC_MAX
from penstock.core.types import TopicPartition
from penstock.protocol.messages.metadata import MetadataResponseTopic

REPLICATION_FACTOR_MAX: Final = 100
"""The largest number of brokers that a cluster is designed for."""
TAG: Final = "topics"
CREATED_SECONDS_MAX: Final = 5.0
"""All brokers of a healthy cluster know a new topic much sooner."""
LOOK_SECONDS: Final = 0.05


class TopicListQuery(Page):
    """Which topics are wanted."""

    internal: Annotated[bool, Field(description="The cluster's own topics too.")] = False


class TopicSummary(Answer):
    """One topic of the list."""

    name: str
    topic_id: Annotated[str | None, Field(description="As Kafka's tools write it.")]
    partitions: int
    replication_factor: int
    internal: bool


class TopicPage(Answer):
    """One page of the topics, by name."""

    topics: list[TopicSummary]
    next: Annotated[str | None, Field(description="`after` of the next page; null at the end.")]


class NewTopicBody(Input):
    """A topic to create; the broker chooses the values that are left out."""

    name: TopicName
    partitions: Annotated[int, Field(ge=1, le=PARTITIONS_PER_TOPIC_MAX)] | None = None
    replication_factor: Annotated[int, Field(ge=1, le=REPLICATION_FACTOR_MAX)] | None = None
    settings: Annotated[
        dict[SettingName, SettingValue],
        Field(
            default_factory=dict,
            max_length=SETTINGS_MAX,
            examples=[{"retention.ms": "86400000"}],
        ),
    ]


class PartitionDetail(Answer):
    """One partition of a topic."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]
    first_offset: int
    end_offset: int
    size_bytes: Annotated[int | None, Field(description="Of the leader's log; null: not reported.")]


class TopicDetail(Answer):
    """A topic with its partitions."""

    name: str
    topic_id: str | None
    internal: bool
    partitions: list[PartitionDetail]


class PartitionCountBody(Input):
    """The new number of partitions of a topic."""

    partitions: Annotated[
        int,
        Field(
            ge=1,
            le=PARTITIONS_PER_TOPIC_MAX,
            description="The new number; it cannot be reduced later.",
        ),
    ]


class RecordDeletionQuery(Input):
    """The records to delete."""

    before: Annotated[
        int,
        Field(
            ge=ALL_SO_FAR,
            le=INT64_MAX,
            description="The first offset that stays; -1 deletes everything so far.",
        ),
    ]


class RecordDeletion(Answer):
    """The first offset that is left in a partition."""

    topic: str
    partition: int
    first_offset: int


def list_topics(cluster: Cluster, asked: Asked) -> TopicPage:
    """Return one page of the topics."""
    query = asked.query_as(TopicListQuery)
    found = [one for one in cluster.all_topics() if query.internal or not one.is_internal]
    shown, following = page(found, lambda one: one.name or "", query)
    return TopicPage(topics=[_summary(one) for one in shown], next=following)


def create_topic(cluster: Cluster, asked: Asked) -> TopicSummary:
    """Create a topic."""
    body = asked.body_as(NewTopicBody)
    cluster.create_topic(
        NewTopic(body.name, body.partitions or -1, body.replication_factor or -1, body.settings)
    )
    return _summary(_created(cluster, body.name))


def describe_topic(cluster: Cluster, asked: Asked) -> TopicDetail:
    """Return a topic with its partitions."""
    name = asked.path_as(TopicPath).topic
    topic = cluster.topic(name)
    parts = sorted(topic.partitions, key=lambda part: part.partition_index)
    places = [TopicPartition(name, part.partition_index) for part in parts]
    first = cluster.find_offsets(dict.fromkeys(places, EARLIEST_TIMESTAMP))
    end = cluster.find_offsets(dict.fromkeys(places, LATEST_TIMESTAMP))
    sizes = find_log_sizes(cluster, places)
    return TopicDetail(
        name=name,
        topic_id=_topic_id(topic.topic_id),
        internal=topic.is_internal,
        partitions=[
            PartitionDetail(
                partition=part.partition_index,
                leader=part.leader_id,
                leader_epoch=part.leader_epoch,
                replicas=list(part.replica_nodes),
                in_sync=list(part.isr_nodes),
                first_offset=first[at],
                end_offset=end[at],
                size_bytes=sizes.get(at),
            )
            for part, at in zip(parts, places, strict=True)
        ],
    )


def delete_topic(cluster: Cluster, asked: Asked) -> None:
    """Delete a topic, with all its records."""
    cluster.delete_topic(asked.path_as(TopicPath).topic)


def topic_settings(cluster: Cluster, asked: Asked) -> SettingList:
    """Return the settings of a topic."""
    name = asked.path_as(TopicPath).topic
    return setting_list(cluster.topic_configs([name])[name])


def change_topic_settings(cluster: Cluster, asked: Asked) -> SettingList:
    """Change settings; return all of them."""
    name = asked.path_as(TopicPath).topic
    cluster.configure_topic(name, asked.body_as(SettingEdits).settings)
    return setting_list(cluster.topic_configs([name])[name])


def add_partitions(cluster: Cluster, asked: Asked) -> TopicSummary:
    """Add partitions."""
    name, count = asked.path_as(TopicPath).topic, asked.body_as(PartitionCountBody).partitions
    cluster.add_partitions(name, count)
    # Another broker than the one that added them may answer, and may not know all of them yet.
    return _summary(cluster.topic(name)).model_copy(update={"partitions": count})


def delete_records(cluster: Cluster, asked: Asked) -> RecordDeletion:
    """Delete the first records of a partition."""
    path = asked.path_as(PartitionPath)
    (at,) = cluster.partitions_of(path.topic, [path.partition])
    found = delete_before(cluster, {at: asked.query_as(RecordDeletionQuery).before})
    return RecordDeletion(topic=at.topic, partition=at.partition, first_offset=found[at])


def _created(cluster: Cluster, name: str) -> MetadataResponseTopic:
    """Return a topic that exists; brokers learn of a new topic a moment after its creation."""
    deadline = time.monotonic() + CREATED_SECONDS_MAX
    while True:
        try:
            return cluster.topic(name)
        except UnknownTopicOrPartitionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(LOOK_SECONDS)


def _summary(topic: MetadataResponseTopic) -> TopicSummary:
    return TopicSummary(
        name=topic.name or "",
        topic_id=_topic_id(topic.topic_id),
        partitions=len(topic.partitions),
        replication_factor=max((len(part.replica_nodes) for part in topic.partitions), default=0),
        internal=topic.is_internal,
    )


def _topic_id(topic_id: uuid.UUID | None) -> str | None:
    """Return the id as URL-safe base64 without padding."""
    if topic_id is None:
        return None
    return base64.urlsafe_b64encode(topic_id.bytes).decode("ascii").rstrip("=")


OPERATIONS: Final = (
    Operation(
        "GET",
        "/topics",
        "listTopics",
        "List the topics",
        TAG,
        list_topics,
        TopicPage,
        query_model=TopicListQuery,
    ),
    Operation(
        "POST",
        "/topics",
        "createTopic",
        "Create a topic",
        TAG,
        create_topic,
        TopicSummary,
        status=201,
        body_model=NewTopicBody,
        location=lambda asked: f"/topics/{asked.body_as(NewTopicBody).name}",
    ),
    Operation(
        "GET",
        "/topics/{topic}",
        "describeTopic",
        "Describe a topic with its partitions and offsets",
        TAG,
        describe_topic,
        TopicDetail,
        path_model=TopicPath,
    ),
    Operation(
        "DELETE",
        "/topics/{topic}",
        "deleteTopic",
        "Delete a topic and all its records",
        TAG,
        delete_topic,
        status=204,
        path_model=TopicPath,
    ),
    Operation(
        "GET",
        "/topics/{topic}/settings",
        "listTopicSettings",
        "Show the settings of a topic",
        TAG,
        topic_settings,
        SettingList,
        path_model=TopicPath,
    ),
    Operation(
        "PATCH",
        "/topics/{topic}/settings",
        "changeTopicSettings",
        "Change settings of a topic, all or none; they hold at once",
        TAG,
        change_topic_settings,
        SettingList,
        path_model=TopicPath,
        body_model=SettingEdits,
    ),
    Operation(
        "POST",
        "/topics/{topic}/partitions",
        "addPartitions",
        "Give a topic more partitions",
        TAG,
        add_partitions,
        TopicSummary,
        description="Records stay where they are: keys may go to other partitions from now on.",
        path_model=TopicPath,
        body_model=PartitionCountBody,
    ),
    Operation(
        "DELETE",
        "/topics/{topic}/partitions/{partition}/records",
        "deleteRecords",
        "Delete the records of a partition before an offset",
        TAG,
        delete_records,
        RecordDeletion,
        path_model=PartitionPath,
        query_model=RecordDeletionQuery,
    ),
)
"""The operations on topics."""
