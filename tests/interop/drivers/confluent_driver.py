"""confluent-kafka (librdkafka) behind the driver's calls.

A librdkafka consumer wants a group id even when it only assigns; it is given one and never
subscribes or commits. Its position at `latest` is asked for and assigned as a number, because
librdkafka settles a logical end only when the first fetch is on its way.

librdkafka reports a failed login to a callback and tries again for as long as it may. So the calls
of a client with a login end with the first such report.
"""

import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType  # type: ignore[attr-defined]

from tests.interop.driver_protocol import (
    NO_OFFSET,
    Cluster,
    Error,
    Fetch,
    Produce,
    Record,
    Security,
    Topic,
    serve,
)

TIMEOUT_SECONDS = 30
TOKEN_EXPIRES_AT = 2**31
"""The broker decides whether a token is valid, not its client."""


class ConfluentDriver:
    """See the module."""

    def __init__(self, bootstrap: str) -> None:
        self.settings: dict[str, Any] = {"bootstrap.servers": bootstrap}
        self.reported: list[KafkaError] = []
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def error_of(self, error: Exception) -> Error:
        if isinstance(error, KafkaException) and isinstance(error.args[0], KafkaError):
            return Error(error.args[0].name(), error.args[0].code())
        return Error(type(error).__name__, None)

    def secure(self, security: Security) -> None:
        token = security["token"]
        named = {
            "bootstrap.servers": security["bootstrap"],
            "security.protocol": security["protocol"],
            "ssl.ca.location": security["ca"],
            "ssl.certificate.location": security["certificate"],
            "ssl.key.location": security["key"],
            "sasl.mechanism": security["mechanism"],
            "sasl.username": security["user"],
            "sasl.password": security["password"],
        }
        self.settings = {name: value for name, value in named.items() if value}
        if token:
            self.settings["oauth_cb"] = lambda _settings: (token, TOKEN_EXPIRES_AT)
        self.reported = []
        self.settings["error_cb"] = self.reported.append

    def _check_reports(self) -> None:
        """Raise the first error that a client reported, except the summary of them."""
        while self.reported:
            error = self.reported.pop(0)
            if error.code() != KafkaError._ALL_BROKERS_DOWN:
                raise KafkaException(error)

    def describe_cluster(self) -> Cluster:
        found = self.admin.describe_cluster(request_timeout=TIMEOUT_SECONDS).result()
        return {
            "nodes": [{"id": n.id, "host": n.host, "port": n.port} for n in found.nodes],
            "controller": found.controller.id,
            "cluster_id": found.cluster_id,
        }

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        new = NewTopic(topic, partitions, 1, config=configs)
        self.admin.create_topics([new])[topic].result(TIMEOUT_SECONDS)

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(TIMEOUT_SECONDS)

    def list_topics(self) -> list[str]:
        return sorted(self.admin.list_topics(timeout=TIMEOUT_SECONDS).topics)

    def describe_topic(self, topic: str) -> Topic:
        found = self.admin.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_SECONDS)
        return {
            "name": found.name,
            "topic_id": str(found.topic_id),
            "partitions": [
                {
                    "id": p.id,
                    "leader": p.leader.id,
                    "replicas": [n.id for n in p.replicas],
                    "isr": [n.id for n in p.isr],
                }
                for p in found.partitions
            ],
        }

    def topic_configs(self, topic: str, names: list[str]) -> dict[str, str | None]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = self.admin.describe_configs([resource])[resource].result(TIMEOUT_SECONDS)
        return {name: found[name].value for name in names}

    def list_offset(self, topic: str, partition: int, at: str, number: int) -> int:
        specs: dict[str, Callable[[], Any]] = {
            "earliest": OffsetSpec.earliest,
            "latest": OffsetSpec.latest,
            "max_timestamp": OffsetSpec.max_timestamp,
            "timestamp": lambda: OffsetSpec.for_timestamp(number),
        }
        place = TopicPartition(topic, partition)
        answers = self.admin.list_offsets({place: specs[at]()})
        return int(answers[place].result(TIMEOUT_SECONDS).offset)

    def produce(self, call: Produce) -> list[tuple[int, int]]:
        producer = Producer(
            {
                **self.settings,
                "compression.type": call.codec,
                "acks": call.acks,
                "enable.idempotence": call.idempotence,
                "message.max.bytes": 4 << 20,
                "linger.ms": 5,
                "message.timeout.ms": TIMEOUT_SECONDS * 1000,
            }
        )
        sent: list[Future[tuple[int, int]]] = []
        for record in call.records:
            sent.append(_send(producer, call.topic, record))
            producer.poll(0)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while producer.flush(0.05) and time.monotonic() < deadline:
            self._check_reports()
        return [future.result(0) for future in sent]

    def fetch(self, call: Fetch) -> list[Record]:
        consumer = Consumer(
            {
                **self.settings,
                "group.id": "interop-assign-only",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.message.max.bytes": 4 << 20,
            }
        )
        try:
            return self._read(consumer, call)
        finally:
            consumer.close()

    def _read(self, consumer: Consumer, call: Fetch) -> list[Record]:
        consumer.assign([TopicPartition(call.topic, call.partition, _start(consumer, call))])
        if call.then_produce is not None:
            self.produce(call.then_produce)
        records: list[Record] = []
        deadline = time.monotonic() + call.timeout_ms / 1000
        while len(records) < call.count and time.monotonic() < deadline:
            message = consumer.poll(0.05)
            self._check_reports()
            if message is None:
                continue
            problem = message.error()
            if problem is not None:
                raise KafkaException(problem)
            records.append(_record(message))
        return records


def _send(producer: Producer, topic: str, record: Record) -> Future[tuple[int, int]]:
    future: Future[tuple[int, int]] = Future()

    def delivered(problem: KafkaError | None, message: Message) -> None:
        if problem is not None:
            future.set_exception(KafkaException(problem))
        else:
            offset = message.offset()
            future.set_result((record.partition, NO_OFFSET if offset is None else offset))

    more: dict[str, Any] = {}
    if record.timestamp_ms is not None:
        more["timestamp"] = record.timestamp_ms
    producer.produce(
        topic,
        value=record.value,
        key=record.key,
        partition=record.partition,
        headers=list(record.headers),
        on_delivery=delivered,
        **more,
    )
    return future


def _start(consumer: Consumer, call: Fetch) -> int:
    if call.at == "offset":
        return call.number
    if call.at == "earliest":
        return int(OFFSET_BEGINNING)
    place = TopicPartition(call.topic, call.partition)
    if call.at == "latest":
        _low, high = consumer.get_watermark_offsets(place, timeout=TIMEOUT_SECONDS)
        return int(high)
    place.offset = call.number
    (found,) = consumer.offsets_for_times([place], timeout=TIMEOUT_SECONDS)
    return int(found.offset)


def _record(message: Message) -> Record:
    kind, timestamp_ms = message.timestamp()
    partition = message.partition()
    assert partition is not None
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    return Record(
        partition=partition,
        value=message.value(),
        key=message.key(),
        headers=tuple(headers),
        timestamp_ms=timestamp_ms,
        timestamp_type="append" if kind == TIMESTAMP_LOG_APPEND_TIME else "create",
        offset=message.offset(),
    )


if __name__ == "__main__":
    serve(ConfluentDriver(sys.argv[1]))
