"""A broker keeps its session, and registers again with a higher epoch when it lost it."""

import asyncio
from dataclasses import replace

import pytest

from penstock.cluster.image import BrokerImage, Endpoint, MetadataImage
from penstock.cluster.keys import Keys
from penstock.cluster.link.membership import LATE_SECONDS, TICK_SECONDS, Membership
from penstock.cluster.stores.port import Snapshot
from penstock.core.errors import StoreError
from penstock.core.limits import BROKER_SESSION_SECONDS, KEEP_ALIVES_PER_SESSION
from penstock.core.types import PLAINTEXT
from penstock.testing.memory_store import MemoryMetadataStore

BROKER_KEEP_ALIVE_SECONDS = BROKER_SESSION_SECONDS / KEEP_ALIVES_PER_SESSION
BROKER = BrokerImage(1, (Endpoint(PLAINTEXT, "localhost", 9092),), None, "directory-1", 0)


class StepClock:
    """A clock that moves during a sleep, and ends the sleeper after some steps."""

    def __init__(self, steps: list[float]) -> None:
        self.seconds = 0.0
        self.steps = steps

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float, _lost: asyncio.Event) -> None:
        if seconds == TICK_SECONDS:
            # After a long step, one short timer that is on time.
            self.seconds += seconds
            return
        assert seconds == BROKER_KEEP_ALIVE_SECONDS
        if not self.steps:
            raise asyncio.CancelledError
        self.seconds += self.steps.pop(0)


def epoch_after(steps: list[float]) -> tuple[int, int]:
    """The epoch at first and after keeping the session through these sleeps."""

    async def main() -> tuple[int, int]:
        clock = StepClock(steps)
        store = MemoryMetadataStore(clock=clock)
        membership = Membership(store, Keys(), BROKER, clock=clock, sleep=clock.sleep)
        first = await membership.join()
        task = asyncio.gather(membership.keep(), return_exceptions=True)
        await task
        (pair,) = (await store.read(Keys().broker(1))).values
        assert membership.guard().revision == pair.create_revision
        await membership.leave()
        assert not (await store.read(Keys().broker(1))).values
        return first, pair.create_revision

    return asyncio.run(main())


def test_a_session_that_is_kept_stays() -> None:
    first, last = epoch_after([BROKER_KEEP_ALIVE_SECONDS] * 10)
    assert first == last


def test_a_process_that_was_stopped_registers_again() -> None:
    first, last = epoch_after([BROKER_SESSION_SECONDS + 1, BROKER_KEEP_ALIVE_SECONDS])
    assert last > first


class FlakyStore(MemoryMetadataStore):
    """A store that does not answer for a while."""

    def __init__(self, clock: StepClock, failures: int) -> None:
        super().__init__(clock=clock)
        self.failures = failures

    def _answer(self) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreError("the disk is busy")

    async def keep_alive(self, session: int) -> None:
        self._answer()
        await super().keep_alive(session)

    async def read(self, key: str, *, revision: int | None = None) -> Snapshot:
        self._answer()
        return await super().read(key, revision=revision)


@pytest.mark.parametrize("failures", [1, 2, 3])
@pytest.mark.parametrize("pause", [BROKER_KEEP_ALIVE_SECONDS, BROKER_SESSION_SECONDS + 1])
def test_a_store_that_does_not_answer_is_asked_again(failures: int, pause: float) -> None:
    """Also when the session was lost meanwhile, and when registering again fails at first."""

    async def main() -> tuple[int, int]:
        clock = StepClock([pause, *[BROKER_KEEP_ALIVE_SECONDS] * 5])
        store = FlakyStore(clock, 0)
        membership = Membership(store, Keys(), BROKER, sleep=clock.sleep)
        first = await membership.join()
        store.failures = failures
        with pytest.raises(asyncio.CancelledError):
            await membership.keep()
        (pair,) = (await store.read(Keys().broker(1))).values
        assert membership.guard().revision == pair.create_revision
        return first, pair.create_revision

    first, last = asyncio.run(main())
    assert (last > first) is (pause > BROKER_SESSION_SECONDS)


