"""A cluster in memory that answers typed calls, and fails as it is told to.

It stands behind the `Connection` port of `penstock.client.calls`: no socket, no bytes of the
protocol. Batches are kept as they come; of idempotence it knows what a client can see.
"""

import uuid
from collections.abc import Callable
from typing import TypeVar

from penstock.client.addresses import Address
from penstock.core.errors import AnswerLostError, BrokerUnreachableError
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
from penstock.records.batch import patch_for_append, read_header

Answer = TypeVar("Answer")
GROUP_RESOURCE = 32


class FakeCluster:
    """Topics, logs and the failures to come."""

    def __init__(self, broker_ids: tuple[int, ...] = (1,)) -> None:
        self.broker_ids = broker_ids
        self.logs: dict[TopicPartition, list[bytes]] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        self.leaders: dict[TopicPartition, int] = {}
        self.connections_opened = 0
        self.failures: list[tuple[type, ErrorCode | str]] = []
        """What the next request of a type meets: a code, `unreachable`, or `lost` afterwards."""
        self.requests: list[object] = []
        self.handlers: dict[type, Callable[[int, object, ErrorCode], object]] = {}
        """Who answers requests of other types: gets the broker's id, the request and a failure."""
        self.group_settings: dict[str, dict[str, str]] = {}
        """What groups override."""
        self.knows_group_settings = True
        self.auto_create = False
        self.is_down = False
        self.slept: list[float] = []

    def add_topic(self, name: str, partitions: int = 1) -> None:
        for index in range(partitions):
            at = TopicPartition(name, index)
            self.logs[at] = []
            self.leaders[at] = self.broker_ids[index % len(self.broker_ids)]

    def fail_next(self, request_type: type, how: ErrorCode | str, times: int = 1) -> None:
        self.failures += [(request_type, how)] * times

    def take_failure(self, request: object) -> ErrorCode | str | None:
        for index, (kind, how) in enumerate(self.failures):
            if isinstance(request, kind):
                del self.failures[index]
                return how
        return None

    def connect(self, address: Address) -> "FakeConnection":
        if self.is_down:
            raise BrokerUnreachableError(f"{address}: connection refused")
        self.connections_opened += 1
        broker_id = address.port - 9000 if address.port > 9000 else self.broker_ids[0]
        return FakeConnection(self, broker_id)

    def end_offset(self, at: TopicPartition) -> int:
        return read_header(self.logs[at][-1]).next_offset if self.logs[at] else 0


