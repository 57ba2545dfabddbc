"""A share-partition learns that its group was reset, and a closed session asks few partitions."""

import asyncio
from uuid import UUID

import pytest

from penstock.broker.share_sessions.share_session_table import SharePartitionId
from penstock.coordinator.shares.delivery.acquisition import Acquired
from penstock.coordinator.shares.ports import Refusal, ShareState
from penstock.node.shares import live_partition
from penstock.node.shares.live_partition import LivePartition
from penstock.protocol.error_codes import ErrorCode
from tests.node.shares.share_scene import PLACE, Parked, Scene, run, until


@pytest.fixture(autouse=True)
def always_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each use of a share-partition looks at the durable state."""
    monkeypatch.setattr(live_partition, "CONFIRM_SECONDS", 0.0)


@pytest.mark.parametrize(
    "state",
    [
        ShareState(1, 5, ()),
        ShareState(0, 5, ()),
        Refusal(ErrorCode.INVALID_REQUEST),
    ],
    ids=["a later epoch", "another start", "no state"],
)
def test_a_state_that_was_reset_is_loaded_anew(state: ShareState | Refusal) -> None:
    async def test() -> None:
        scene = Scene()
        before = scene.live
        woken: list[str] = []
        before.park(Parked("a", lambda: woken.append("a")))
        scene.states.state = state
        scene.live = scene.open()
        assert scene.live is not before
        assert before.problem is not None
        assert woken == ["a"], "a parked fetch looks at the new state"
        if isinstance(state, ShareState):
            assert scene.acquire() == [Acquired(5, 9, 1)]

    run(test)


def test_an_unchanged_state_goes_on() -> None:
    async def test() -> None:
        scene = Scene(ShareState(0, -1, ()))
        before = scene.live
        await until(lambda: not before.is_loading)
        assert scene.open() is before
        scene.acquire()
        scene.accept(0, 3)
        assert scene.open() is before, "a write under way is the confirmation"
        scene.states.settle()
        scene.states.state = ShareState(0, 4, ())
        assert scene.open() is before
        scene.states.state = Refusal(ErrorCode.NOT_COORDINATOR)
        assert scene.open() is before, "the coordinator is moving: the next use looks again"
        assert scene.states.reads == 4

    run(test)


def test_a_share_partition_with_writes_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr(live_partition, "CONFIRM_SECONDS", 30.0)
        scene = Scene()
        for _ in range(10):
            scene.open()
        assert scene.states.reads == 1
        scene.live._confirmed_at = asyncio.get_running_loop().time() - 31
        scene.open()
        assert scene.states.reads == 2
        scene.open()
        assert scene.states.reads == 2

    run(test)


def test_the_end_of_a_session_asks_only_the_partitions_of_its_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        scene = Scene()
        for number in range(1, 50):
            other = SharePartitionId(UUID(int=1), number)
            scene.partitions.open("g", other, scene.live.hosted)
        asked: list[int] = []
        monkeypatch.setattr(
            LivePartition, "release", lambda self, member: asked.append(self.key.partition)
        )
        session, kept = scene.session(), scene.session("other")
        scene.partitions.close(session)
        assert asked == [PLACE.partition]
        asked.clear()
        kept.held = None
        scene.partitions.close(kept)
        assert len(asked) == 50, "a session that cannot know asks all of them"

    run(test)
