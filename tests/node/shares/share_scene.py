"""A share-partition over fakes, and fetches that wait for its records."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import cast
from uuid import UUID

from penstock.broker.ports import ColdReader
from penstock.broker.share_sessions.share_ports import Wish
from penstock.broker.share_sessions.share_session_table import (
    SharePartitionId,
    ShareSession,
    ShareSessions,
)
from penstock.cluster.configs.group_configs import DeliverySettings
from penstock.cluster.configs.share_offset_reset import EARLIEST, OffsetReset
from penstock.coordinator.shares.delivery.acknowledgement import Acknowledged
from penstock.coordinator.shares.delivery.acquisition import Acquired, FetchedBatch
from penstock.coordinator.shares.ports import (
    Refusal,
    ShareChange,
    ShareKey,
    ShareState,
    ShareStates,
)
from penstock.core.clock import SystemClock
from penstock.core.deferred import Deferred
from penstock.core.types import TopicPartition
from penstock.node.shares.live_partition import LivePartition
from penstock.node.shares.share_partitions import GroupDeliveries, SharePartitions
from penstock.node.shares.state_calls import StateCalls
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.manager import ReplicaManager
from penstock.replication.waits import FetchWait

PLACE = SharePartitionId(UUID(int=1), 0)


class Writes:
    """`ShareStates` that a test answers."""

    def __init__(self, state: ShareState | Refusal) -> None:
        self.state = state
        self.reads = 0
        self.changes: list[ShareChange] = []
        self.answers: list[Deferred[Refusal | None]] = []

    def read(self, key: ShareKey, leader_epoch: int) -> Deferred[ShareState | Refusal]:
        self.reads += 1
        answer: Deferred[ShareState | Refusal] = Deferred()
        answer.set(self.state)
        return answer

    def write(self, key: ShareKey, change: ShareChange) -> Deferred[Refusal | None]:
        self.changes.append(change)
        self.answers.append(Deferred())
        return self.answers[-1]

    def settle(self, refusal: Refusal | None = None) -> None:
        """Answer the oldest write."""
        self.answers.pop(0).set(refusal)


@dataclass
class Role:
    is_leader: bool = True
    leader_epoch: int = 3
    high_watermark: int = 10


@dataclass
class Log:
    log_start_offset: int = 0


@dataclass
class Hosted:
    state: Role = field(default_factory=Role)
    log: Log = field(default_factory=Log)
    name: TopicPartition = field(default=TopicPartition("orders", 0))

    @property
    def last_stable_offset(self) -> int:
        return self.state.high_watermark


class Waits:
    """The part of `ReplicaManager` that parks fetches."""

    def __init__(self) -> None:
        self.waits = self
        self.parked: list[FetchWait] = []

    def wait_bytes(self, wait: FetchWait, _: object, __: int) -> bool:
        self.parked.append(wait)
        return True

    def cancel(self, wait: FetchWait) -> None:
        self.parked.remove(wait)

    def came(self) -> None:
        """Records came."""
        parked, self.parked = self.parked, []
        for wait in parked:
            wait.on_done()


class Tasks:
    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        asyncio.get_running_loop().create_task(coroutine)


class Parked:
    """A fetch of a member that waits for records."""

    def __init__(
        self,
        member: str,
        wake: Callable[[], object] = lambda: None,
        hurry: Callable[[], object] = lambda: None,
    ) -> None:
        self.member = member
        self._wake = wake
        self._hurry = hurry

    def wake(self) -> None:
        """Read again."""
        self._wake()

    def hurry(self) -> None:
        """Answer."""
        self._hurry()


class Scene:
    """One share-partition over fakes."""

    def __init__(self, state: ShareState | Refusal | None = None, lock_ms: int = 30_000) -> None:
        self.settings = DeliverySettings(lock_ms, 5, 2000, False, OffsetReset(EARLIEST), True)
        self.states = Writes(state or ShareState(0, 0, ()))
        self.hosted = Hosted()
        self.replicas = Waits()
        calls = StateCalls(
            cast("ShareStates", self.states), cast("ColdReader", None), SystemClock(), Tasks()
        )

        class Deliveries:
            def of_topic(self, _: str, __: str) -> DeliverySettings:
                return settings

            def forget(self, _: str) -> None:
                pass

        settings = self.settings
        self.partitions = SharePartitions(
            calls,
            cast("ReplicaManager", self.replicas),
            cast("GroupDeliveries", Deliveries()),
            ShareSessions(),
        )
        self.live = self.open()

    def open(self) -> LivePartition:
        return self.partitions.open("g", PLACE, cast("HostedPartition", self.hosted))

    def session(self, member: str = "m") -> ShareSession:
        session = self.partitions.sessions.begin_fetch("g", member, 0, [PLACE])
        assert isinstance(session, ShareSession)
        session.served(PLACE)
        return session

    def acquire(self, member: str = "m", last: int = 9) -> list[Acquired]:
        offset = self.live.next_offset()
        assert offset is not None
        wish = Wish(member, 500, 500, is_exact=False)
        return list(self.live.acquire(wish, offset, [FetchedBatch(offset, last)]))

    def accept(self, first: int, last: int) -> list[Refusal | None]:
        """Accept records; the list gets the outcome."""
        outcomes: list[Refusal | None] = []
        answer = self.live.acknowledge("m", [Acknowledged(first, last, (1,))])
        answer.then(outcomes.append)
        return outcomes


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until the condition holds."""
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition never holds")


def run(test: Callable[[], Coroutine[object, object, None]]) -> None:
    asyncio.run(test())
