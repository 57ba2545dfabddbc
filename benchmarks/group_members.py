"""Group members that behave like a client library, without records: many in one process.

`ConsumerMember` uses KIP-848: it sends heartbeats, gives up revoked partitions immediately, and
confirms that immediately, as Kafka's own client does. `ClassicMember` sends JoinGroup, SyncGroup
and Heartbeat; the leader assigns the partitions to the members in turn. `Crowd` knows the
partitions of all members of one group, and fails the run when two members of a KIP-848 group own
the same partition at the same time.

They do NOT fetch, commit or survive a stop of the broker.
"""

import asyncio
import struct
import uuid
from collections import Counter
from collections.abc import Sequence

from benchmarks.wire import RefusedError, Wire, check, until_ready
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from penstock.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

CONSUMER_HEARTBEAT_VERSION = 1
JOIN_VERSION = 9
SYNC_VERSION = 5
HEARTBEAT_VERSION = 4
REBALANCE_TIMEOUT_MS = 60_000
SESSION_TIMEOUT_MS = 45_000
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
STABLE_SECONDS_MAX = 60.0


class Crowd:
    """The owners of the partitions of one group, with one topic and a fixed number of members."""

    def __init__(self, group_id: str, topic: str, partitions: int, members: int) -> None:
        self.group_id = group_id
        self.topic = topic
        self.partitions = partitions
        self.members = members
        self.owners: dict[int, str] = {}
        self.sizes: dict[str, int] = {}
        self.revocations: Counter[int] = Counter()
        """The number of revocations, by partition."""
        self.heartbeats = 0
        self._changed = asyncio.Event()

    def moved(self, member_id: str, before: set[int], after: set[int]) -> None:
        """Note that the partitions of a member changed."""
        for partition in before - after:
            if self.owners.get(partition) == member_id:
                del self.owners[partition]
        for partition in after - before:
            other = self.owners.setdefault(partition, member_id)
            if other != member_id:
                raise RefusedError(f"{member_id} got {partition}, which {other} still has")
        self.sizes[member_id] = len(after)
        if self.is_stable():
            self._changed.set()

    def gone(self, member_id: str, owned: set[int]) -> None:
        """Note that a member ended; its partitions have no owner."""
        self.moved(member_id, owned, set())
        del self.sizes[member_id]

    def is_stable(self) -> bool:
        """Whether every partition has an owner and the assignments' sizes differ by at most one."""
        if len(self.owners) != self.partitions or len(self.sizes) != self.members:
            return False
        return max(self.sizes.values()) - min(self.sizes.values()) <= 1

    async def until_stable(self) -> None:
        """Wait until the group is stable."""
        async with asyncio.timeout(STABLE_SECONDS_MAX):
            while not self.is_stable():
                self._changed.clear()
                await self._changed.wait()


