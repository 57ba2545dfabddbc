"""The embedded protocol of classic consumers: subscriptions and assignments inside of bytes.

Two bytes of version, then a message of Kafka's schema. A version that is newer than ours is read as
the newest we know, as Kafka does: later versions only add at the end. Bytes that cannot be decoded
are refused. It does NOT know groups.
"""

from typing import Final, cast
from uuid import UUID

from penstock.coordinator.groups.assignors import PartitionSets
from penstock.coordinator.groups.refused import RefusedError
from penstock.coordinator.metadata_view import TopicsView
from penstock.protocol.codec import Message, message_decoder, message_encoder
from penstock.protocol.encoder_source import Buffer
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from penstock.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from penstock.protocol.wire import WIRE_ERRORS

_VERSION_BYTES: Final = 2


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Decode the subscription and the owned partitions of a classic consumer."""
    return cast("ConsumerProtocolSubscription", _decode(ConsumerProtocolSubscription, data))


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Decode the assignment of a classic consumer."""
    return cast("ConsumerProtocolAssignment", _decode(ConsumerProtocolAssignment, data))


def encode_assignment(partitions: PartitionSets, topics: TopicsView, version: int) -> bytes:
    """Encode the assignment of a classic consumer; deleted topics are left out."""
    named = []
    for topic_id, numbers in partitions.items():
        topic = topics.by_id(topic_id)
        if topic is not None:
            named.append(TopicPartition(topic=topic.name, partitions=tuple(sorted(numbers))))
    named.sort(key=lambda given: given.topic)
    parts: list[Buffer] = [version.to_bytes(_VERSION_BYTES, "big")]
    assignment = ConsumerProtocolAssignment(assigned_partitions=tuple(named))
    message_encoder(ConsumerProtocolAssignment, version)(assignment, parts.append)
    return b"".join(parts)


def version_of(data: bytes) -> int:
    """The version that a subscription is written in, as far as we know it."""
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if len(data) < _VERSION_BYTES or version < 0:
        raise _malformed("it has no version")
    return min(version, ConsumerProtocolSubscription.VERSIONS[1])


def to_ids(
    named: ConsumerProtocolAssignment | ConsumerProtocolSubscription, topics: TopicsView
) -> dict[UUID, frozenset[int]]:
    """Partitions by topic id; topics and partitions that do not exist are left out."""
    given = (
        named.assigned_partitions
        if isinstance(named, ConsumerProtocolAssignment)
        else named.owned_partitions
    )
    found: dict[UUID, frozenset[int]] = {}
    for entry in given:
        topic = topics.by_name(entry.topic)
        if topic is not None:
            known = found.get(topic.topic_id, frozenset())
            found[topic.topic_id] = known.union(entry.partitions)
    return {topic_id: numbers for topic_id, numbers in found.items() if numbers}


def _decode(message_class: type[Message], data: bytes) -> Message:
    version = version_of(data)
    view = memoryview(data)
    try:
        return message_decoder(message_class, version)(view, _VERSION_BYTES, len(view), len(view))
    except WIRE_ERRORS as error:
        raise _malformed(str(error)) from error


def _malformed(reason: str) -> RefusedError:
    return RefusedError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"the embedded consumer protocol is malformed: {reason}"
    )
