"""Typed calls: one function for each API, from plain values to plain values.

A call makes the request, lets a connection carry it at a version that both sides know, and gives
back what the caller needs. Each names the highest version it is written for: Produce and Fetch
stay below the versions that know topics only by id, because a person names topics.

An error code for the whole request is raised as `BrokerAnswerError`; codes of single topics and
partitions are in the results, because a caller may want the others. Nothing is retried here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeVar

from penstock.core.errors import BrokerAnswerError
from penstock.core.types import TopicPartition
from penstock.protocol.codec import Message
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    fetch,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)

PRODUCE_VERSION_MAX: Final = 12
"""13 names topics by id only."""
FETCH_VERSION_MAX: Final = 12
"""13 names topics by id only."""
DELETE_TOPICS_VERSION_MAX: Final = 5
"""6 has another list that can name topics by id."""
INIT_PRODUCER_ID_VERSION_MAX: Final = 5
"""6 is not stable in Kafka 4.3."""

EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1
NO_REPLICA: Final = -1
TOPIC_RESOURCE: Final = 2
GROUP_RESOURCE: Final = 32
"""The kind of a resource that has settings."""
SET_CONFIG: Final = 0
DELETE_CONFIG: Final = 1
"""What IncrementalAlterConfigs does to a setting."""

Answer = TypeVar("Answer")


class Connection(Protocol):
    """What a call needs: somebody who carries a request and brings the answer."""

    def call(
        self, request: Message, answer_type: type[Answer], version_max: int | None = None
    ) -> Answer:
        """Send the request and wait for its answer."""
        ...

    def send_unanswered(self, request: Message, version_max: int | None = None) -> None:
        """Send a request that has no answer: Produce with acks=0."""
        ...


class ProducerIdentity(NamedTuple):
    """What makes a producer idempotent."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 lets the broker choose."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FetchBounds:
    """How much a fetch may bring and how long it may wait for it."""

    wait_ms_max: int = 500
    bytes_min: int = 1
    bytes_max: int = 8_388_608
    partition_bytes_max: int = 1_048_576


def raise_error(code: ErrorCode, message: str | None, subject: str = "") -> None:
    """Raise `BrokerAnswerError` unless the code says that all is well."""
    if code != ErrorCode.NONE:
        text = ": ".join(part for part in (subject, message) if part)
        raise BrokerAnswerError(code.value, code.name, text)


def describe_brokers(
    connection: Connection, topics: Iterable[str] | None, *, auto_create: bool = False
) -> metadata.MetadataResponse:
    """Brokers, controller and the topics asked for; None asks for all."""
    names = (
        None
        if topics is None
        else tuple(metadata.MetadataRequestTopic(name=name) for name in topics)
    )
    request = metadata.MetadataRequest(topics=names, allow_auto_topic_creation=auto_create)
    response = connection.call(request, metadata.MetadataResponse)
    raise_error(response.error_code, None, "metadata")
    return response


def create(
    connection: Connection, topics: Sequence[NewTopic], timeout_ms: int
) -> tuple[create_topics.CreatableTopicResult, ...]:
    """Create topics; each result has its own error code."""
    request = create_topics.CreateTopicsRequest(
        topics=tuple(
            create_topics.CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                assignments=(),
                configs=tuple(
                    create_topics.CreatableTopicConfig(name=name, value=value)
                    for name, value in topic.configs.items()
                ),
            )
            for topic in topics
        ),
        timeout_ms=timeout_ms,
    )
    return connection.call(request, create_topics.CreateTopicsResponse).topics


def add_partitions(
    connection: Connection, name: str, count: int, timeout_ms: int
) -> tuple[create_partitions.CreatePartitionsTopicResult, ...]:
    """Give a topic so many partitions; the result has its own error code."""
    request = create_partitions.CreatePartitionsRequest(
        topics=(create_partitions.CreatePartitionsTopic(name=name, count=count),),
        timeout_ms=timeout_ms,
        validate_only=False,
    )
    return connection.call(request, create_partitions.CreatePartitionsResponse).results


def configure(
    connection: Connection, resource_type: int, name: str, values: Mapping[str, str | None]
) -> tuple[incremental_alter_configs.AlterConfigsResourceResponse, ...]:
    """Set settings of a topic or group, all or none; None takes one back to its default."""
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=(
            incremental_alter_configs.AlterConfigsResource(
                resource_type=resource_type,
                resource_name=name,
                configs=tuple(
                    incremental_alter_configs.AlterableConfig(
                        name=setting,
                        config_operation=SET_CONFIG if value is not None else DELETE_CONFIG,
                        value=value,
                    )
                    for setting, value in values.items()
                ),
            ),
        ),
        validate_only=False,
    )
    return connection.call(
        request, incremental_alter_configs.IncrementalAlterConfigsResponse
    ).responses


