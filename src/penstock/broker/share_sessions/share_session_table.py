"""Share sessions of KIP-932, as a pure state machine.

A member of a share group names its partitions once; after that it sends only changes. The moves, by
the epoch of the request:

    0         open a session; one with the same group and member is replaced
    n > 0     continue: n must be the epoch that is expected next
    -1        close it, after the acknowledgements of the request

Guarantees:

- a request with the wrong epoch or without a session changes nothing and gets an error;
- sessions, and the partitions in them, are bounded; without room a new session is refused;
- a session ends once: `close` of a session that the member has replaced changes nothing.

A closed session releases the records of its member. That is NOT done here, and neither is the
authorization of partitions, which happens at each request.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from penstock.core.limits import FETCH_SESSION_PARTITIONS_MAX
from penstock.protocol.error_codes import ErrorCode

FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
EPOCH_MAX: Final = 2**31 - 1
SHARE_SESSIONS_MAX: Final = 2_000
"""Kafka's group.share.max.share.sessions."""
FORGOTTEN_HELD_MAX: Final = 1_000
"""Partitions that a session remembers beside its own, because it may have records of them."""


class SharePartitionId(NamedTuple):
    """A partition as members of share groups name it."""

    topic_id: UUID
    partition: int


class ShareSession:
    """The partitions of one member on this broker, in the order in which they are served next."""

    __slots__ = ("group", "held", "member", "next_epoch", "partitions")

    def __init__(self, group: str, member: str) -> None:
        self.group = group
        self.member = member
        self.next_epoch = 1
        self.partitions: OrderedDict[SharePartitionId, None] = OrderedDict()
        self.held: set[SharePartitionId] | None = set()
        """Partitions of which the member may have records; None: any partition of the group."""

    def served(self, partition: SharePartitionId) -> None:
        """Serve the other partitions first the next time; note that the member has records."""
        if partition in self.partitions:
            self.partitions.move_to_end(partition)
        if self.held is not None:
            self.held.add(partition)
            if len(self.held) > len(self.partitions) + FORGOTTEN_HELD_MAX:
                self.held = None


class ShareSessions:
    """All share sessions of one broker."""

    __slots__ = ("_by_group", "_partition_count", "_partitions_max", "_sessions", "sessions_max")

    def __init__(
        self,
        sessions_max: int = SHARE_SESSIONS_MAX,
        partitions_max: int = FETCH_SESSION_PARTITIONS_MAX,
    ) -> None:
        self.sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._by_group: dict[str, int] = {}
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def has_group(self, group: str) -> bool:
        """Whether a member of the group has a session."""
        return group in self._by_group

    def members_by_group(self) -> dict[str, int]:
        """Return the number of sessions of each group."""
        return dict(self._by_group)

    def is_open(self, session: ShareSession) -> bool:
        """Whether a session was neither closed nor replaced."""
        return self._sessions.get((session.group, session.member)) is session

    def begin_fetch(
        self,
        group: str,
        member: str,
        epoch: int,
        named: Iterable[SharePartitionId],
        forgotten: Iterable[SharePartitionId] = (),
        *,
        has_acknowledgements: bool = False,
    ) -> ShareSession | ErrorCode:
        """Open, continue or begin to close a session; return it, or the error of the request."""
        if epoch == INITIAL_EPOCH:
            return self._open(group, member, named, has_acknowledgements=has_acknowledgements)
        session = self._sessions.get((group, member))
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.next_epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        return self._continue(session, tuple(named), forgotten)

    def begin_acknowledge(self, group: str, member: str, epoch: int) -> ShareSession | ErrorCode:
        """Continue or begin to close a session."""
        if epoch == INITIAL_EPOCH:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        return self.begin_fetch(group, member, epoch, ())

    def _open(
        self,
        group: str,
        member: str,
        named: Iterable[SharePartitionId],
        *,
        has_acknowledgements: bool,
    ) -> ShareSession | ErrorCode:
        if has_acknowledgements:
            return ErrorCode.INVALID_REQUEST
        session = ShareSession(group, member)
        session.partitions.update(dict.fromkeys(named))
        before = self._sessions.get((group, member))
        count = self._partition_count + len(session.partitions)
        sessions = len(self._sessions) + 1
        if before is not None:
            count -= len(before.partitions)
            sessions -= 1
        if sessions > self.sessions_max or count > self._partitions_max:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        if before is not None:
            session.held = before.held  # The member keeps its records.
            self.close(before)
        self._sessions[group, member] = session
        self._by_group[group] = self._by_group.get(group, 0) + 1
        self._partition_count = count
        return session

    def _continue(
        self,
        session: ShareSession,
        named: Sequence[SharePartitionId],
        forgotten: Iterable[SharePartitionId],
    ) -> ShareSession | ErrorCode:
        new = sum(one not in session.partitions for one in named)
        if self._partition_count + new > self._partitions_max:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        before = len(session.partitions)
        for one in named:
            session.partitions[one] = None
        for one in forgotten:
            session.partitions.pop(one, None)
        self._partition_count += len(session.partitions) - before
        session.next_epoch = 1 if session.next_epoch == EPOCH_MAX else session.next_epoch + 1
        return session

    def close(self, session: ShareSession) -> bool:
        """End a session; False if it has ended already, or another one has replaced it."""
        key = (session.group, session.member)
        if not self.is_open(session):
            return False
        del self._sessions[key]
        self._partition_count -= len(session.partitions)
        left = self._by_group[session.group] - 1
        if left:
            self._by_group[session.group] = left
        else:
            del self._by_group[session.group]
        return True

    def validate(self) -> None:
        """Assert the invariants."""
        sessions = self._sessions.values()
        assert len(self._sessions) <= self.sessions_max
        assert self._partition_count == sum(len(one.partitions) for one in sessions)
        assert self._partition_count <= self._partitions_max
        assert sum(self._by_group.values()) == len(self._sessions)
        assert all(count > 0 for count in self._by_group.values())
        assert all(key == (one.group, one.member) for key, one in self._sessions.items())