class ConsumerMember:
    """A member of a KIP-848 group."""

    def __init__(
        self,
        wire: Wire,
        crowd: Crowd,
        *,
        pause_seconds: float | None = None,
        instance_id: str | None = None,
    ) -> None:
        """Without `pause_seconds` the member uses the broker's heartbeat interval."""
        self._wire = wire
        self._crowd = crowd
        self._pause_seconds = pause_seconds
        self._instance_id = instance_id
        self.member_id = str(uuid.uuid4())
        self.epoch = JOIN_EPOCH
        self.owned: set[int] = set()
        self._topic_id: uuid.UUID | None = None
        self._is_to_confirm = False
        self._interval_seconds = 0.0

    async def join(self) -> None:
        """Send the first heartbeat, with all fields."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._crowd.group_id,
            member_id=self.member_id,
            member_epoch=JOIN_EPOCH,
            instance_id=self._instance_id,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            subscribed_topic_names=(self._crowd.topic,),
            topic_partitions=(),
        )
        answer = await until_ready(lambda: self._ask(request), lambda answer: answer.error_code)
        self._take(answer)

    async def heartbeat(self) -> None:
        """Send a heartbeat, with the owned partitions if they changed."""
        owned = None
        if self._is_to_confirm:
            owned = self._owned_as_message()
            self._is_to_confirm = False
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._crowd.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self._instance_id,
            topic_partitions=owned,
        )
        self._take(await self._ask(request))

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        while True:
            await asyncio.sleep(0.0 if self._is_to_confirm else self._interval_seconds)
            await self.heartbeat()

    async def leave(self, epoch: int = LEAVE_EPOCH) -> None:
        """Leave the group: permanently, or as a static member that rejoins later."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._crowd.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self._instance_id,
        )
        check((await self._ask(request)).error_code, "leaving")
        self._crowd.gone(self.member_id, self.owned)
        self.owned = set()

    async def _ask(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        self._crowd.heartbeats += 1
        return await self._wire.ask(
            request, CONSUMER_HEARTBEAT_VERSION, ConsumerGroupHeartbeatResponse
        )

    def _take(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        check(answer.error_code, f"heartbeat ({answer.error_message})")
        self.epoch = answer.member_epoch
        told_seconds = answer.heartbeat_interval_ms / 1_000
        self._interval_seconds = (
            told_seconds if self._pause_seconds is None else self._pause_seconds
        )
        if answer.assignment is None:
            return
        now: set[int] = set()
        for topic in answer.assignment.topic_partitions:
            self._topic_id = topic.topic_id
            now |= set(topic.partitions)
        self._is_to_confirm = now != self.owned
        self._crowd.revocations.update(self.owned - now)
        before, self.owned = self.owned, now
        self._crowd.moved(self.member_id, before, now)

    def _owned_as_message(self) -> tuple[RequestTopicPartitions, ...]:
        if not self.owned:
            return ()
        return (
            RequestTopicPartitions(topic_id=self._topic_id, partitions=tuple(sorted(self.owned))),
        )


class ClassicMember:
    """A member of a classic group, eager: it gives up everything before it joins again."""

    def __init__(self, wire: Wire, crowd: Crowd, *, pause_seconds: float) -> None:
        self._wire = wire
        self._crowd = crowd
        self._pause_seconds = pause_seconds
        self._name = str(uuid.uuid4())
        self._member_id = ""
        self._generation = -1
        self.owned: set[int] = set()

    async def join(self) -> None:
        """Join and sync; again if the group changed meanwhile."""
        self._have(set())
        while True:
            joined = await self._join_once()
            synced = await self._wire.ask(
                SyncGroupRequest(
                    group_id=self._crowd.group_id,
                    generation_id=joined.generation_id,
                    member_id=self._member_id,
                    protocol_type="consumer",
                    protocol_name=joined.protocol_name,
                    assignments=self._assignments(joined),
                ),
                SYNC_VERSION,
                SyncGroupResponse,
            )
            if synced.error_code is ErrorCode.REBALANCE_IN_PROGRESS:
                continue
            check(synced.error_code, "SyncGroup")
            self._generation = joined.generation_id
            self._have(set(_partitions_of(synced.assignment)))
            return

    async def run(self) -> None:
        """Send heartbeats until cancelled; join again when the group rebalances."""
        while True:
            await asyncio.sleep(self._pause_seconds)
            answer = await self._wire.ask(
                HeartbeatRequest(
                    group_id=self._crowd.group_id,
                    generation_id=self._generation,
                    member_id=self._member_id,
                ),
                HEARTBEAT_VERSION,
                HeartbeatResponse,
            )
            self._crowd.heartbeats += 1
            if answer.error_code is ErrorCode.REBALANCE_IN_PROGRESS:
                await self.join()
            else:
                check(answer.error_code, "Heartbeat")

    async def _join_once(self) -> JoinGroupResponse:
        while True:
            request = JoinGroupRequest(
                group_id=self._crowd.group_id,
                session_timeout_ms=SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                member_id=self._member_id,
                protocol_type="consumer",
                protocols=(
                    JoinGroupRequestProtocol(
                        name="range", metadata=_subscription(self._crowd.topic)
                    ),
                ),
            )
            answer = await until_ready(
                lambda asked=request: self._wire.ask(asked, JOIN_VERSION, JoinGroupResponse),  # type: ignore[misc]
                lambda answer: answer.error_code,
            )
            self._member_id = answer.member_id
            if answer.error_code is ErrorCode.MEMBER_ID_REQUIRED:
                continue
            check(answer.error_code, "JoinGroup")
            return answer

    def _assignments(self, joined: JoinGroupResponse) -> tuple[SyncGroupRequestAssignment, ...]:
        """Return the leader's assignment of each member; empty if this member is not the leader."""
        if joined.leader != self._member_id:
            return ()
        count = len(joined.members)
        return tuple(
            SyncGroupRequestAssignment(
                member_id=member.member_id,
                assignment=_assignment(
                    self._crowd.topic, range(index, self._crowd.partitions, count)
                ),
            )
            for index, member in enumerate(joined.members)
        )

    def _have(self, owned: set[int]) -> None:
        before, self.owned = self.owned, owned
        self._crowd.moved(self._name, before, owned)


def _subscription(topic: str) -> bytes:
    """Version 0 of the consumer protocol's subscription: one topic, nothing else."""
    name = topic.encode()
    return struct.pack(f">hih{len(name)}si", 0, 1, len(name), name, -1)


def _assignment(topic: str, partitions: Sequence[int]) -> bytes:
    """Version 0 of the consumer protocol's assignment."""
    name = topic.encode()
    head = struct.pack(f">hih{len(name)}si", 0, 1, len(name), name, len(partitions))
    return head + struct.pack(f">{len(partitions)}ii", *partitions, -1)


def _partitions_of(assignment: bytes) -> Sequence[int]:
    """The partitions of the only topic."""
    if not assignment:
        return ()
    (length,) = struct.unpack_from(">h", assignment, 6)
    (count,) = struct.unpack_from(">i", assignment, 8 + length)
    return struct.unpack_from(f">{count}i", assignment, 12 + length)
