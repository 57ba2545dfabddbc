"""A client that is a whole group: its members join, commit and leave, each over a connection.

Three things are timed. First, the time from the first join until every partition has an owner and
the parts differ by one at most. Second, commits, one in flight for each member. Third, the time to
the same balance after a member left. Groups use the consumer protocol (KIP-848), so brokers before
Kafka 4 are rejected.

Members send a heartbeat every `PAUSE_SECONDS` while they wait for balance, not every five seconds
as brokers request: the coordinator is measured, not the waiting. They read no records.
"""

import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, NamedTuple

from penstock.bench.assignment import Assignment
from penstock.bench.lanes import Lanes
from penstock.bench.measurement import ClientResult
from penstock.bench.member_calls import JOIN_EPOCH, LEAVE_EPOCH, Beat, commit, heartbeat
from penstock.bench.observing import Observer, Report
from penstock.bench.pacing import SECOND_NS, Pacing, Shares, pacing_of
from penstock.bench.producing import open_cluster
from penstock.client.cluster import Cluster
from penstock.client.coordinators import CoordinatorKind, Coordinators
from penstock.client.groups.groups import GroupNotEmptyError, Groups
from penstock.core.errors import BrokerAnswerError, PenstockError

PAUSE_SECONDS: Final = 0.05
HEARTBEAT_NS: Final = 3 * SECOND_NS
"""The heartbeat interval while members commit: brokers request five seconds."""
_IDLE_SECONDS: Final = 0.1
_DELETIONS_MAX: Final = 5

JOINING: Final = "join until balanced"
LEAVING: Final = "leave until balanced"


class NoBalanceError(PenstockError):
    """A group did not become balanced."""


@dataclass(slots=True)
class _Member:
    number: int
    member_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    epoch: int = JOIN_EPOCH
    topic_id: uuid.UUID | None = None
    owned: frozenset[int] = frozenset()
    is_to_confirm: bool = False
    heartbeat_ns: int = 0
    may_be_known: bool = False
    """Whether the join was sent, answered or not."""


class _Sent(NamedTuple):
    member: _Member
    due_ns: int
    is_commit: bool