class Scene:
    """A registered broker whose sleeps a test carries out."""

    def __init__(self) -> None:
        self.clock = StepClock([])
        self.store = CountingStore(clock=self.clock)
        self.epochs: list[int] = []
        self.membership = Membership(
            self.store,
            Keys(),
            BROKER,
            clock=self.clock,
            session_seconds=9.0,
            on_change=self.epochs.append,
            sleep=self.sleep,
        )
        self.steps: list[float] = []

    async def sleep(self, _seconds: float, _lost: asyncio.Event) -> None:
        if not self.steps:
            raise asyncio.CancelledError
        self.clock.seconds += self.steps.pop(0)

    async def keep(self, *steps: float) -> None:
        """Keep the session for these sleeps."""
        self.steps = [*steps]
        with pytest.raises(asyncio.CancelledError):
            await self.membership.keep()


class CountingStore(MemoryMetadataStore):
    """A store that counts keep-alives, and refuses them on demand."""

    kept = 0
    is_silent = False

    async def keep_alive(self, session: int) -> None:
        self.kept += 1
        if self.is_silent:
            raise StoreError("no answer")
        await super().keep_alive(session)


def test_a_loop_that_hangs_sends_no_keep_alive() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.membership.join()
        await scene.keep(2.0 + LATE_SECONDS + 0.1)
        assert scene.store.kept == 0
        await scene.keep(2.0 + LATE_SECONDS + 0.1, TICK_SECONDS + LATE_SECONDS + 0.1)
        assert scene.store.kept == 0
        await scene.keep(2.0 + LATE_SECONDS + 0.1, TICK_SECONDS)
        assert scene.store.kept == 1

    asyncio.run(main())


def test_a_broker_is_isolated_before_its_session_can_end() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.membership.join()
        assert not scene.membership.is_isolated
        await scene.keep(2.0)
        sent_at = scene.clock.seconds
        scene.store.is_silent = True
        await scene.keep(2.0, 2.0, 2.0)
        assert not scene.membership.is_isolated
        found = []
        for seconds in (7.5, 7.51):
            scene.clock.seconds = sent_at + seconds
            found.append(scene.membership.is_isolated)
        assert found == [False, True]
        scene.store.is_silent = False
        await scene.keep(0.5)
        found.append(scene.membership.is_isolated)
        assert found == [False, True, False]
        assert len(scene.epochs) == 1

    asyncio.run(main())


def test_a_keep_alive_counts_from_when_it_was_sent() -> None:
    """The answer may be late: the store counts from its arrival."""

    async def main() -> None:
        scene = Scene()
        await scene.membership.join()
        keep_alive = scene.store.keep_alive

        async def late(session: int) -> None:
            await keep_alive(session)
            scene.clock.seconds += 5.0

        scene.store.keep_alive = late  # type: ignore[method-assign]
        await scene.keep(2.0)
        scene.clock.seconds += 2.6
        assert scene.membership.is_isolated

    asyncio.run(main())


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_lost_registration_is_noticed_in_the_image(is_replaced: bool) -> None:
    async def main() -> None:
        scene = Scene()
        epoch = await scene.membership.join()
        registered = replace(BROKER, epoch=epoch)
        # An image from before the registration says nothing.
        scene.membership.follow(MetadataImage(revision=epoch - 1))
        scene.membership.follow(MetadataImage(revision=epoch, brokers={1: registered}))
        assert scene.epochs == [epoch]
        left = {1: replace(registered, epoch=epoch + 1)} if is_replaced else {}
        scene.membership.follow(MetadataImage(revision=epoch + 1, brokers=left))
        assert scene.epochs == [epoch, 0]
        assert not scene.membership.is_registered
        await scene.store.end_session(scene.membership.session)
        # The keeper does not sleep before it registers again, unless another process has the id.
        await scene.keep(*[2.0] * is_replaced)
        assert scene.epochs == [epoch, 0, scene.membership.epoch]
        assert scene.membership.epoch > epoch

    asyncio.run(main())


def test_a_session_that_the_store_ended_is_noticed_once() -> None:
    async def main() -> None:
        scene = Scene()
        epoch = await scene.membership.join()
        await scene.store.end_session(scene.membership.session)
        await scene.keep(2.0)
        assert scene.epochs == [epoch, 0, scene.membership.epoch]

    asyncio.run(main())
