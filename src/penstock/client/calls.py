"""The calls of clients as values: one function for each API, from plain values to a `Call`.

This module creates calls; a transport carries them, at a version that both sides know. Each call
names the highest version that it supports. Most stay below the versions that identify topics only
by id, because users name topics.

An error code for the whole request is raised as `BrokerAnswerError`. Error codes of single topics
and partitions are in the results, because a caller may want the others. Nothing is retried here.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.client.transport.call import Call, raise_error
from penstock.core.errors import MalformedResponseError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    fetch,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)

PRODUCE_VERSION_MAX: Final = 12
"""Version 13 identifies topics by id only."""
FETCH_VERSION_MAX: Final = 12
"""For calls that know only the names of topics: version 13 identifies topics by id."""
DELETE_TOPICS_VERSION_MAX: Final = 5
"""Version 6 has another list that can identify topics by id."""
INIT_PRODUCER_ID_VERSION_MAX: Final = 5
"""Version 6 is not stable in Kafka 4.3."""

EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1
NO_REPLICA: Final = -1
NO_EPOCH: Final = -1
"""An unknown leader epoch: the broker does not compare it."""
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
GROUP_RESOURCE: Final = 32
"""The type of a resource that has settings."""
SET_CONFIG: Final = 0
DELETE_CONFIG: Final = 1
"""The operation of IncrementalAlterConfigs on a setting."""


class ProducerIdentity(NamedTuple):
    """The producer id and epoch of an idempotent producer."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 lets the broker choose."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


class FetchPlace(NamedTuple):
    """The start position of a fetch of one partition."""

    at: TopicPartition
    topic_id: uuid.UUID | None
    offset: int
    leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class FetchBounds:
    """Limits of the size and the wait time of a fetch."""

    wait_ms_max: int = 500
    bytes_min: int = 1
    bytes_max: int = 8_388_608
    partition_bytes_max: int = 1_048_576


def describe_brokers(
    topics: Iterable[str] | None, *, auto_create: bool = False
) -> Call[metadata.MetadataResponse]:
    """Return brokers, controller and the requested topics; None requests all topics."""
    names = (
        None
        if topics is None
        else tuple(metadata.MetadataRequestTopic(name=name) for name in topics)
    )
    request = metadata.MetadataRequest(topics=names, allow_auto_topic_creation=auto_create)

    def read(answer: metadata.MetadataResponse) -> metadata.MetadataResponse:
        raise_error(answer.error_code, None, "metadata")
        return answer

    return Call(request, metadata.MetadataResponse, read)


def create(
    topics: Sequence[NewTopic], timeout_ms: int
) -> Call[tuple[create_topics.CreatableTopicResult, ...]]:
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
    return Call(request, create_topics.CreateTopicsResponse, lambda answer: answer.topics)


def add_partitions(
    name: str, count: int, timeout_ms: int
) -> Call[tuple[create_partitions.CreatePartitionsTopicResult, ...]]:
    """Increase a topic to `count` partitions; the result has its own error code."""
    request = create_partitions.CreatePartitionsRequest(
        topics=(create_partitions.CreatePartitionsTopic(name=name, count=count),),
        timeout_ms=timeout_ms,
        validate_only=False,
    )
    return Call(request, create_partitions.CreatePartitionsResponse, lambda answer: answer.results)


def configure(
    resource_type: int, name: str, values: Mapping[str, str | None]
) -> Call[tuple[incremental_alter_configs.AlterConfigsResourceResponse, ...]]:
    """Set settings of a topic or group, all or none; None resets a setting to its default."""
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
    return Call(
        request,
        incremental_alter_configs.IncrementalAlterConfigsResponse,
        lambda answer: answer.responses,
    )


def delete(
    names: Sequence[str], timeout_ms: int
) -> Call[tuple[delete_topics.DeletableTopicResult, ...]]:
    """Delete topics by name; each result has its own error code."""
    request = delete_topics.DeleteTopicsRequest(topic_names=tuple(names), timeout_ms=timeout_ms)
    return Call(
        request,
        delete_topics.DeleteTopicsResponse,
        lambda answer: answer.responses,
        DELETE_TOPICS_VERSION_MAX,
    )


