"""A cluster in memory that answers calls, and fails as the test sets it.

It implements the `Connection` port of `client.transport.call`: no socket, no bytes of the protocol.
Batches are stored unchanged; of idempotence it has the part that a client can see.
"""

import uuid
from collections.abc import Callable
from typing import TypeVar

from penstock.client.transport.addresses import Address
from penstock.client.transport.call import Call, Ticket
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

Result = TypeVar("Result")
GROUP_RESOURCE = 32


class FakeCluster:
    """Topics, logs and the failures to come."""

    def __init__(self, broker_ids: tuple[int, ...] = (1,)) -> None:
        self.broker_ids = broker_ids
        self.logs: dict[TopicPartition, list[bytes]] = {}
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.leader_epochs: dict[TopicPartition, int] = {}
        self.stable_offsets: dict[TopicPartition, int] = {}
        """Where a log ends for who reads committed records, if not at its end."""
        self.aborted: dict[TopicPartition, list[tuple[int, int]]] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        self.leaders: dict[TopicPartition, int] = {}
        self.opened: list[FakeConnection] = []
        self.failures: list[tuple[type, ErrorCode | str]] = []
        """What the next request of a type meets: a code, `unreachable`, or `lost` afterwards."""
        self.requests: list[object] = []
        self.handlers: dict[type, Callable[[int, object, ErrorCode], object]] = {}
        """Who answers requests of other types: gets the broker's id, the request and a failure."""
        self.group_settings: dict[str, dict[str, str]] = {}
        """What groups override."""
        self.knows_group_settings = True
        self.auto_create = False
        self.replication_factor = 1
        self.is_down = False
        self.topic_settings: dict[str, str] = {}
        self.ports_down: set[int] = set()
        self.slept: list[float] = []

    def add_topic(self, name: str, partitions: int = 1) -> None:
        self.topic_ids[name] = uuid.UUID(int=len(self.topic_ids) + 1)
        for index in range(partitions):
            at = TopicPartition(name, index)
            self.logs[at] = []
            self.leaders[at] = self.broker_ids[index % len(self.broker_ids)]

    def replicas(self, at: TopicPartition) -> tuple[int, ...]:
        followers = [one for one in self.broker_ids if one != self.leaders[at]]
        return (self.leaders[at], *followers[: self.replication_factor - 1])

    def fail_next(self, request_type: type, how: ErrorCode | str, times: int = 1) -> None:
        self.failures += [(request_type, how)] * times

    def take_failure(self, request: object) -> ErrorCode | str | None:
        for index, (kind, how) in enumerate(self.failures):
            if isinstance(request, kind):
                del self.failures[index]
                return how
        return None

    def connect(self, address: Address) -> "FakeConnection":
        if self.is_down or address.port in self.ports_down:
            raise BrokerUnreachableError(f"{address}: connection refused")
        broker_id = address.port - 9000 if address.port > 9000 else self.broker_ids[0]
        self.opened.append(FakeConnection(self, broker_id))
        return self.opened[-1]

    @property
    def connections_opened(self) -> int:
        return len(self.opened)

    def end_offset(self, at: TopicPartition) -> int:
        return read_header(self.logs[at][-1]).next_offset if self.logs[at] else 0

    def stable_offset(self, at: TopicPartition) -> int:
        return self.stable_offsets.get(at, self.end_offset(at))


