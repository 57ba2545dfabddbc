"""`LivePartition`: writes before answers, fences, retries, locks and parked fetches."""

from collections.abc import Callable

import pytest

from penstock.coordinator.shares.delivery.acquisition import Acquired
from penstock.coordinator.shares.ports import (
    Refusal,
    ShareChange,
    ShareState,
    StateBatch,
)
from penstock.core.cancellation import Cancellation
from penstock.node.shares import state_calls
from penstock.protocol.error_codes import ErrorCode
from tests.node.shares.share_scene import PLACE, Hosted, Parked, Scene, run, until


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
        scene.live.park(Parked("fetch", lambda: woken.append("fetch")))
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

        fetches = {name: Parked(name, wake(name)) for name in "abc"}
        for fetch in fetches.values():
            scene.live.park(fetch)
        assert len(scene.replicas.parked) == 1, "one wait for all of them"
        scene.hosted.state.high_watermark = 20
        scene.replicas.came()
        assert woken == ["a"]
        scene.live.unpark(fetches["b"])
        scene.live.release("m")
        assert woken == ["a", "c"]
        assert scene.replicas.parked == []

    run(test)


def test_an_acknowledgement_wakes_a_fetch_before_it_is_durable() -> None:
    async def test() -> None:
        scene = Scene()
        scene.hosted.state.high_watermark = 4000
        scene.acquire(last=1999)
        got: list[Acquired] = []
        scene.live.park(Parked("a", lambda: got.extend(scene.acquire("a", last=2999))))
        assert scene.live.next_offset() is None, "the window is full"
        outcomes = scene.accept(0, 1999)
        assert got == [Acquired(2000, 2999, 1)]
        assert outcomes == []
        scene.states.settle(Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the disk is full"))
        assert [one.error_code for one in outcomes if one] == [ErrorCode.UNKNOWN_SERVER_ERROR]
        assert scene.live.next_offset() is None, "all records have owners again"

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
