"""The partitions of one fetch, as far as its client may read them.

A consumer needs READ on each topic. A fetch with a replica id needs CLUSTER_ACTION, for all of its
topics: without that check each client could act as a broker (CVE-2018-1288). Only the listener of
the brokers answers it with records. The permission is
checked before a topic is looked up by its name, so a denial does not show whether the topic exists.

Each topic is decided once in a round of reads: a fetch of a thousand partitions of one topic costs
one decision. A fetch that reads again after a wait asks again. Without an authorizer there is no
`ReadAccess`, and nothing is asked. This module reads no records.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from penstock.broker.context import TOPIC_ID_VERSION, RequestContext
from penstock.broker.error_mapping import code_of
from penstock.broker.fetch_sessions import SessionPartition
from penstock.broker.partition_states import hosted_partition
from penstock.core.errors import (
    NotLeaderError,
    PenstockError,
    UnknownTopicIdError,
    UnsupportedCompressionError,
)
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.fetch import FetchRequest
from penstock.records.compression import ZSTD
from penstock.replication.admission import Fetcher
from penstock.replication.hosted_partition import HostedPartition
from penstock.security.acls.values import Operation, ResourceType

ZSTD_VERSION: Final = 10
"""Clients with an older version cannot decompress zstd (KIP-110)."""


_UNAUTHORIZED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class ReadDeniedError(PenstockError):
    """The client may not read a partition."""


def is_from_replica(request: FetchRequest) -> bool:
    """Whether the client claims to be a broker that has replicas of the partitions."""
    return request.replica_id >= 0 or request.replica_state.replica_id >= 0


def fetcher_of(request: FetchRequest, context: RequestContext) -> Fetcher | None:
    """Return the broker that fetches as a follower; None for a consumer.

    Its reports count only if its registration is the one in the image.
    """
    if not context.peer.is_broker or not is_from_replica(request):
        return None
    broker_id, epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
    registered = context.services.metadata.image.brokers.get(broker_id)
    is_counted = registered is not None and epoch == registered.epoch
    return Fetcher(broker_id, epoch, is_counted)


def refused_replica(request: FetchRequest, context: RequestContext) -> ErrorCode:
    """Return the error for a whole request; NONE for a consumer, and for a broker of the cluster.

    Only brokers may fetch as replicas, and they have their own listener. A request there must be
    that of a replica of this cluster, with a registration that was not replaced.
    """
    is_replica = is_from_replica(request)
    if not context.peer.is_broker:
        is_open = context.services.access is None
        return _UNAUTHORIZED if is_replica and is_open else ErrorCode.NONE
    if not is_replica:
        return ErrorCode.INVALID_REQUEST
    image, claim = context.services.metadata.image, request.replica_state
    if request.cluster_id is not None and request.cluster_id != image.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    registered = image.brokers.get(claim.replica_id)
    if registered is not None and claim.replica_epoch < registered.epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    return ErrorCode.NONE


def has_grown(hosted: Sequence[HostedPartition], asked: Sequence[SessionPartition]) -> bool:
    """Return whether a follower that found nothing could read something now."""
    return len(hosted) != len(asked) or any(
        partition.log.end_offset > one.fetch_offset
        for partition, one in zip(hosted, asked, strict=True)
    )


def read_code(error: PenstockError) -> ErrorCode:
    """Return the code for a partition that was not read."""
    if isinstance(error, ReadDeniedError):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return code_of(error)


class ReadAccess:
    """The permissions of one request, on a broker with an authorizer."""

    __slots__ = ("_context", "_decisions", "is_from_replica")

    def __init__(self, request: FetchRequest, context: RequestContext) -> None:
        self._context = context
        self._decisions: dict[str, bool] = {}
        """By topic; a replica has one, for all topics."""
        self.is_from_replica = is_from_replica(request)

    def begin_round(self) -> None:
        """Ask again for each topic: rights may have been revoked since the last round."""
        self._decisions.clear()

    def require_replica(self) -> None:
        """Raise `ReadDeniedError` if the client claims to be a broker and may not act as one."""
        if self.is_from_replica:
            self._require("")

    def require_topic(self, topic: str) -> None:
        """Raise `ReadDeniedError` if the client is a consumer and may not read the topic."""
        if not self.is_from_replica:
            self._require(topic)

    def _require(self, topic: str) -> None:
        is_allowed = self._decisions.get(topic)
        if is_allowed is None:
            context = self._context
            if self.is_from_replica:
                is_allowed = context.allows_cluster(Operation.CLUSTER_ACTION)
            else:
                is_allowed = context.allows(Operation.READ, ResourceType.TOPIC, topic)
            self._decisions[topic] = is_allowed
        if not is_allowed:
            raise ReadDeniedError("the client may not read the partition")


def find_partition(
    asked: SessionPartition, context: RequestContext, access: ReadAccess | None
) -> HostedPartition:
    """Return a partition that this broker leads; raise `PenstockError` for the others."""
    if access is not None:
        # Before the topic is looked up by its id: a denied replica learns nothing.
        access.require_replica()
    topic = asked.topic
    if context.api_version >= TOPIC_ID_VERSION:
        image = context.services.metadata.image.topic_by_id(asked.topic_id or UUID(int=0))
        if image is None:
            raise UnknownTopicIdError(f"there is no topic with id {asked.topic_id}")
        topic = image.name
    if access is not None:
        access.require_topic(topic)
    partition = hosted_partition(TopicPartition(topic, asked.partition), context)
    if context.api_version < ZSTD_VERSION and partition.rules.codec == ZSTD:
        raise UnsupportedCompressionError(f"{partition.name} holds zstd; fetch with v10 or later")
    if access is not None and access.is_from_replica:
        raise NotLeaderError(f"{partition.name} has no replica on another broker")
    return partition
