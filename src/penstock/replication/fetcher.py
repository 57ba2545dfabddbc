"""`LeaderFetcher`: copies the records of all partitions that this broker follows from one leader.

It has one task, one connection and one request under way. Guarantees:

- A request reports only synced offsets (`replication.follower`). After records arrived, the next
  request waits for their sync, which is one round for all partitions.
- A new partition does not wait for a request that is parked at the leader: the connection is closed
  and opened again.
- A leader that does not answer costs pauses of 50 ms to 1 s.

It does not choose the leader: `replication.replica_hosting` assigns partitions by the metadata. It
does not carry out answers: `replication.copies` does. This module is NOT compiled: its
task awaits in `except` and `finally` blocks, where the compiler loses cancellations.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from penstock.core.errors import ClientError, PenstockError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.replication.copies import Copies, Round, Work
from penstock.replication.ended_tasks import end_tasks
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.log_cuts import LogCuts
from penstock.replication.manager import ReplicaManager
from penstock.replication.ports import (
    CopyThrottle,
    LeaderConnection,
    LeaderConnections,
    ReplicaStorage,
)
from penstock.replication.replica_session import FETCH_WAIT_MS, ReplicaSession

logger = logging.getLogger(__name__)

RECONNECT_SECONDS_MIN: Final = 0.05
RECONNECT_SECONDS_MAX: Final = 1.0
SYNC_SECONDS_MAX: Final = 0.5
"""Longest time that a request waits for the sync of received records; then it leaves them out."""
INTERRUPT_SECONDS: Final = 0.02
"""New partitions of one moment share one interruption."""


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
        self._identity = identity
        self._wait_ms_max = wait_ms_max
        self._loop = asyncio.get_running_loop()
        self._copies = Copies(
            replicas, storage, cuts, throttle, on_caught_up, self._wake, self._start
        )
        self._session = ReplicaSession()
        self._connection: LeaderConnection | None = None
        self._pause_seconds = RECONNECT_SECONDS_MIN
        self._wakened = asyncio.Event()
        self._work: set[asyncio.Task[None]] = set()
        self._interruption: asyncio.TimerHandle | None = None
        self._is_asking = False

    # --- Which partitions ---

    def __len__(self) -> int:
        return len(self._copies)

    def add(self, partition: HostedPartition, *, is_recovering: bool) -> None:
        """Begin to copy a partition; its log is synced up to its end, or will be."""
        self._copies.add(partition, is_recovering=is_recovering)
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
        self._copies.remove(name)

    def synced(self, name: TopicPartition) -> None:
        """More of a log is on the disk."""
        self._copies.synced(name)

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
        self._copies.leader_is_silent()
        await asyncio.sleep(self._pause_seconds)
        self._pause_seconds = min(RECONNECT_SECONDS_MAX, 2 * self._pause_seconds)

    async def _ready(self) -> Round:
        """Return the next request, when there are partitions for it and the disk is idle."""
        deadline: float | None = None
        while True:
            self._wakened.clear()
            now = self._loop.time()
            found = self._copies.look(now, is_working=bool(self._work))
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

    async def _ask(self, ready: Round) -> None:
        """Send one request and carry out its answer."""
        if self._connection is None:
            self._session.reset()
            self._connection = await self._connections.open(self.leader_id)
            # Meanwhile partitions were added, or have another role: they must not wait, or report.
            ready = self._copies.look(self._loop.time(), is_working=bool(self._work))
        sent = self._copies.sent(ready)
        wait_ms = min(self._wait_ms_max, ready.wait_ms(self._loop.time())) if sent.waits else 0
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
        self._copies.take(response, sent)

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(ClientError):
                await connection.close()

    def _start(self, work: Work) -> None:
        task = self._loop.create_task(_guarded(work))
        self._work.add(task)
        task.add_done_callback(self._work.discard)


_SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


async def _guarded(work: Work) -> None:
    # Called here: a task that is cancelled before its first step leaves no coroutine behind.
    try:
        await work()
    except PenstockError as error:
        logger.warning("a replica's log could not be changed: %s", error)
