"""The health of partitions as clients see it, one rule for every API that shows partitions.

A partition whose log this broker holds and cannot serve is shown as Kafka shows one on a failed
disk: no leader, LEADER_NOT_AVAILABLE, and its replica offline. It is not written to the metadata,
since the next start may find the log whole.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.broker.context import RequestContext
from penstock.cluster.image import TopicImage
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode

NO_LEADER: Final = -1


class PartitionHealth(NamedTuple):
    """How one partition is shown."""

    error_code: ErrorCode
    leader: int
    offline_replicas: tuple[int, ...]


def partition_states(
    topic: TopicImage, numbers: Iterable[int], context: RequestContext
) -> list[PartitionHealth]:
    """Return the health of these partitions of a topic, in the order given."""
    services = context.services
    node_id, is_served = services.node_id, services.replicas.is_served
    healthy = PartitionHealth(ErrorCode.NONE, node_id, ())
    broken = PartitionHealth(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, (node_id,))
    found = []
    for index in numbers:
        partition = topic.partitions[index]
        if partition.leader == node_id:
            is_healthy = is_served(TopicPartition(topic.name, index))
            found.append(healthy if is_healthy else broken)
        else:
            code = ErrorCode.NONE if partition.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE
            found.append(PartitionHealth(code, partition.leader, ()))
    return found
