"""Messages of confluent-kafka as `ConsumerRecord`s, and its errors as texts."""

from typing import TYPE_CHECKING

from penstock.consumers.consumer_record import ConsumerRecord
from penstock.core.types import TopicPartition

if TYPE_CHECKING:
    import confluent_kafka


def record_of(message: "confluent_kafka.Message[bytes, bytes]") -> ConsumerRecord:
    """Return a message without an error as a record."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    headers = message.headers() or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return ConsumerRecord(
        topic,
        partition,
        offset,
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs),
        max(1, message.delivery_count() or 1),
    )


def place_of(partition: "confluent_kafka.TopicPartition") -> TopicPartition:
    """Return topic and partition of a client's object."""
    return TopicPartition(partition.topic, partition.partition)
