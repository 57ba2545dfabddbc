"""kafka-python behind the driver's calls; consumers have no group id and assign.

A client that cannot log in logs the reason and tries again until its time is over, and then raises
only that. So the calls of a client with a login raise the first reason that it logs.
"""

import logging
import sys
import time
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic, OffsetSpec
from kafka.errors import KafkaError, for_code
from kafka.net.sasl.oauth import AbstractTokenProvider

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
TIMESTAMP_TYPES = {0: "create", 1: "append"}


class GivenToken(AbstractTokenProvider):  # type: ignore[misc]
    """Always the same token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


class FirstReason(logging.Handler):
    """Raises the reason of a failed connection at the place where the client logs it."""

    def emit(self, record: logging.LogRecord) -> None:
        if str(record.msg).startswith("Bootstrap connection") and isinstance(record.args, tuple):
            for argument in record.args:
                if isinstance(argument, Exception):
                    raise argument


FIRST_REASON = FirstReason()


class KafkaPythonDriver:
    """See the module."""

    def __init__(self, bootstrap: str) -> None:
        self.settings: dict[str, Any] = {"bootstrap_servers": bootstrap}
        self.admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def error_of(self, error: Exception) -> Error:
        number = getattr(error, "errno", None) if isinstance(error, KafkaError) else None
        return Error(type(error).__name__, number)

    def secure(self, security: Security) -> None:
        named = {
            "bootstrap_servers": security["bootstrap"],
            "security_protocol": security["protocol"],
            "ssl_cafile": security["ca"],
            "ssl_certfile": security["certificate"],
            "ssl_keyfile": security["key"],
            "sasl_mechanism": security["mechanism"],
            "sasl_plain_username": security["user"],
            "sasl_plain_password": security["password"],
        }
        self.settings = {name: value for name, value in named.items() if value}
        logging.getLogger("kafka.net.manager").addHandler(FIRST_REASON)
        if security["token"]:
            self.settings["sasl_oauth_token_provider"] = GivenToken(security["token"])

    def describe_cluster(self) -> Cluster:
        found = self.admin.describe_cluster()
        return {
            "nodes": [
                {"id": n["broker_id"], "host": n["host"], "port": n["port"]}
                for n in found["brokers"]
            ],
            "controller": found["controller_id"],
            "cluster_id": found["cluster_id"],
        }

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=configs)
        self.admin.create_topics([new])

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic])

    def list_topics(self) -> list[str]:
        return sorted(self.admin.list_topics())

    def describe_topic(self, topic: str) -> Topic:
        (found,) = self.admin.describe_topics([topic])
        if found["error_code"]:
            raise for_code(found["error_code"])
        return {
            "name": found["name"],
            "topic_id": str(found["topic_id"]),
            "partitions": [
                {
                    "id": p["partition_index"],
                    "leader": p["leader_id"],
                    "replicas": p["replica_nodes"],
                    "isr": p["isr_nodes"],
                }
                for p in found["partitions"]
            ],
        }

    def topic_configs(self, topic: str, names: list[str]) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, names)
        found = self.admin.describe_configs([resource], config_filter="all")["topic"][topic]
        return {name: found[name]["value"] for name in names}

    def list_offset(self, topic: str, partition: int, at: str, number: int) -> int:
        specs = {
            "earliest": OffsetSpec.EARLIEST,
            "latest": OffsetSpec.LATEST,
            "max_timestamp": OffsetSpec.MAX_TIMESTAMP,
            "timestamp": number,
        }
        place = TopicPartition(topic, partition)
        found = self.admin.list_partition_offsets({place: specs[at]})[place]
        return NO_OFFSET if found is None else int(found.offset)

    def produce(self, call: Produce) -> list[tuple[int, int]]:
        producer = KafkaProducer(
            **self.settings,
            compression_type=None if call.codec == "none" else call.codec,
            acks="all" if call.acks == "all" else int(call.acks),
            enable_idempotence=call.idempotence,
            max_request_size=4 << 20,
            linger_ms=5,
            delivery_timeout_ms=TIMEOUT_SECONDS * 1000,
            request_timeout_ms=TIMEOUT_SECONDS * 1000 - 1000,
        )
        try:
            sent = [
                producer.send(
                    call.topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in call.records
            ]
            told = [future.get(TIMEOUT_SECONDS) for future in sent]
            return [(answer.partition, answer.offset) for answer in told]
        finally:
            producer.close(timeout=5)

    def fetch(self, call: Fetch) -> list[Record]:
        consumer = KafkaConsumer(
            **self.settings,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=4 << 20,
        )
        try:
            return self._read(consumer, call)
        finally:
            consumer.close()

    def _read(self, consumer: KafkaConsumer, call: Fetch) -> list[Record]:
        place = TopicPartition(call.topic, call.partition)
        consumer.assign([place])
        _seek(consumer, place, call)
        if call.then_produce is not None:
            self.produce(call.then_produce)
        records: list[Record] = []
        deadline = time.monotonic() + call.timeout_ms / 1000
        while len(records) < call.count and time.monotonic() < deadline:
            for batch in consumer.poll(timeout_ms=50).values():
                records += [
                    Record(
                        partition=found.partition,
                        value=found.value,
                        key=found.key,
                        headers=tuple(found.headers),
                        timestamp_ms=found.timestamp,
                        timestamp_type=TIMESTAMP_TYPES[found.timestamp_type],
                        offset=found.offset,
                    )
                    for found in batch
                ]
        return records[: call.count]


def _seek(consumer: KafkaConsumer, place: TopicPartition, call: Fetch) -> None:
    if call.at == "offset":
        consumer.seek(place, call.number)
    elif call.at == "earliest":
        consumer.seek_to_beginning(place)
    elif call.at == "latest":
        consumer.seek_to_end(place)
    else:
        consumer.seek(place, consumer.offsets_for_times({place: call.number})[place].offset)
    consumer.position(place)


if __name__ == "__main__":
    serve(KafkaPythonDriver(sys.argv[1]))
