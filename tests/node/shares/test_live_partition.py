"""`LivePartition`: writes before answers, fences, retries, locks and parked fetches."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import cast
from uuid import UUID

import pytest

from penstock.broker.ports import ColdReader
from penstock.broker.share_state.share_ports import Wish
from penstock.broker.share_state.share_session_table import (
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
    StateBatch,
)
from penstock.core.cancellation import Cancellation
from penstock.core.clock import SystemClock
from penstock.core.deferred import Deferred
from penstock.node.shares import state_calls
from penstock.node.shares.live_partition import LivePartition
from penstock.node.shares.share_partitions import GroupDeliveries, SharePartitions
from penstock.node.shares.state_calls import StateCalls
from penstock.protocol.error_codes import ErrorCode
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
            def of(self, _: str) -> DeliverySettings:
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


def test_an_acknowledgement_is_answered_when_it_is_durable() -> None:
    async def test() -> None:
        scene = Scene()
        scene.acquire()
        outcomes = scene.accept(0, 9)
        assert outcomes == []
        (change,) = scene.states.changes
        assert change == ShareChange(0, 3, 10, (), 0)
        scene.states.settle()
        assert outcomes == [None]

    run(test)


def test_acknowledgements_share_a_write() -> None:
    async def test() -> None:
        scene = Scene()
        scene.acquire()
        first, second, third = scene.accept(0, 0), scene.accept(1, 1), scene.accept(2, 2)
        assert len(scene.states.changes) == 1
        scene.states.settle()
        assert (first, second, third) == ([None], [], [])
        scene.states.settle()
        assert (second, third) == ([None], [None])
        assert [change.start_offset for change in scene.states.changes] == [1, 3]

    run(test)


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH])
def test_a_fence_ends_the_share_partition(code: ErrorCode) -> None:
    async def test() -> None:
        scene = Scene()
        scene.acquire()
        outcomes = scene.accept(0, 9)
        scene.states.settle(Refusal(code))
        (outcome,) = outcomes
        assert outcome is not None
        assert outcome.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert scene.partitions.find("g", PLACE) is None
        scene.states.state = ShareState(1, 0, (StateBatch(0, 4, 2, 1),))
        scene.live = scene.open()
        assert scene.states.reads == 2
        assert scene.live.next_offset() == 5

    run(test)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_a_deleted_state_ends_the_share_partition(code: ErrorCode) -> None:
    """The group may be created again: its state must not be that of the former group."""

    async def test() -> None:
        scene = Scene()
        scene.acquire()
        outcomes = scene.accept(0, 9)
        assert outcomes == []
        scene.states.settle(Refusal(code))
        assert [one is None for one in outcomes] == [False]
        assert scene.partitions.find("g", PLACE) is None

    run(test)


def test_the_next_leader_epoch_serves_the_parked_fetches() -> None:
    async def test() -> None:
        scene = Scene()
        scene.acquire()
        woken: list[str] = []
        scene.live.park("fetch", lambda: woken.append("fetch"))
        scene.hosted.state.is_leader = False
        scene.hosted = Hosted()
        scene.live = scene.open()
        assert woken == ["fetch"]
        assert scene.replicas.parked == []

    run(test)


def test_a_refused_write_is_rolled_back() -> None:
    async def test() -> None:
        scene = Scene()
        scene.acquire()
        outcomes = scene.accept(0, 9)
        scene.states.settle(Refusal(ErrorCode.UNKNOWN_SERVER_ERROR))
        assert outcomes == [Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)]
        again = scene.accept(0, 9)
        scene.states.settle()
        assert again == [None]

    run(test)


def test_a_coordinator_that_moves_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_calls, "PAUSE_SECONDS", 0.0)

    async def test() -> None:
        scene = Scene()
        scene.acquire()
        outcomes = scene.accept(0, 9)
        for _ in range(state_calls.ATTEMPTS_MAX - 1):
            scene.states.settle(Refusal(ErrorCode.NOT_COORDINATOR))
            await until(lambda: bool(scene.states.answers))
        assert outcomes == []
        scene.states.settle(Refusal(ErrorCode.NOT_COORDINATOR))
        assert outcomes == [Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)]

    run(test)


def test_a_state_that_cannot_be_loaded() -> None:
    async def test() -> None:
        scene = Scene(Refusal(ErrorCode.GROUP_ID_NOT_FOUND, "gone"))
        assert not scene.live.is_loading
        assert scene.live.problem == Refusal(ErrorCode.GROUP_ID_NOT_FOUND, "gone")
        assert scene.partitions.find("g", PLACE) is None
        assert len(scene.partitions) == 0

    run(test)


def test_a_state_without_a_start_begins_where_the_group_says() -> None:
    async def test() -> None:
        scene = Scene(ShareState(0, -1, ()))
        loaded: list[bool] = []
        scene.live.when_loaded(lambda: loaded.append(True))
        await until(lambda: bool(loaded))
        assert scene.live.next_offset() == 0

    run(test)


def test_a_lock_ends() -> None:
    async def test() -> None:
        scene = Scene(lock_ms=1)
        scene.acquire()
        await until(lambda: scene.live.next_offset() == 0)
        assert scene.acquire("other") == [Acquired(0, 9, 2)]
        scene.partitions.stop()

    run(test)


def test_another_leader_answers() -> None:
    async def test() -> None:
        scene = Scene()
        scene.acquire()
        outcomes = scene.accept(0, 4)
        scene.hosted.state.is_leader = False
        assert scene.live.next_offset() is None
        assert [one and one.error_code for one in outcomes] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        scene.states.settle()
        assert len(scene.partitions) == 0

    run(test)


def test_parked_fetches_are_woken_while_there_are_records() -> None:
    async def test() -> None:
        scene = Scene()
        scene.acquire()
        woken: list[str] = []

        def wake(name: str) -> Callable[[], None]:
            def take() -> None:
                woken.append(name)
                scene.acquire(name, last=19)

            return take

        for name in "abc":
            scene.live.park(name, wake(name))
        assert len(scene.replicas.parked) == 1, "one wait for all of them"
        scene.hosted.state.high_watermark = 20
        scene.replicas.came()
        assert woken == ["a"]
        scene.live.unpark("b")
        scene.live.release("m")
        assert woken == ["a", "c"]
        assert scene.replicas.parked == []

    run(test)


def test_the_end_of_a_connection_releases_records() -> None:
    async def test() -> None:
        scene = Scene()
        session, client = scene.session(), Cancellation()
        scene.session("other")
        scene.partitions.follow(session, client)
        scene.acquire()
        client.cancel()
        assert scene.live.next_offset() == 0
        assert scene.acquire("other") == [Acquired(0, 9, 2)]

    run(test)


def test_a_member_that_opens_sessions_again_and_again_leaves_nothing() -> None:
    async def test() -> None:
        scene = Scene()
        client = Cancellation()
        for _ in range(50):
            session = scene.session()
            scene.partitions.follow(session, client)
        assert len(scene.partitions._clients) == 1
        assert client._listeners is not None
        assert len(client._listeners) == 1
        client.cancel()
        assert len(scene.partitions.sessions) == 0
        assert scene.partitions._clients == {}

    run(test)


def test_a_share_partition_without_sessions_is_dropped_after_its_writes() -> None:
    async def test() -> None:
        scene = Scene()
        session = scene.session()
        scene.acquire()
        outcomes = scene.accept(0, 4)
        scene.partitions.close(session)
        assert len(scene.partitions) == 1
        scene.states.settle()
        assert outcomes == [None]
        scene.states.settle()
        assert len(scene.partitions) == 0
        assert scene.states.changes[-1].batches == (StateBatch(5, 9, 0, 1),)

    run(test)
