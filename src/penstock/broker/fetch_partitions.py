"""The partitions of one fetch, as far as its client may read them.

A consumer needs READ on each topic. A fetch with a replica id needs CLUSTER_ACTION, for all of its
topics: without that check each client could act as a broker (CVE-2018-1288). Only the listener of
the brokers answers it with records. The permission is
checked before a topic is looked up by its name, so a denial does not show whether the topic exists.

With a replica selector, a leader sends consumers that name their rack to a replica there (KIP-392).
Consumers that know this protocol may read from followers; older ones may not.

Each topic is decided once in a round of reads: a fetch of a thousand partitions of one topic costs
one decision. A fetch that reads again after a wait asks again. Without an authorizer there is no
`ReadAccess`, and nothing is asked. This module reads no records.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from penstock.broker.context import TOPIC_ID_VERSION, RequestContext
from penstock.broker.error_mapping import code_of
from penstock.broker.fetch_sessions import FetchPlan, SessionPartition
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
from penstock.replication.followers.read_replicas import nearest
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.read_result import Redirect
from penstock.security.acls.values import Operation, ResourceType

ZSTD_VERSION: Final = 10
"""Clients with an older version cannot decompress zstd (KIP-110)."""
ANY_REPLICA_VERSION: Final = 11
"""Clients with an older version read from leaders only (KIP-392)."""


NO_TOPIC: Final = UUID(int=0)
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
    if context.services.replicas.start_waits and is_counted:
        _note_starts(request, context)
    return Fetcher(broker_id, epoch, is_counted)


def _note_starts(request: FetchRequest, context: RequestContext) -> None:
    """Note where the follower's logs begin, for deletions that wait for it."""
    replicas, follower = context.services.replicas, request.replica_state.replica_id
    for topic in request.topics:
        for one in topic.partitions:
            partition = replicas.find((topic.topic_id or NO_TOPIC).bytes, one.partition)
            if partition is not None:
                replicas.start_waits.reported(partition, follower, one.log_start_offset)


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


def has_news(plan: FetchPlan, hosted: Sequence[HostedPartition], context: RequestContext) -> bool:
    """Return whether a follower must be answered now, although there are no records for it.

    Consumers that read there wait for the high watermark, and a deletion waits for the log start.
    """
    replicas = context.services.replicas
    readers, waits = replicas.readers, replicas.start_waits
    if plan.session is None or not (readers or waits):
        return False
    now = replicas.now()
    return any(
        (
            asked.sent_high_watermark != partition.state.high_watermark
            and readers.has(partition, now)
        )
        or (asked.sent_log_start_offset != partition.log.log_start_offset and partition in waits)
        for partition, asked in zip(hosted, plan.partitions, strict=False)
    )


def read_outcome(error: PenstockError) -> ErrorCode | Redirect:
    """Return the outcome for a partition that was not read."""
    if isinstance(error, ReadElsewhereError):
        return error.redirect
    if isinstance(error, ReadDeniedError):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return code_of(error)


class ReadElsewhereError(PenstockError):
    """The client should read a partition from another replica."""

    def __init__(self, redirect: Redirect) -> None:
        super().__init__(f"read from broker {redirect.replica}")
        self.redirect = redirect


def read_access(request: FetchRequest, context: RequestContext) -> "ReadAccess | None":
    """Return the permissions and the rack of a request; None if neither counts here."""
    has_authorizer = context.services.access is not None
    if not has_authorizer and not request.rack_id:
        return None
    access = ReadAccess(request, context)
    return access if has_authorizer or access.rack else None


class ReadAccess:
    """The permissions of one request, on a broker with an authorizer, and the consumer's rack."""

    __slots__ = ("_context", "_decisions", "is_from_replica", "rack")

    def __init__(self, request: FetchRequest, context: RequestContext) -> None:
        self._context = context
        self._decisions: dict[str, bool] = {}
        """By topic; a replica has one, for all topics."""
        self.is_from_replica = is_from_replica(request)
        self.rack = "" if self.is_from_replica else _rack(request, context)
        """The rack to read in; empty if the consumer names none, or the broker has no selector."""

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


def _rack(request: FetchRequest, context: RequestContext) -> str:
    if context.api_version < ANY_REPLICA_VERSION:
        return ""
    return request.rack_id if context.services.settings.cluster.replica_selector_class else ""


def find_partition(
    asked: SessionPartition, context: RequestContext, access: ReadAccess | None
) -> HostedPartition:
    """Return a partition that the client may read here; raise `PenstockError` for the others."""
    if access is not None:
        # Before the topic is looked up by its id: a denied replica learns nothing.
        access.require_replica()
    topic = asked.topic
    if context.api_version >= TOPIC_ID_VERSION:
        image = context.services.metadata.image.topic_by_id(asked.topic_id or NO_TOPIC)
        if image is None:
            raise UnknownTopicIdError(f"there is no topic with id {asked.topic_id}")
        topic = image.name
    if access is not None:
        access.require_topic(topic)
    partition = hosted_partition(TopicPartition(topic, asked.partition), context)
    if context.api_version < ANY_REPLICA_VERSION:
        _refuse_old(partition, context)
    if access is not None:
        if access.is_from_replica:
            raise NotLeaderError(f"{partition.name} has no replica on another broker")
        if access.rack and partition.state.in_sync is not None:
            _redirect(partition, asked, context, access.rack)
    return partition


def _refuse_old(partition: HostedPartition, context: RequestContext) -> None:
    """Raise an error if a client of this version cannot read the partition here."""
    if context.api_version < ZSTD_VERSION and partition.rules.codec == ZSTD:
        raise UnsupportedCompressionError(f"{partition.name} holds zstd; fetch with v10 or later")
    if not partition.state.is_leader:
        raise NotLeaderError(f"this broker does not lead {partition.name}")


def _redirect(
    partition: HostedPartition, asked: SessionPartition, context: RequestContext, rack: str
) -> None:
    """Raise `ReadElsewhereError` if a replica in the consumer's rack should serve it."""
    state, start = partition.state, partition.log.log_start_offset
    state.require_leader(asked.current_leader_epoch)
    if not start <= asked.fetch_offset <= partition.log.end_offset:
        return
    replicas = context.services.replicas
    found = nearest(
        partition,
        context.services.metadata.image.brokers,
        rack=rack,
        listener=context.peer.listener,
        offset=asked.fetch_offset,
    )
    if found is not None:
        replicas.readers.note(partition, replicas.now())
        # The follower's fetch may wait already, and know an older high watermark.
        replicas.answer_soon(partition)
        stable = partition.last_stable_offset
        raise ReadElsewhereError(Redirect(found, state.high_watermark, start, stable))
