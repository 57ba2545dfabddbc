"""Incremental fetch sessions of KIP-227, as a pure state machine.

A consumer of many partitions names them once; after that it sends only changes, and receives only
changes. Guarantees:

- a request with the wrong epoch or an unknown session changes nothing and gets an error;
- a session belongs to the principal that started it: for each other one it does not exist, so a
  guessed session id neither shows nor disturbs the session of another client (Kafka allows this);
- a partition is left out of an incremental answer only if the client already knows all of it;
- sessions and the partitions in them are bounded. When there is no room, the client is answered in
  full without a session, which is always correct.

A session grants nothing: its partitions are authorized at each fetch, because rights may be revoked
meanwhile. That is NOT done here.

The moves, by (session id, epoch) of the request:

    any, -1   no session (and forget the named one)
    any, 0    full request: forget the named session, start a new one if there is room
    id, n>0   incremental: n must be the epoch we expect next

A session may be evicted when it was not used for two minutes, oldest first, as in Kafka. Time and
the random session id are given by the caller.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final
from uuid import UUID

from penstock.core.limits import FETCH_SESSION_PARTITIONS_MAX, FETCH_SESSIONS_MAX
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.fetch import FetchRequest
from penstock.security.principal import ANONYMOUS, Principal

FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
EPOCH_MAX: Final = 2**31 - 1
EVICTION_SECONDS_MIN: Final = 120.0
"""Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS."""

PartitionKey = tuple[UUID | str, int]
"""Topic id, or the name for clients older than topic ids, and the partition."""


class SessionPartition:
    """One partition of a fetch: what the client asks for, and what it was sent last."""

    __slots__ = (
        "bytes_max",
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
        "partition",
        "sent_high_watermark",
        "sent_log_start_offset",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: UUID | None, partition: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.fetch_offset = 0
        self.bytes_max = 0
        self.current_leader_epoch = -1
        self.last_fetched_epoch = -1
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1

    @property
    def key(self) -> PartitionKey:
        """The key of this partition in a session."""
        return (self.topic if self.topic_id is None else self.topic_id, self.partition)


Partitions = dict[PartitionKey, SessionPartition]
"""Partitions by their key, in the order in which they are read."""


class FetchSession:
    """One client's partitions, in the order in which they are served next."""

    __slots__ = ("id", "next_epoch", "owner", "partitions", "used_at", "uses_topic_ids")

    def __init__(
        self, session_id: int, owner: Principal, *, uses_topic_ids: bool, used_at: float
    ) -> None:
        self.id = session_id
        self.owner = owner
        self.next_epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.used_at = used_at
        self.partitions: OrderedDict[PartitionKey, SessionPartition] = OrderedDict()


class FetchPlan:
    """What to read for one request, and how to answer it."""

    __slots__ = ("error", "is_incremental", "partitions", "session")

    def __init__(
        self,
        partitions: list[SessionPartition],
        session: FetchSession | None = None,
        *,
        is_incremental: bool = False,
        error: ErrorCode = ErrorCode.NONE,
    ) -> None:
        self.partitions = partitions
        self.session = session
        self.is_incremental = is_incremental
        self.error = error

    @property
    def session_id(self) -> int:
        """The id to answer with; 0 when there is no session."""
        return 0 if self.session is None else self.session.id

    def include(
        self,
        partition: SessionPartition,
        *,
        has_news: bool,
        high_watermark: int,
        log_start_offset: int,
    ) -> bool:
        """Whether the answer must include the partition; remembers what the client will know.

        `has_news` means records, an error or a diverging epoch. A partition that had news goes to
        the end of the session, so that the others are served first next time.
        """
        if self.session is None:
            return True
        changed = (
            partition.sent_high_watermark != high_watermark
            or partition.sent_log_start_offset != log_start_offset
        )
        partition.sent_high_watermark = high_watermark
        partition.sent_log_start_offset = log_start_offset
        if has_news and partition.key in self.session.partitions:
            self.session.partitions.move_to_end(partition.key)
        return has_news or changed or not self.is_incremental