class FakeConnection:
    """A connection to one broker of the cluster."""

    def __init__(self, cluster: FakeCluster, broker_id: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.is_closed = False
        self._sent = 0
        self._answers: dict[int, object] = {}

    def carry(self, call: Call[Result]) -> Result:
        return self.receive(self.send(call))

    def send(self, call: Call[Result]) -> Ticket[Result]:
        assert not self.is_closed
        self.cluster.requests.append(call.request)
        failure = self.cluster.take_failure(call.request)
        if failure == "unreachable":
            raise BrokerUnreachableError("the connection was closed before the request was sent")
        code = failure if isinstance(failure, ErrorCode) else ErrorCode.NONE
        answer = self._answer(call.request, code)
        self._sent += 1
        self._answers[self._sent] = None if failure == "lost" else answer
        return Ticket(call, self._sent)

    def receive(self, ticket: Ticket[Result]) -> Result:
        answer = self._answers.pop(ticket.correlation_id)
        if self.is_closed or answer is None:
            raise AnswerLostError("the connection was closed before the answer")
        if ticket.call.answer_type is None:
            return ticket.call.read(None)
        assert isinstance(answer, ticket.call.answer_type)
        return ticket.call.read(answer)

    def forget(self, ticket: Ticket[Result]) -> None:
        del self._answers[ticket.correlation_id]

    @property
    def answers_waiting(self) -> int:
        """Answers that nobody received or forgot."""
        return len(self._answers)

    def close(self) -> None:
        self.is_closed = True

    def _answer(self, request: object, code: ErrorCode) -> object:
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
            return self.cluster.handlers[type(request)](self.broker_id, request, code)
        return handlers[type(request)](request, code)

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
                    topic_id=cluster.topic_ids.get(name),
                    is_internal=name.startswith("__"),
                    error_code=code
                    or (ErrorCode.NONE if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                    partitions=tuple(
                        metadata.MetadataResponsePartition(
                            partition_index=at.partition,
                            leader_id=cluster.leaders[at],
                            leader_epoch=cluster.leader_epochs.get(at, 0),
                            replica_nodes=cluster.replicas(at),
                            isr_nodes=cluster.replicas(at),
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
            cluster_id="fake-cluster",
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
            del self.cluster.topic_ids[name]
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
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        self._fetched(topic, part, request, code) for part in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )

    def _fetched(
        self,
        topic: fetch.FetchTopic,
        part: fetch.FetchPartition,
        request: fetch.FetchRequest,
        code: ErrorCode,
    ) -> fetch.PartitionData:
        cluster = self.cluster
        at = TopicPartition(topic.topic, part.partition)
        code = code or self._fetch_refusal(topic, at, part)
        if code:
            return fetch.PartitionData(
                partition_index=at.partition, error_code=code, high_watermark=-1, records=b""
            )
        is_committed = request.isolation_level == 1
        end = cluster.stable_offset(at) if is_committed else cluster.end_offset(at)
        wanted = [
            batch
            for batch in cluster.logs[at]
            if part.fetch_offset <= read_header(batch).last_offset < end
        ]
        return fetch.PartitionData(
            partition_index=at.partition,
            high_watermark=cluster.end_offset(at),
            last_stable_offset=cluster.stable_offset(at),
            log_start_offset=cluster.log_starts.get(at, 0),
            aborted_transactions=tuple(
                fetch.AbortedTransaction(producer_id=producer, first_offset=offset)
                for producer, offset in cluster.aborted.get(at, ())
            )
            if is_committed
            else None,
            records=b"".join(wanted[:2]),
        )

    def _fetch_refusal(
        self, topic: fetch.FetchTopic, at: TopicPartition, part: fetch.FetchPartition
    ) -> ErrorCode:
        cluster = self.cluster
        if topic.topic_id is not None and topic.topic_id != cluster.topic_ids.get(topic.topic):
            return ErrorCode.UNKNOWN_TOPIC_ID
        if at not in cluster.logs:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if cluster.leaders[at] != self.broker_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        epoch = cluster.leader_epochs.get(at, 0)
        if part.current_leader_epoch not in {-1, epoch}:
            is_old = part.current_leader_epoch < epoch
            return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
        if not cluster.log_starts.get(at, 0) <= part.fetch_offset <= cluster.end_offset(at):
            return ErrorCode.OFFSET_OUT_OF_RANGE
        return ErrorCode.NONE

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
                            leader_epoch=0,
                            offset=self._offset_of(
                                TopicPartition(topic.name, part.partition_index),
                                part.timestamp,
                                is_committed=request.isolation_level == 1,
                            ),
                        )
                        for part in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )

    def _offset_of(self, at: TopicPartition, timestamp: int, *, is_committed: bool) -> int:
        if timestamp == -2:
            return self.cluster.log_starts.get(at, 0)
        if timestamp == -1:
            cluster = self.cluster
            return cluster.stable_offset(at) if is_committed else cluster.end_offset(at)
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
        configs += [_config(name, value, 1) for name, value in self.cluster.topic_settings.items()]
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