class Group:
    """One group and all of its members."""

    def __init__(self, assignment: Assignment) -> None:
        """Find the coordinator and connect every member to it."""
        self._assignment = assignment
        self._workload = assignment.workload
        self._group_id = assignment.group_id
        self._members = [_Member(number) for number in range(self._workload.members)]
        self._lanes: Lanes[int, _Sent] = Lanes(
            1, self._workload.timeout_seconds, assignment.security
        )
        self._cluster = open_cluster(assignment)
        coordinators = Coordinators(self._cluster, CoordinatorKind.GROUP)
        address = coordinators.find(self._group_id).address
        for member in self._members:
            self._lanes.open(member.number, address)

    def run(self, begin_ns: int, report: Report) -> ClientResult:
        """Join, commit, let one member leave, and clean up."""
        joining_seconds = self._join()
        workload, assignment = self._workload, self._assignment
        shares = Shares(assignment.clients, assignment.client)
        pacing = pacing_of(
            shares,
            max(begin_ns, time.monotonic_ns()),
            warmup_seconds=workload.warmup_seconds,
            duration_seconds=workload.duration_seconds,
            batches=None if workload.count is None else shares.of_count(workload.count),
            batches_per_second=workload.rate,
        )
        observer = Observer(pacing.measured_ns, pacing.end_ns, report)
        self._commit(pacing, observer)
        result = observer.finish(time.monotonic_ns())
        result.figures[JOINING] = joining_seconds
        if len(self._members) > 1:
            begun_ns = time.monotonic_ns()
            self._leave(self._members[-1])
            self._members.pop()
            self._balance()
            result.figures[LEAVING] = (time.monotonic_ns() - begun_ns) / SECOND_NS
        return result

    def close(self) -> None:
        """Close the connections, let all members leave, delete the group."""
        self._lanes.close()
        self._cluster.close()
        if not any(member.may_be_known for member in self._members):
            return
        # A new connection: an interrupt in the middle of an answer leaves an unusable one.
        with open_cluster(self._assignment) as cluster:
            for _ in range(_DELETIONS_MAX - 1):
                self._all_leave(cluster)
                with suppress(GroupNotEmptyError):
                    Groups(cluster).delete(self._group_id)
                    return
                # A join in flight arrived after the leave.
                time.sleep(PAUSE_SECONDS)
            self._all_leave(cluster)
            Groups(cluster).delete(self._group_id)

    def _all_leave(self, cluster: Cluster) -> None:
        coordinators = Coordinators(cluster, CoordinatorKind.GROUP)
        for member in self._members:
            if member.may_be_known:
                call = heartbeat(self._group_id, member.member_id, LEAVE_EPOCH)
                # The coordinator may not know an interrupted or fenced member; this error is
                # ignored.
                with suppress(BrokerAnswerError):
                    coordinators.ask(self._group_id, call, repeatable=True)

    # --- Joining and leaving ---

    def _join(self) -> float:
        begun_ns = time.monotonic_ns()
        for member in self._members:
            call = heartbeat(
                self._group_id, member.member_id, JOIN_EPOCH, topic=self._assignment.topic
            )
            member.may_be_known = True
            # A coordinator that loads its log returns an error, and the call is retried.
            self._take(member, self._repeated(member, call))
        self._balance()
        return (time.monotonic_ns() - begun_ns) / SECOND_NS

    def _repeated(self, member: _Member, call: Any) -> Beat:  # noqa: ANN401
        found: Beat = self._cluster.repeat(
            lambda: self._lanes.carry(member.number, call), repeatable=True
        )
        return found

    def _balance(self) -> None:
        """Heartbeat until every partition has an owner and the parts differ by one at most."""
        given_up_ns = time.monotonic_ns() + round(self._workload.timeout_seconds * SECOND_NS)
        while True:
            for member in self._members:
                self._take(member, self._lanes.carry(member.number, self._beat(member)))
            if self._is_balanced():
                return
            if time.monotonic_ns() > given_up_ns:
                raise NoBalanceError(
                    f"group {self._group_id} did not come to rest within "
                    f"{self._workload.timeout_seconds:g} s: "
                    f"{sum(len(one.owned) for one in self._members)} of "
                    f"{len(self._assignment.partitions)} partitions have an owner. Give it more "
                    "time with --timeout, or look at the broker's log."
                )
            if not any(member.is_to_confirm for member in self._members):
                time.sleep(PAUSE_SECONDS)

    def _is_balanced(self) -> bool:
        sizes = [len(member.owned) for member in self._members]
        is_whole = sum(sizes) == len(self._assignment.partitions)
        is_even = max(sizes) - min(sizes) <= 1
        return is_whole and is_even and not any(one.is_to_confirm for one in self._members)

    def _leave(self, member: _Member) -> None:
        call = heartbeat(self._group_id, member.member_id, LEAVE_EPOCH)
        self._lanes.carry(member.number, call)

    def _beat(self, member: _Member) -> Any:  # noqa: ANN401
        owned = (member.topic_id, member.owned) if member.is_to_confirm else None
        member.is_to_confirm = False
        return heartbeat(self._group_id, member.member_id, member.epoch, owned=owned)

    def _take(self, member: _Member, beat: Beat) -> None:
        member.epoch = beat.epoch
        member.heartbeat_ns = time.monotonic_ns()
        if beat.partitions is not None:
            member.is_to_confirm = beat.partitions != member.owned
            member.owned = beat.partitions
            member.topic_id = beat.topic_id or member.topic_id

    # --- Committing ---

    def _commit(self, pacing: Pacing, observer: Observer) -> None:
        """Send commits at their due times, in turns; heartbeats go first, also when none is due."""
        offsets = count()

        def take(answer: Beat | None, sent: _Sent) -> None:
            if sent.is_commit:
                observer.done(time.monotonic_ns(), sent.due_ns, 1, 0)
            elif answer is not None:
                self._take(sent.member, answer)

        turn = 0
        while True:
            self._lanes.collect(take)
            now_ns = time.monotonic_ns()
            observer.tick(now_ns)
            due_ns = pacing.due_ns(now_ns)
            if due_ns is None and self._lanes.is_idle:
                return
            self._send_heartbeats(now_ns)
            member = self._free_from(turn)
            if member is None or due_ns is None or due_ns > now_ns:
                until_ns = now_ns if due_ns is None else due_ns
                wait_seconds = (until_ns - now_ns) / SECOND_NS
                is_waiting = member is None or due_ns is None
                self._lanes.wait(_IDLE_SECONDS if is_waiting else min(wait_seconds, _IDLE_SECONDS))
                continue
            turn = member.number + 1
            self._lanes.send(
                member.number,
                self._commit_call(member, next(offsets)),
                _Sent(member, due_ns, True),  # noqa: FBT003
            )
            pacing.sent(due_ns)

    def _send_heartbeats(self, now_ns: int) -> None:
        """Send all due heartbeats: a silent member would be fenced."""
        for member in self._members:
            is_overdue = now_ns - member.heartbeat_ns > HEARTBEAT_NS
            if is_overdue and self._lanes.has_room(member.number):
                self._lanes.send(member.number, self._beat(member), _Sent(member, now_ns, False))  # noqa: FBT003

    def _free_from(self, turn: int) -> _Member | None:
        """Return the next member, in turns, without a request in flight."""
        for step in range(len(self._members)):
            member = self._members[(turn + step) % len(self._members)]
            if self._lanes.has_room(member.number):
                return member
        return None

    def _commit_call(self, member: _Member, offset: int) -> Any:  # noqa: ANN401
        partitions = self._assignment.partitions
        return commit(
            self._group_id,
            member.member_id,
            member.epoch,
            self._assignment.topic,
            partitions[member.number % len(partitions)],
            offset,
        )