class FetchSessionCache:
    """All sessions of one broker."""

    def __init__(
        self,
        draw_session_id: Callable[[], int],
        *,
        sessions_max: int = FETCH_SESSIONS_MAX,
        partitions_max: int = FETCH_SESSION_PARTITIONS_MAX,
    ) -> None:
        self._draw_session_id = draw_session_id
        self.sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        """By id, least recently used first."""
        self._partition_count = 0
        self.refusals = 0
        """Requests for a session that were answered without one."""

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        request: FetchRequest,
        now: float,
        named: Partitions | None = None,
        owner: Principal = ANONYMOUS,
    ) -> FetchPlan:
        """Decide which partitions one request reads; with an error in the plan, none is read.

        `named` is the result of `requested`, from callers that have it already.
        """
        if named is None:
            named = requested(request)
        session = self._sessions.get(request.session_id)
        if session is not None and session.owner != owner:
            session = None
        if request.session_epoch == FINAL_EPOCH:
            self._end(session)
            return FetchPlan(list(named.values()))
        if request.session_epoch == INITIAL_EPOCH:
            self._end(session)
            return FetchPlan(list(named.values()), self._start(named, now, owner))
        return self._continue(session, request, now, named)

    def answer_nothing(self, plan: FetchPlan) -> int:
        """The client is answered without any partition; the session id to answer with.

        An incremental session goes on. A new one ends: its client was sent no partition, so it asks
        for all of them again, as clients of Kafka do.
        """
        if plan.is_incremental:
            return plan.session_id
        self._forget(plan.session_id)
        return 0

    def _start(self, partitions: Partitions, now: float, owner: Principal) -> FetchSession | None:
        if not partitions:
            return None
        if not self._make_room(len(partitions), now):
            self.refusals += 1
            return None
        session_id = self._draw_session_id()
        while session_id in self._sessions or session_id <= 0:
            session_id = self._draw_session_id()
        uses_topic_ids = next(iter(partitions.values())).topic_id is not None
        session = FetchSession(session_id, owner, uses_topic_ids=uses_topic_ids, used_at=now)
        session.partitions.update(partitions)
        self._sessions[session_id] = session
        self._partition_count += len(session.partitions)
        return session

    def _continue(
        self,
        session: FetchSession | None,
        request: FetchRequest,
        now: float,
        changes: Partitions,
    ) -> FetchPlan:
        if session is None:
            return FetchPlan([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.next_epoch != request.session_epoch:
            return FetchPlan([], error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        uses_topic_ids = session.uses_topic_ids
        if any((change.topic_id is not None) != uses_topic_ids for change in changes.values()):
            return FetchPlan([], error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if not self._has_room_for(session, changes):
            # Leaving a partition out would starve it; starting anew is always correct.
            self._forget(session.id)
            return FetchPlan([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        self._apply(session, request, changes)
        if not session.partitions:
            self._forget(session.id)
            return FetchPlan([])
        session.next_epoch = 1 if session.next_epoch == EPOCH_MAX else session.next_epoch + 1
        session.used_at = now
        self._sessions.move_to_end(session.id)
        return FetchPlan(list(session.partitions.values()), session, is_incremental=True)

    def _has_room_for(self, session: FetchSession, changes: Partitions) -> bool:
        new = sum(key not in session.partitions for key in changes)
        return self._partition_count + new <= self._partitions_max

    def _apply(self, session: FetchSession, request: FetchRequest, changes: Partitions) -> None:
        before = len(session.partitions)
        for key, change in changes.items():
            known = session.partitions.get(key)
            if known is not None:
                change.sent_high_watermark = known.sent_high_watermark
                change.sent_log_start_offset = known.sent_log_start_offset
            session.partitions[key] = change
        for topic in request.forgotten_topics_data:
            name = topic.topic if topic.topic_id is None else topic.topic_id
            for index in topic.partitions:
                session.partitions.pop((name, index), None)
        self._partition_count += len(session.partitions) - before

    def _make_room(self, partition_count: int, now: float) -> bool:
        if partition_count > self._partitions_max:
            return False
        while (
            len(self._sessions) >= self.sessions_max
            or self._partition_count + partition_count > self._partitions_max
        ):
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.used_at < EVICTION_SECONDS_MIN:
                return False
            self._forget(oldest.id)
        return True

    def _end(self, session: FetchSession | None) -> None:
        if session is not None:
            self._forget(session.id)

    def _forget(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partition_count -= len(session.partitions)

    def validate(self) -> None:
        """Assert the invariants."""
        assert len(self._sessions) <= self.sessions_max
        assert self._partition_count == sum(len(s.partitions) for s in self._sessions.values())
        assert self._partition_count <= self._partitions_max
        assert all(0 not in (s.id, s.next_epoch) for s in self._sessions.values())


def requested(request: FetchRequest) -> Partitions:
    """The partitions that a request names, each once: the last mention counts, as in Kafka."""
    partitions: Partitions = {}
    for topic in request.topics:
        for asked in topic.partitions:
            partition = SessionPartition(topic.topic, topic.topic_id, asked.partition)
            partition.fetch_offset = asked.fetch_offset
            partition.bytes_max = asked.partition_max_bytes
            partition.current_leader_epoch = asked.current_leader_epoch
            partition.last_fetched_epoch = asked.last_fetched_epoch
            partitions[partition.key] = partition
    return partitions