class FakeConnection:
    """A connection to one broker of the cluster."""

    def __init__(self, cluster: FakeCluster, broker_id: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.is_closed = False

    def call(
        self, request: object, answer_type: type[Answer], version_max: int | None = None
    ) -> Answer:
        assert not self.is_closed
        self.cluster.requests.append(request)
        failure = self.cluster.take_failure(request)
        if failure == "unreachable":
            raise BrokerUnreachableError("the connection was closed before the request was sent")
        code = failure if isinstance(failure, ErrorCode) else ErrorCode.NONE
        handlers: dict[type, Callable[..., object]] = {
            metadata.MetadataRequest: self._metadata,
            create_topics.CreateTopicsRequest: self._create,
            delete_topics.DeleteTopicsRequest: self._delete,
            create_partitions.CreatePartitionsRequest: self._add_partitions,
            incremental_alter_configs.IncrementalAlterConfigsRequest: self._configure,
            produce.ProduceRequest: self._produce,
            fetch.FetchRequest: self._fetch,
            list_offsets.ListOffsetsRequest: self._list_offsets,
            init_producer_id.InitProducerIdRequest: self._init_producer_id,
            describe_configs.DescribeConfigsRequest: self._describe_configs,
        }
        if type(request) in self.cluster.handlers:
            answer = self.cluster.handlers[type(request)](self.broker_id, request, code)
        else:
            answer = handlers[type(request)](request, code)
        if failure == "lost":
            raise AnswerLostError("the connection was closed before the answer")
        assert isinstance(answer, answer_type)
        return answer

    def send_unanswered(self, request: object, version_max: int | None = None) -> None:
        self.cluster.requests.append(request)
        assert isinstance(request, produce.ProduceRequest)
        self._produce(request, ErrorCode.NONE)

    def close(self) -> None:
        self.is_closed = True

    def _metadata(
        self, request: metadata.MetadataRequest, code: ErrorCode
    ) -> metadata.MetadataResponse:
        cluster = self.cluster
        known = sorted({at.topic for at in cluster.logs})
        names = known if request.topics is None else [t.name or "" for t in request.topics]
        topics = []
        for name in names:
            partitions = [at for at in cluster.logs if at.topic == name]
            if not partitions and request.allow_auto_topic_creation and cluster.auto_create:
                cluster.add_topic(name)
            topics.append(
                metadata.MetadataResponseTopic(
                    name=name,
                    topic_id=uuid.UUID(int=1),
                    is_internal=name.startswith("__"),
                    error_code=code
                    or (ErrorCode.NONE if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                    partitions=tuple(
                        metadata.MetadataResponsePartition(
                            partition_index=at.partition,
                            leader_id=cluster.leaders[at],
                            replica_nodes=(cluster.leaders[at],),
                            isr_nodes=(cluster.leaders[at],),
                        )
                        for at in partitions
                    ),
                )
            )
        return metadata.MetadataResponse(
            brokers=tuple(
                metadata.MetadataResponseBroker(node_id=i, host="fake", port=9000 + i)
                for i in cluster.broker_ids
            ),
            controller_id=cluster.broker_ids[0],
            topics=tuple(topics),
        )

    def _create(
        self, request: create_topics.CreateTopicsRequest, code: ErrorCode
    ) -> create_topics.CreateTopicsResponse:
        (topic,) = request.topics
        if not code and TopicPartition(topic.name, 0) in self.cluster.logs:
            code = ErrorCode.TOPIC_ALREADY_EXISTS
        if not code:
            self.cluster.add_topic(topic.name, max(1, topic.num_partitions))
        return create_topics.CreateTopicsResponse(
            topics=(create_topics.CreatableTopicResult(name=topic.name, error_code=code),)
        )

    def _add_partitions(
        self, request: create_partitions.CreatePartitionsRequest, code: ErrorCode
    ) -> create_partitions.CreatePartitionsResponse:
        (topic,) = request.topics
        existing = sum(at.topic == topic.name for at in self.cluster.logs)
        if not code and not existing:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not code and topic.count <= existing:
            code = ErrorCode.INVALID_PARTITIONS
        if not code:
            self.cluster.add_topic(topic.name, topic.count)
        result = create_partitions.CreatePartitionsTopicResult(name=topic.name, error_code=code)
        return create_partitions.CreatePartitionsResponse(results=(result,))

    def _configure(
        self, request: incremental_alter_configs.IncrementalAlterConfigsRequest, code: ErrorCode
    ) -> incremental_alter_configs.IncrementalAlterConfigsResponse:
        (resource,) = request.resources
        if resource.resource_type == GROUP_RESOURCE:
            settings = self.cluster.group_settings.setdefault(resource.resource_name, {})
            for config in () if code else resource.configs:
                settings.pop(config.name, None)
                if config.value is not None:
                    settings[config.name] = config.value
        elif not code and TopicPartition(resource.resource_name, 0) not in self.cluster.logs:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        result = incremental_alter_configs.AlterConfigsResourceResponse(
            error_code=code,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        return incremental_alter_configs.IncrementalAlterConfigsResponse(responses=(result,))

    def _delete(
        self, request: delete_topics.DeleteTopicsRequest, code: ErrorCode
    ) -> delete_topics.DeleteTopicsResponse:
        (name,) = request.topic_names
        found = [at for at in self.cluster.logs if at.topic == name]
        if not found and not code:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not code:
            for at in found:
                del self.cluster.logs[at]
        return delete_topics.DeleteTopicsResponse(
            responses=(delete_topics.DeletableTopicResult(name=name, error_code=code),)
        )

    def _produce(self, request: produce.ProduceRequest, code: ErrorCode) -> produce.ProduceResponse:
        return produce.ProduceResponse(
            responses=tuple(
                produce.TopicProduceResponse(
                    name=topic.name,
                    partition_responses=tuple(
                        produce.PartitionProduceResponse(
                            index=part.index,
                            base_offset=0,
                            error_code=code
                            or self._append(TopicPartition(topic.name, part.index), part.records),
                        )
                        for part in topic.partition_data
                    ),
                )
                for topic in request.topic_data
            )
        )

    def _append(
        self, at: TopicPartition, records: bytes | bytearray | memoryview | None
    ) -> ErrorCode:
        assert records is not None
        cluster = self.cluster
        if cluster.leaders[at] != self.broker_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        batch = bytearray(records)
        header = read_header(batch)
        for kept in cluster.logs[at]:
            old = read_header(kept)
            same = (old.producer_id, old.base_sequence) == (
                header.producer_id,
                header.base_sequence,
            )
            if header.has_producer and same:
                return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        patch_for_append(batch, 0, base_offset=cluster.end_offset(at), leader_epoch=0)
        cluster.logs[at].append(bytes(batch))
        return ErrorCode.NONE

    def _fetch(self, request: fetch.FetchRequest, code: ErrorCode) -> fetch.FetchResponse:
        return fetch.FetchResponse(
            responses=tuple(
                fetch.FetchableTopicResponse(
                    topic=topic.topic,
                    partitions=tuple(
                        self._fetched(TopicPartition(topic.topic, part.partition), part, code)
                        for part in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )

    def _fetched(
        self, at: TopicPartition, part: fetch.FetchPartition, code: ErrorCode
    ) -> fetch.PartitionData:
        if self.cluster.leaders[at] != self.broker_id:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        wanted = [
            batch
            for batch in self.cluster.logs[at]
            if read_header(batch).last_offset >= part.fetch_offset
        ]
        return fetch.PartitionData(
            partition_index=at.partition,
            error_code=code,
            high_watermark=self.cluster.end_offset(at),
            records=b"" if code else b"".join(wanted[:2]),
        )

    def _list_offsets(
        self, request: list_offsets.ListOffsetsRequest, code: ErrorCode
    ) -> list_offsets.ListOffsetsResponse:
        return list_offsets.ListOffsetsResponse(
            topics=tuple(
                list_offsets.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=tuple(
                        list_offsets.ListOffsetsPartitionResponse(
                            partition_index=part.partition_index,
                            error_code=code,
                            offset=self._offset_of(
                                TopicPartition(topic.name, part.partition_index), part.timestamp
                            ),
                        )
                        for part in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )

    def _offset_of(self, at: TopicPartition, timestamp: int) -> int:
        if timestamp == -2:
            return self.cluster.log_starts.get(at, 0)
        if timestamp == -1:
            return self.cluster.end_offset(at)
        for batch in self.cluster.logs[at]:
            header = read_header(batch)
            if header.max_timestamp_ms >= timestamp:
                return header.base_offset
        return -1

    def _init_producer_id(
        self, request: init_producer_id.InitProducerIdRequest, code: ErrorCode
    ) -> init_producer_id.InitProducerIdResponse:
        return init_producer_id.InitProducerIdResponse(
            error_code=code, producer_id=7, producer_epoch=0
        )

    def _describe_configs(
        self, request: describe_configs.DescribeConfigsRequest, code: ErrorCode
    ) -> describe_configs.DescribeConfigsResponse:
        return describe_configs.DescribeConfigsResponse(
            results=tuple(self._described(resource, code) for resource in request.resources)
        )

    def _described(
        self, resource: describe_configs.DescribeConfigsResource, code: ErrorCode
    ) -> describe_configs.DescribeConfigsResult:
        configs = [_config("retention.ms", "1000", 1), _config("cleanup.policy", "delete", 5)]
        if resource.resource_type == GROUP_RESOURCE:
            own = self.cluster.group_settings.get(resource.resource_name, {})
            configs = [_config(name, value, 8) for name, value in own.items()]
            configs.append(_config("consumer.heartbeat.interval.ms", "5000", 5))
            if not self.cluster.knows_group_settings:
                code = ErrorCode.INVALID_REQUEST
        return describe_configs.DescribeConfigsResult(
            error_code=code,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=() if code else tuple(configs),
        )


def _config(name: str, value: str, source: int) -> describe_configs.DescribeConfigsResourceResult:
    return describe_configs.DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=False,
        config_source=source,
        is_sensitive=False,
        synonyms=(),
    )
