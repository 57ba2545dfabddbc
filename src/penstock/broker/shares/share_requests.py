"""What ShareFetch and ShareAcknowledge have in common: checks, acknowledgements, leaders.

The order of checks is Kafka's. A partition that a client may not read, or that is not led here,
has an error of its own; the others of the request are served.
"""

import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar
from uuid import UUID

from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import code_of, message_of
from penstock.broker.pacing.slices import NextTurn
from penstock.broker.partition_states import hosted_partition
from penstock.broker.share_sessions.share_ports import LiveSharePartition, ShareGroups
from penstock.broker.share_sessions.share_session_table import SharePartitionId, ShareSession
from penstock.cluster.elections import NO_LEADER
from penstock.coordinator.shares.delivery.acknowledgement import (
    REJECT,
    RENEW,
    Acknowledged,
    check_request,
)
from penstock.coordinator.shares.ports import Refusal
from penstock.core.deferred import Deferred
from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.share_acknowledge import (
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from penstock.protocol.messages.share_fetch import FetchTopic, ShareFetchRequest
from penstock.replication.hosted_partition import HostedPartition
from penstock.security.acls.values import Operation, ResourceType

logger = logging.getLogger(__name__)

MEMBER_ID_CHARACTERS_MAX = 36
"""A UUID as text; Kafka refuses longer ones too."""
RENEW_VERSION = 2
"""Starting at this version of both requests, members may renew locks."""

LEADER_CHANGED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
"""The client learns the new leader with these errors."""


class Leader(NamedTuple):
    """The leader of a partition, and its address for this client."""

    broker_id: int
    epoch: int
    host: str = ""
    port: int = -1
    rack: str | None = None


NO_TOPIC_ID = UUID(int=0)
Acknowledgements = dict[SharePartitionId, list[Acknowledged]]
Item = TypeVar("Item")


def check_member(group: str | None, member: str | None, context: RequestContext) -> Refusal | None:
    """Return the error of a whole request whose group or member is not accepted."""
    if context.services.shares is None:
        return Refusal(ErrorCode.UNSUPPORTED_VERSION, "share groups are not enabled")
    if group is None:
        return Refusal(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
    if not context.allows(Operation.READ, ResourceType.GROUP, group):
        return Refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not member or len(member) > MEMBER_ID_CHARACTERS_MAX:
        return Refusal(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    return None


def acknowledgements_of(topics: Iterable[FetchTopic | AcknowledgeTopic]) -> Acknowledgements:
    """Return the acknowledgements of a request, by partition."""
    found: Acknowledgements = {}
    for topic in topics:
        for partition in topic.partitions:
            if partition.acknowledgement_batches:
                key = SharePartitionId(topic.topic_id or NO_TOPIC_ID, partition.partition_index)
                found.setdefault(key, []).extend(
                    Acknowledged(one.first_offset, one.last_offset, one.acknowledge_types)
                    for one in partition.acknowledgement_batches
                )
    return found


class Readable:
    """Which partitions a client may read here; asks once for each topic of a round."""

    __slots__ = ("_context", "_decisions")

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._decisions: dict[str, bool] = {}

    def find(self, partition: SharePartitionId) -> HostedPartition | Refusal:
        """Return a partition that this broker leads, or the error for the client."""
        topic = self._context.services.metadata.image.topic_by_id(partition.topic_id)
        if topic is None:
            return Refusal(ErrorCode.UNKNOWN_TOPIC_ID)
        if not self._allows(topic.name):
            return Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        name = TopicPartition(topic.name, partition.partition)
        try:
            hosted = hosted_partition(name, self._context)
            hosted.state.require_leader(-1)
        except PenstockError as error:
            return Refusal(code_of(error), message_of(error))
        return hosted

    def _allows(self, topic: str) -> bool:
        allowed = self._decisions.get(topic)
        if allowed is None:
            allowed = self._context.allows(Operation.READ, ResourceType.TOPIC, topic)
            self._decisions[topic] = allowed
        return allowed


class AcknowledgeRound:
    """The acknowledgements of one request, until each is durable or refused."""

    __slots__ = ("_left", "_on_done", "results")

    def __init__(self) -> None:
        self.results: dict[SharePartitionId, Refusal | None] = {}
        """By partition; None is success."""
        self._left = 1
        self._on_done: Callable[[], None] | None = None

    def begin(
        self,
        groups: ShareGroups,
        session: ShareSession,
        readable: Readable,
        items: Iterable[tuple[SharePartitionId, Sequence[Acknowledged]]],
        *,
        types_max: int,
        may_renew: bool,
    ) -> None:
        """Begin some of them; call `when_done` after the last."""
        for partition, batches in items:
            found = readable.find(partition)
            refusal = found if isinstance(found, Refusal) else None
            if refusal is None:
                refusal = check_request(batches, types_max=types_max, may_renew=may_renew)
            live = groups.find(session.group, partition)
            if refusal is None and live is None:
                why = "no record of the partition is acquired here"
                refusal = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
            if refusal is not None or live is None:
                self.results[partition] = refusal
            else:
                self._left += 1
                self._await(partition, live.acknowledge(session.member, batches))

    def _await(self, partition: SharePartitionId, answer: Deferred[Refusal | None]) -> None:
        def settle(outcome: Refusal | None) -> None:
            self.results[partition] = outcome
            self._one_less()

        answer.then(settle)

    def when_done(self, on_done: Callable[[], None]) -> None:
        """Call back once all are settled; now if they are."""
        self._on_done = on_done
        self._one_less()

    def _one_less(self) -> None:
        self._left -= 1
        if self._left == 0 and self._on_done is not None:
            on_done, self._on_done = self._on_done, None
            on_done()


def acknowledge_all(
    request: ShareFetchRequest | ShareAcknowledgeRequest,
    groups: ShareGroups,
    session: ShareSession,
    acknowledgements: Acknowledgements,
    context: RequestContext,
    done: Callable[[AcknowledgeRound], None],
) -> None:
    """Acknowledge all records of a request, a wide one in slices; then call `done`."""
    work = AcknowledgeRound()
    begin = partial(
        work.begin,
        groups,
        session,
        Readable(context),
        types_max=RENEW if context.api_version >= RENEW_VERSION else REJECT,
        may_renew=request.is_renew_ack,
    )
    if context.permit is None:
        begin(acknowledgements.items())
        work.when_done(partial(done, work))
    else:
        slices = _begin_in_slices(begin, tuple(acknowledgements.items()), context)
        context.services.tasks.start(_then(slices, work, partial(done, work)))


async def _begin_in_slices(
    begin: Callable[[Sequence[tuple[SharePartitionId, list[Acknowledged]]]], None],
    items: Sequence[tuple[SharePartitionId, list[Acknowledged]]],
    context: RequestContext,
) -> None:
    turn = NextTurn(context.services.turns, context.services.clock)
    for item in items:
        await turn.wait_if_due()
        begin((item,))


async def _then(
    work: Coroutine[object, object, None], round_: AcknowledgeRound, done: Callable[[], None]
) -> None:
    try:
        await work
    except Exception:
        # Caught here, because a task that ends with an exception ends the broker.
        logger.exception("acknowledgements of a wide request failed")
    round_.when_done(done)


def has_unread(live: LiveSharePartition, *, reads_committed: bool) -> bool:
    """Whether a share-partition has records for a member."""
    offset = live.next_offset()
    if offset is None:
        return False
    hosted = live.hosted
    return offset < (hosted.last_stable_offset if reads_committed else hosted.state.high_watermark)


def leader_of(partition: SharePartitionId, context: RequestContext) -> Leader:
    """Return the leader of a partition, as the client should know it."""
    image = context.services.metadata.image
    topic = image.topic_by_id(partition.topic_id)
    at = None if topic is None else image.partition(topic.name, partition.partition)
    if at is None or at.leader == NO_LEADER:
        return Leader(NO_LEADER, -1)
    broker = image.brokers.get(at.leader)
    endpoint = None if broker is None else broker.endpoint(context.peer.listener)
    if broker is None or endpoint is None:
        return Leader(at.leader, at.leader_epoch)
    return Leader(at.leader, at.leader_epoch, endpoint.host, endpoint.port, broker.rack)


def by_topic(items: Iterable[tuple[SharePartitionId, Item]]) -> dict[UUID, list[Item]]:
    """Return the items of an answer by topic, in their order."""
    found: dict[UUID, list[Item]] = {}
    for partition, item in items:
        found.setdefault(partition.topic_id, []).append(item)
    return found
