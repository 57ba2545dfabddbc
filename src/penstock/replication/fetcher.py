"""`LeaderFetcher`: copies the records of all partitions that this broker follows from one leader.

It has one task, one connection and one request under way. Guarantees:

- A request reports only synced offsets (`replication.follower`). After records arrived, the next
  request waits for their sync, which is one round for all partitions.
- A new partition does not wait for a request that is parked at the leader: the connection is closed
  and opened again.
- A leader that does not answer costs pauses of 50 ms to 1 s. A partition whose records cannot be
  appended, or whose log cannot be cut, waits alone.

It does not choose the leader: `replication.replica_hosting` assigns partitions by the metadata.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from penstock.core.errors import ClientError, PenstockError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.fetch import FetchResponse, PartitionData
from penstock.replication.ended_tasks import end_tasks
from penstock.replication.follower import (
    Action,
    Append,
    CommittedCutError,
    Cut,
    Follower,
    LogEnd,
    Pause,
    Phase,
    Restart,
    decide,
)
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.log_cuts import LogCuts
from penstock.replication.manager import ReplicaManager
from penstock.replication.ports import (
    CopyThrottle,
    LeaderConnection,
    LeaderConnections,
    ReplicaStorage,
)
from penstock.replication.replica_session import (
    FETCH_WAIT_MS,
    FetchPosition,
    PartitionKey,
    ReplicaSession,
)

logger = logging.getLogger(__name__)

RECONNECT_SECONDS_MIN: Final = 0.05
RECONNECT_SECONDS_MAX: Final = 1.0
SYNC_SECONDS_MAX: Final = 0.5
"""Longest time that a request waits for the sync of received records; then it leaves them out."""
LEFT_OUT_WAIT_MS: Final = 100
"""Longest wait of a request at the leader while partitions are left out that are synced or cut. An
idle request waits for seconds, and a producer would wait for these partitions as long."""
PAUSED_WAIT_MS_MIN: Final = 10
"""Shortest wait of a request at the leader while a partition pauses."""
INTERRUPT_SECONDS: Final = 0.02
"""New partitions of one moment share one interruption."""


class Followed(NamedTuple):
    """One partition that is copied."""

    partition: HostedPartition
    follower: Follower
    is_recovering: bool
    """Whether its leader may lack acknowledged records, after an unclean election."""

    @property
    def key(self) -> PartitionKey:
        """The partition as requests name it."""
        return self.partition.topic_id, self.partition.name.partition


class Round(NamedTuple):
    """The partitions of the next request, and the ones that it leaves out for now."""

    positions: dict[PartitionKey, FetchPosition]
    is_syncing: bool
    is_cutting: bool
    wakes_at: float | None
    """When the first pause of a partition ends."""

    def wait_ms(self, now: float) -> int:
        """Return how long the leader may keep the request: others are asked for next."""
        wait_ms = LEFT_OUT_WAIT_MS if self.is_syncing or self.is_cutting else FETCH_WAIT_MS
        if self.wakes_at is None:
            return wait_ms
        return min(wait_ms, max(PAUSED_WAIT_MS_MIN, round((self.wakes_at - now) * 1000)))


class Identity(NamedTuple):
    """This broker with its registration."""

    broker_id: int
    broker_epoch: int


class LeaderFetcher:
    """The copies of one leader's partitions."""

    def __init__(
        self,
        leader_id: int,
        connections: LeaderConnections,
        replicas: ReplicaManager,
        storage: ReplicaStorage,
        identity: Callable[[], Identity],
        cuts: LogCuts,
        on_caught_up: Callable[[TopicPartition], None],
        *,
        wait_ms_max: int = FETCH_WAIT_MS,
        throttle: CopyThrottle | None = None,
    ) -> None:
        """`on_caught_up`: a partition has everything that the leader had at a fetch.

        It is called too if the leader cannot answer: a start must not wait for an election.
        """
        self.leader_id = leader_id
        self._connections = connections
        self._replicas = replicas
        self._storage = storage
        self._identity = identity
        self._cuts = cuts
        self._on_caught_up = on_caught_up
        self._wait_ms_max = wait_ms_max
        self._throttle = throttle
        self._loop = asyncio.get_running_loop()
        self._followed: dict[TopicPartition, Followed] = {}
        self._by_key: dict[PartitionKey, Followed] = {}
        self._session = ReplicaSession()
        self._connection: LeaderConnection | None = None
        self._pause_seconds = RECONNECT_SECONDS_MIN
        self._wakened = asyncio.Event()
        self._work: set[asyncio.Task[None]] = set()
        self._interruption: asyncio.TimerHandle | None = None
        self._is_asking = False

    # --- Which partitions ---

    def __len__(self) -> int:
        return len(self._followed)

    def add(self, partition: HostedPartition, *, is_recovering: bool) -> None:
        """Begin to copy a partition; its log is synced up to its end, or will be."""
        follower = Follower()
        if partition.log.durable_offset < partition.log.end_offset:
            follower.appended(is_synced=False)
        followed = Followed(partition, follower, is_recovering)
        self._followed[partition.name] = followed
        self._by_key[followed.key] = followed
        self._wake()
        self.interrupt_soon()

    def look_again(self) -> None:
        """Partitions that were left out may be copied now."""
        self._wake()
        self.interrupt_soon()

    def interrupt_soon(self) -> None:
        """End a request under way, because it names other partitions than the next one."""
        if self._is_asking and self._interruption is None:
            self._interruption = self._loop.call_later(INTERRUPT_SECONDS, self._interrupt)

    def remove(self, name: TopicPartition) -> None:
        """Copy a partition no more; an answer under way is dropped."""
        followed = self._followed.pop(name, None)
        if followed is None:
            return
        # The log may have another role by now: an answer must not be appended.
        followed.follower.end()
        if self._by_key.get(followed.key) is followed:
            del self._by_key[followed.key]

    def synced(self, name: TopicPartition) -> None:
        """More of a log is on the disk."""
        followed = self._followed.get(name)
        if followed is None:
            return
        log = followed.partition.log
        if log.durable_offset >= log.end_offset and followed.follower.synced():
            self._wake()

    def _wake(self) -> None:
        self._wakened.set()

    def _interrupt(self) -> None:
        """Close the connection: a request is parked that names other partitions than it must."""
        self._interruption = None
        if self._is_asking and self._connection is not None:
            connection, self._connection = self._connection, None
            self._start(connection.close)

    # --- The task ---

    async def run(self) -> None:
        """Copy records until cancelled."""
        try:
            while True:
                ready = await self._ready()
                try:
                    await self._ask(ready)
                    self._pause_seconds = RECONNECT_SECONDS_MIN
                except ClientError as error:
                    logger.info("broker %s does not answer fetches: %s", self.leader_id, error)
                    await self._begin_again()
                except Exception:
                    # A defect, or an answer that no broker sends: the copies must not end with it.
                    logger.exception("a fetch from broker %s failed", self.leader_id)
                    await self._begin_again()
        finally:
            if self._interruption is not None:
                self._interruption.cancel()
            await self._disconnect()
            await end_tasks(self._work)

    async def _begin_again(self) -> None:
        """Wait, longer each time; the next request needs a new connection."""
        await self._disconnect()
        for name in self._followed:
            self._on_caught_up(name)
        await asyncio.sleep(self._pause_seconds)
        self._pause_seconds = min(RECONNECT_SECONDS_MAX, 2 * self._pause_seconds)

    async def _ready(self) -> Round:
        """Return the next request, when there are partitions for it and the disk is idle."""
        deadline: float | None = None
        while True:
            self._wakened.clear()
            now = self._loop.time()
            found = self._look(now)
            next_wake = found.wakes_at
            if found.is_syncing:
                deadline = now + SYNC_SECONDS_MAX if deadline is None else deadline
                if now < deadline:
                    next_wake = min(deadline, next_wake or deadline)
            is_late = deadline is not None and now >= deadline
            if found.positions and (not found.is_syncing or is_late):
                return found
            timeout = None if next_wake is None else max(0.0, next_wake - now)
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._wakened.wait()

    def _look(self, now: float) -> Round:
        """Return the partitions that can be fetched now."""
        positions: dict[PartitionKey, FetchPosition] = {}
        # A log start that moves is reported with the next request, so this one is short.
        is_syncing, is_cutting = False, bool(self._work)
        wakes_at: float | None = None
        throttle = self._throttle
        if throttle is not None and not throttle.is_copying_throttled:
            throttle = None
        for followed in self._followed.values():
            follower = followed.follower
            if follower.phase is Phase.WAITING and not follower.wake(now):
                wakes_at = min(follower.wakes_at, wakes_at or follower.wakes_at)
            elif follower.phase is Phase.FETCHING:
                held_until = None
                if throttle is not None:
                    held_until = throttle.held_until(followed.partition.name)
                if held_until is None:
                    positions[followed.key] = self._position(followed)
                else:
                    wakes_at = min(held_until, wakes_at or held_until)
            elif follower.phase is Phase.SYNCING:
                is_syncing = True
            else:
                is_cutting = True
        return Round(positions, is_syncing, is_cutting, wakes_at)

    @staticmethod
    def _position(followed: Followed) -> FetchPosition:
        log = followed.partition.log
        epoch = followed.partition.state.leader_epoch
        return FetchPosition(epoch, log.end_offset, log.latest_epoch, log.log_start_offset)

    async def _ask(self, ready: Round) -> None:
        """Send one request and carry out its answer."""
        if self._connection is None:
            self._session.reset()
            self._connection = await self._connections.open(self.leader_id)
            # Meanwhile partitions were added, or have another role: they must not wait, or report.
            ready = self._look(self._loop.time())
        generations, waits = {}, True
        for key in ready.positions:
            followed = self._by_key[key]
            generations[key] = followed, followed.follower.send()
            waits = waits and followed.follower.has_caught_up
        wait_ms = min(self._wait_ms_max, ready.wait_ms(self._loop.time())) if waits else 0
        request = self._session.request(ready.positions, *self._identity(), wait_ms=wait_ms)
        self._is_asking = True
        try:
            response = await self._connection.fetch(request)
        finally:
            self._is_asking = False
        if response.error_code != ErrorCode.NONE:
            # The leader has forgotten the session: name all partitions in the next request.
            self._session.reset()
            if response.error_code not in _SESSION_ERRORS:
                raise ClientError(ErrorCode(response.error_code).name)
            return
        self._session.answered(response.session_id)
        self._take(response, generations)

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(ClientError):
                await connection.close()

    # --- Answers ---

    def _take(
        self, response: FetchResponse, generations: dict[PartitionKey, tuple[Followed, int]]
    ) -> None:
        for topic in response.responses:
            assert topic.topic_id is not None, "the version names topics by id"
            for answer in topic.partitions:
                sent = generations.pop((topic.topic_id, answer.partition_index), None)
                if sent is not None and sent[0].follower.is_awaited(sent[1]):
                    self._take_one(sent[0], answer)
        for followed, generation in generations.values():
            # Nothing new: it had everything.
            if followed.follower.is_awaited(generation):
                self._caught_up(followed)

    def _take_one(self, followed: Followed, answer: PartitionData) -> None:
        partition, follower = followed.partition, followed.follower
        log = partition.log
        ends = LogEnd(log.log_start_offset, log.end_offset, partition.state.high_watermark)
        shared = log.end_offset_for_epoch(answer.diverging_epoch.epoch)
        try:
            action = decide(answer, ends, shared, is_recovering=followed.is_recovering)
            if action is not None:
                self._act(followed, action)
        except CommittedCutError as error:
            logger.critical("%s: %s; it is not cut", partition.name, error)
            self._replicas.refused_cuts += 1
            self._pause(follower)
        except PenstockError as error:
            logger.warning("%s cannot take the records of its leader: %s", partition.name, error)
            self._replicas.refused_answers += 1
            self._pause(follower)

    def _act(self, followed: Followed, action: Action) -> None:
        partition, follower = followed.partition, followed.follower
        match action:
            case Append():
                self._append(followed, action)
            case Cut(offset):
                self._log_cut(partition, offset)
                follower.cutting()
                cut = self._storage.truncate_log(partition.name, offset)
                self._cuts.begin(partition, cut, partial(self._cut_ended, follower))
            case Restart(offset):
                logger.warning("%s begins anew at offset %s of its leader", partition.name, offset)
                follower.cutting()
                restart = self._storage.restart_log(partition.name, offset)
                self._cuts.begin(partition, restart, partial(self._cut_ended, follower))
            case Pause(reason):
                logger.debug("%s waits: %s", partition.name, reason)
                self._on_caught_up(partition.name)
                self._pause(follower)

    @staticmethod
    def _log_cut(partition: HostedPartition, offset: int) -> None:
        committed = partition.state.high_watermark
        if offset < committed:
            logger.warning(
                "%s is cut at offset %s, below its high watermark %s: its leader was elected "
                "uncleanly and lacks these records",
                partition.name,
                offset,
                committed,
            )
        else:
            logger.info("%s is cut at offset %s, as its leader is", partition.name, offset)

    def _append(self, followed: Followed, action: Append) -> None:
        partition, follower = followed.partition, followed.follower
        log = partition.log
        if action.records:
            self._replicas.append_copied(partition, memoryview(action.records))
            if self._throttle is not None:
                is_behind = log.end_offset < action.high_watermark
                self._throttle.copied(partition.name, len(action.records), is_behind=is_behind)
            follower.appended(is_synced=log.durable_offset >= log.end_offset)
        else:
            self._caught_up(followed)
        self._replicas.follower_learned(partition, action.high_watermark)
        if action.log_start_offset > log.log_start_offset:
            self._start(partial(self._advance_start, partition, action.log_start_offset))

    def _caught_up(self, followed: Followed) -> None:
        if not followed.follower.has_caught_up:
            followed.follower.has_caught_up = True
            self._on_caught_up(followed.partition.name)

    def _pause(self, follower: Follower) -> None:
        follower.pause(self._loop.time())

    def _cut_ended(self, follower: Follower, error: PenstockError | None) -> None:
        follower.cut_done()
        if error is not None:
            self._pause(follower)
        self._wake()

    async def _advance_start(self, partition: HostedPartition, offset: int) -> None:
        """Hide records that the leader has deleted; a failure is repeated with a later answer."""
        log = partition.log
        limit = min(offset, partition.state.high_watermark, log.durable_offset)
        if limit > log.log_start_offset:
            await self._storage.advance_starts([(log, limit)])

    def _start(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        task = self._loop.create_task(_guarded(work))
        self._work.add(task)
        task.add_done_callback(self._work.discard)


_SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


async def _guarded(work: Callable[[], Coroutine[object, object, None]]) -> None:
    # Called here: a task that is cancelled before its first step leaves no coroutine behind.
    try:
        await work()
    except PenstockError as error:
        logger.warning("a replica's log could not be changed: %s", error)
