"""A broker keeps its session, and registers again with a higher epoch when it lost it."""

import asyncio

import pytest

from penstock.cluster.image import BrokerImage, Endpoint
from penstock.cluster.keys import Keys
from penstock.cluster.link.membership import Membership
from penstock.cluster.stores.port import Snapshot
from penstock.core.errors import StoreError
from penstock.core.limits import BROKER_KEEP_ALIVE_SECONDS, BROKER_SESSION_SECONDS
from penstock.core.types import PLAINTEXT
from penstock.testing.memory_store import MemoryMetadataStore

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

    async def sleep(self, seconds: float) -> None:
        assert seconds == BROKER_KEEP_ALIVE_SECONDS
        if not self.steps:
            raise asyncio.CancelledError
        self.seconds += self.steps.pop(0)


def epoch_after(steps: list[float]) -> tuple[int, int]:
    """The epoch at first and after keeping the session through these sleeps."""

    async def main() -> tuple[int, int]:
        clock = StepClock(steps)
        store = MemoryMetadataStore(clock=clock)
        membership = Membership(store, Keys(), BROKER, sleep=clock.sleep)
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
