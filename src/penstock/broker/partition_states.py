"""The health of partitions as clients see it, one rule for every API that shows partitions.

A partition whose log this broker holds and cannot serve is shown as Kafka shows one on a failed
disk: no leader, LEADER_NOT_AVAILABLE, and its replica offline. It is not written to the metadata
here, since the next start may find the log whole. Replicas of brokers that are not registered are
offline. A leader that the client cannot connect to is not shown.

The brokers are an argument: an answer that lists brokers passes the ones that it lists, so that it
never names a leader without an address (kafka-python's producer then sends nothing more).
"""

from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from penstock.broker.context import RequestContext
from penstock.cluster.elections import NO_LEADER
from penstock.cluster.image import BrokerImage, PartitionImage, TopicImage
from penstock.core.errors import NotLeaderError, UnknownTopicOrPartitionError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.replication.hosted_partition import HostedPartition


class PartitionHealth(NamedTuple):
    """How one partition is shown."""

    error_code: ErrorCode
    leader: int
    offline_replicas: tuple[int, ...]


def partition_states(
    topic: TopicImage,
    numbers: Iterable[int],
    brokers: Mapping[int, BrokerImage],
    context: RequestContext,
) -> list[PartitionHealth]:
    """Return the health of these partitions of a topic, in the order given.

    `brokers` are those of the image that `topic` is from.
    """
    services = context.services
    node_id, is_served = services.node_id, services.replicas.is_served
    is_registered = node_id in brokers
    healthy = PartitionHealth(ErrorCode.NONE, node_id, ())
    found = []
    for index in numbers:
        partition = topic.partitions[index]
        if partition.leader != node_id or not is_registered:
            found.append(_elsewhere(partition, brokers, context.peer.listener))
            continue
        health = healthy
        if len(partition.replicas) > 1:
            health = PartitionHealth(ErrorCode.NONE, node_id, _offline(partition, brokers))
        if not is_served(TopicPartition(topic.name, index)):
            offline = tuple(dict.fromkeys((node_id, *health.offline_replicas)))
            health = PartitionHealth(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, offline)
        found.append(health)
    return found


def hosted_partition(name: TopicPartition, context: RequestContext) -> HostedPartition:
    """Return a partition of this broker, whatever its role is.

    Raises `NotLeaderError` for one that another broker leads: the client has old metadata. Raises
    `UnknownTopicOrPartitionError`, or the error of its log, otherwise.
    """
    services = context.services
    try:
        return services.replicas.partition(name)
    except UnknownTopicOrPartitionError:
        at = services.metadata.image.partition(name.topic, name.partition)
        if at is None or at.leader == services.node_id:
            raise
        raise NotLeaderError(f"this broker does not lead {name}") from None


def _elsewhere(
    partition: PartitionImage, brokers: Mapping[int, BrokerImage], listener: str
) -> PartitionHealth:
    """Return the health of a partition that this broker does not lead."""
    leader = brokers.get(partition.leader)
    offline = _offline(partition, brokers)
    if leader is None:
        return PartitionHealth(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, offline)
    if leader.endpoint(listener) is None:
        return PartitionHealth(ErrorCode.LISTENER_NOT_FOUND, NO_LEADER, offline)
    return PartitionHealth(ErrorCode.NONE, leader.id, offline)


def _offline(partition: PartitionImage, brokers: Container[int]) -> tuple[int, ...]:
    return tuple([one for one in partition.replicas if one not in brokers])