def delete(
    connection: Connection, names: Sequence[str], timeout_ms: int
) -> tuple[delete_topics.DeletableTopicResult, ...]:
    """Delete topics by name; each result has its own error code."""
    request = delete_topics.DeleteTopicsRequest(topic_names=tuple(names), timeout_ms=timeout_ms)
    response = connection.call(
        request, delete_topics.DeleteTopicsResponse, DELETE_TOPICS_VERSION_MAX
    )
    return response.responses


def send_batches(
    connection: Connection,
    batches: Mapping[TopicPartition, bytes | bytearray],
    *,
    acks: int,
    timeout_ms: int,
) -> dict[TopicPartition, produce.PartitionProduceResponse]:
    """Append one batch to each partition. With acks=0 there is no answer and no result."""
    request = produce.ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=tuple(
            produce.TopicProduceData(
                name=topic,
                partition_data=tuple(
                    produce.PartitionProduceData(index=at.partition, records=batches[at])
                    for at in partitions
                ),
            )
            for topic, partitions in by_topic(batches).items()
        ),
    )
    if acks == 0:
        connection.send_unanswered(request, PRODUCE_VERSION_MAX)
        return {}
    response = connection.call(request, produce.ProduceResponse, PRODUCE_VERSION_MAX)
    return {
        TopicPartition(topic.name, partition.index): partition
        for topic in response.responses
        for partition in topic.partition_responses
    }


def fetch_batches(
    connection: Connection,
    offsets: Mapping[TopicPartition, int],
    bounds: FetchBounds,
) -> dict[TopicPartition, fetch.PartitionData]:
    """Batches from each offset on; a batch that begins before it comes whole."""
    request = fetch.FetchRequest(
        max_wait_ms=bounds.wait_ms_max,
        min_bytes=bounds.bytes_min,
        max_bytes=bounds.bytes_max,
        topics=tuple(
            fetch.FetchTopic(
                topic=topic,
                partitions=tuple(
                    fetch.FetchPartition(
                        partition=at.partition,
                        fetch_offset=offsets[at],
                        partition_max_bytes=bounds.partition_bytes_max,
                    )
                    for at in partitions
                ),
            )
            for topic, partitions in by_topic(offsets).items()
        ),
    )
    response = connection.call(request, fetch.FetchResponse, FETCH_VERSION_MAX)
    raise_error(response.error_code, None, "fetch")
    return {
        TopicPartition(topic.topic, partition.partition_index): partition
        for topic in response.responses
        for partition in topic.partitions
    }


def find_offsets(
    connection: Connection, timestamps: Mapping[TopicPartition, int]
) -> dict[TopicPartition, list_offsets.ListOffsetsPartitionResponse]:
    """The first offset at or after a time, which may be one of the two constants for the ends."""
    request = list_offsets.ListOffsetsRequest(
        replica_id=NO_REPLICA,
        topics=tuple(
            list_offsets.ListOffsetsTopic(
                name=topic,
                partitions=tuple(
                    list_offsets.ListOffsetsPartition(
                        partition_index=at.partition, timestamp=timestamps[at]
                    )
                    for at in partitions
                ),
            )
            for topic, partitions in by_topic(timestamps).items()
        ),
    )
    response = connection.call(request, list_offsets.ListOffsetsResponse)
    return {
        TopicPartition(topic.name, partition.partition_index): partition
        for topic in response.topics
        for partition in topic.partitions
    }


def start_producer(connection: Connection) -> ProducerIdentity:
    """An identity for an idempotent producer without transactions."""
    request = init_producer_id.InitProducerIdRequest(transaction_timeout_ms=2**31 - 1)
    response = connection.call(
        request, init_producer_id.InitProducerIdResponse, INIT_PRODUCER_ID_VERSION_MAX
    )
    raise_error(response.error_code, None, "producer id")
    return ProducerIdentity(response.producer_id, response.producer_epoch)


def describe_settings(
    connection: Connection, resource_type: int, names: Sequence[str]
) -> dict[str, describe_configs.DescribeConfigsResult]:
    """The settings of topics or of groups, by name."""
    request = describe_configs.DescribeConfigsRequest(
        resources=tuple(
            describe_configs.DescribeConfigsResource(
                resource_type=resource_type, resource_name=name, configuration_keys=None
            )
            for name in names
        )
    )
    response = connection.call(request, describe_configs.DescribeConfigsResponse)
    return {result.resource_name: result for result in response.results}


def describe(connection: Connection) -> describe_cluster.DescribeClusterResponse:
    """The cluster's id, controller and brokers."""
    request = describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=False)
    response = connection.call(request, describe_cluster.DescribeClusterResponse)
    raise_error(response.error_code, response.error_message, "cluster")
    return response


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """The partitions grouped by topic, as requests want them."""
    topics: dict[str, list[TopicPartition]] = {}
    for at in partitions:
        topics.setdefault(at.topic, []).append(at)
    return topics