def send_batches(
    batches: Mapping[TopicPartition, bytes | bytearray],
    *,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> Call[dict[TopicPartition, produce.PartitionProduceResponse]]:
    """Append one batch to each partition. With acks=0 there is no answer and no result."""
    request = produce.ProduceRequest(
        transactional_id=transactional_id,
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
        return Call(request, None, lambda _: {}, PRODUCE_VERSION_MAX)

    def read(
        answer: produce.ProduceResponse,
    ) -> dict[TopicPartition, produce.PartitionProduceResponse]:
        return {
            TopicPartition(topic.name, partition.index): partition
            for topic in answer.responses
            for partition in topic.partition_responses
        }

    return Call(request, produce.ProduceResponse, read, PRODUCE_VERSION_MAX)


def fetch_batches(
    offsets: Mapping[TopicPartition, int],
    bounds: FetchBounds,
) -> Call[dict[TopicPartition, fetch.PartitionData]]:
    """Fetch batches starting at each offset; a batch that contains the offset is returned whole."""
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

    def read(answer: fetch.FetchResponse) -> dict[TopicPartition, fetch.PartitionData]:
        raise_error(answer.error_code, None, "fetch")
        return {
            TopicPartition(topic.topic, partition.partition_index): partition
            for topic in answer.responses
            for partition in topic.partitions
        }

    return Call(request, fetch.FetchResponse, read, FETCH_VERSION_MAX)


def fetch_from(
    place: FetchPlace, bounds: FetchBounds, *, is_read_committed: bool
) -> Call[fetch.PartitionData]:
    """Fetch batches of one partition starting at an offset, by topic id if it is known."""
    request = fetch.FetchRequest(
        max_wait_ms=bounds.wait_ms_max,
        min_bytes=bounds.bytes_min,
        max_bytes=bounds.bytes_max,
        isolation_level=READ_COMMITTED if is_read_committed else READ_UNCOMMITTED,
        topics=(
            fetch.FetchTopic(
                topic_id=place.topic_id,
                topic=place.at.topic,
                partitions=(
                    fetch.FetchPartition(
                        partition=place.at.partition,
                        current_leader_epoch=place.leader_epoch,
                        fetch_offset=place.offset,
                        partition_max_bytes=bounds.partition_bytes_max,
                    ),
                ),
            ),
        ),
    )

    def read(answer: fetch.FetchResponse) -> fetch.PartitionData:
        raise_error(answer.error_code, None, str(place.at))
        # The request has one partition. The agreed version decides whether its topic has a name or
        # an id in the answer.
        found = [one for topic in answer.responses for one in topic.partitions]
        if not found and answer.throttle_time_ms:
            # When a quota is exceeded, Kafka sends an empty answer and reads the next request only
            # after the throttle time.
            code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
            raise_error(code, f"not for {answer.throttle_time_ms} ms", str(place.at))
        if len(found) != 1 or found[0].partition_index != place.at.partition:
            raise MalformedResponseError(f"a fetch of {place.at} that is answered for others")
        return found[0]

    version_max = FETCH_VERSION_MAX if place.topic_id is None else None
    return Call(request, fetch.FetchResponse, read, version_max)


def find_offsets(
    timestamps: Mapping[TopicPartition, int],
    *,
    is_read_committed: bool = False,
    leader_epochs: Mapping[TopicPartition, int] | None = None,
) -> Call[dict[TopicPartition, list_offsets.ListOffsetsPartitionResponse]]:
    """Find the first offset at or after a time; the two constants stand for the ends of the log."""
    epochs = leader_epochs or {}
    request = list_offsets.ListOffsetsRequest(
        replica_id=NO_REPLICA,
        isolation_level=READ_COMMITTED if is_read_committed else READ_UNCOMMITTED,
        topics=tuple(
            list_offsets.ListOffsetsTopic(
                name=topic,
                partitions=tuple(
                    list_offsets.ListOffsetsPartition(
                        partition_index=at.partition,
                        current_leader_epoch=epochs.get(at, NO_EPOCH),
                        timestamp=timestamps[at],
                    )
                    for at in partitions
                ),
            )
            for topic, partitions in by_topic(timestamps).items()
        ),
    )

    def read(
        answer: list_offsets.ListOffsetsResponse,
    ) -> dict[TopicPartition, list_offsets.ListOffsetsPartitionResponse]:
        return {
            TopicPartition(topic.name, partition.partition_index): partition
            for topic in answer.topics
            for partition in topic.partitions
        }

    return Call(request, list_offsets.ListOffsetsResponse, read)


def start_producer() -> Call[ProducerIdentity]:
    """Request an identity for an idempotent producer without transactions."""
    request = init_producer_id.InitProducerIdRequest(transaction_timeout_ms=2**31 - 1)

    def read(answer: init_producer_id.InitProducerIdResponse) -> ProducerIdentity:
        raise_error(answer.error_code, None, "producer id")
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    return Call(
        request, init_producer_id.InitProducerIdResponse, read, INIT_PRODUCER_ID_VERSION_MAX
    )


def describe_settings(
    resource_type: int, names: Sequence[str], keys: Sequence[str] | None = None
) -> Call[dict[str, describe_configs.DescribeConfigsResult]]:
    """Return the settings of topics, brokers or groups, by name; only these `keys`, or all."""
    request = describe_configs.DescribeConfigsRequest(
        resources=tuple(
            describe_configs.DescribeConfigsResource(
                resource_type=resource_type,
                resource_name=name,
                configuration_keys=None if keys is None else tuple(keys),
            )
            for name in names
        )
    )

    def read(
        answer: describe_configs.DescribeConfigsResponse,
    ) -> dict[str, describe_configs.DescribeConfigsResult]:
        return {result.resource_name: result for result in answer.results}

    return Call(request, describe_configs.DescribeConfigsResponse, read)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Return the partitions grouped by topic, the form that requests need."""
    topics: dict[str, list[TopicPartition]] = {}
    for at in partitions:
        topics.setdefault(at.topic, []).append(at)
    return topics
