"""Topics and records for tests, by librdkafka, the same on both brokers.

Guarantees: when a function returns, the broker has acknowledged its requests, and every partition
of a new topic has a leader that answers.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

SECONDS_MAX = 30.0
_POLL_SECONDS = 0.05

Header = tuple[str, bytes | None]


@dataclass(frozen=True)
class Record:
    """A record to produce. Without a timestamp it gets the clock's."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp_ms: int | None = None
    headers: tuple[Header, ...] = ()


def create_topic(
    bootstrap: str, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None
) -> None:
    """Make a topic and wait until all its partitions answer.

    Nothing ages in it unless `config` says so: records with timestamps of long ago would be gone
    as soon as the broker looks.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topic = NewTopic(name, partitions, 1, config={"retention.ms": "-1", **(config or {})})
    admin.create_topics([topic])[name].result(SECONDS_MAX)
    _wait_until_led(bootstrap, name, partitions)


def _wait_until_led(bootstrap: str, name: str, partitions: int) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            end_offsets(bootstrap, name, partitions)
        except KafkaException:
            # Kafka answers before its broker half leads the partitions that its controller half has
            # created.
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_SECONDS)
        else:
            return


def end_offsets(
    bootstrap: str, name: str, partitions: int, *, is_read_committed: bool = False
) -> list[int]:
    """The offset after the last record of each partition, or after the last that is decided."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    wanted = {TopicPartition(name, number): latest for number in range(partitions)}
    level = IsolationLevel.READ_COMMITTED if is_read_committed else IsolationLevel.READ_UNCOMMITTED
    found = admin.list_offsets(wanted, isolation_level=level, request_timeout=SECONDS_MAX)
    by_partition = {at.partition: done.result(SECONDS_MAX).offset for at, done in found.items()}
    return [int(by_partition[number]) for number in range(partitions)]


def wait_until_decided(bootstrap: str, name: str, partitions: int) -> None:
    """Wait for the markers of transactions that have ended: brokers write them afterwards.

    What is produced meanwhile would stand before or after a marker as chance has it.
    """
    deadline = time.monotonic() + SECONDS_MAX
    while end_offsets(bootstrap, name, partitions) != end_offsets(
        bootstrap, name, partitions, is_read_committed=True
    ):
        assert time.monotonic() < deadline, f"{name} has an open transaction"
        time.sleep(_POLL_SECONDS)


def delete_topic(bootstrap: str, name: str) -> None:
    """Delete a topic; the broker may still be busy with its files."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.delete_topics([name])[name].result(SECONDS_MAX)


def add_partitions(bootstrap: str, name: str, total: int) -> None:
    """Give a topic more partitions, and wait until all of them answer."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_partitions([NewPartitions(name, total)])[name].result(SECONDS_MAX)
    _wait_until_led(bootstrap, name, total)


def delete_records_before(bootstrap: str, name: str, partition: int, offset: int) -> None:
    """Move the start of a partition, as retention would."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for done in admin.delete_records([TopicPartition(name, partition, offset)]).values():
        done.result(SECONDS_MAX)


def new_producer(bootstrap: str, settings: Mapping[str, str] | None = None) -> Producer:
    """A producer that numbers its records and keeps their order."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": "true",
            "linger.ms": "5",
            "log_level": "0",
            **(settings or {}),
        }
    )


def send(producer: Producer, topic: str, records: Iterable[Record]) -> None:
    """Hand over the records and wait until all are acknowledged."""
    refused: list[str] = []

    def told(error: object, _message: object) -> None:
        if error is not None:
            refused.append(str(error))

    for record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            partition=record.partition,
            on_delivery=told,
            timestamp=record.timestamp_ms or 0,
            headers=list(record.headers),
        )
        producer.poll(0)
    left = producer.flush(SECONDS_MAX)
    assert not refused, refused[:3]
    assert left == 0, f"{left} records of {topic} were not acknowledged in {SECONDS_MAX} s"


def produce(bootstrap: str, topic: str, records: Iterable[Record], *, codec: str = "none") -> None:
    """Produce with a producer of its own, which takes a second to be ready."""
    send(new_producer(bootstrap, {"compression.type": codec}), topic, records)


class Writer:
    """One producer for each codec, created at its first use, for tests that produce often."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._producers: dict[str, Producer] = {}

    def produce(self, topic: str, records: Iterable[Record], *, codec: str = "none") -> None:
        """Produce, and wait until all is acknowledged."""
        if codec not in self._producers:
            self._producers[codec] = new_producer(self.bootstrap, {"compression.type": codec})
        send(self._producers[codec], topic, records)
