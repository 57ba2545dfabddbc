"""A broker keeps its session, and registers again with a higher epoch when it lost it."""

import asyncio

from penstock.cluster.image import BrokerImage
from penstock.cluster.keys import Keys
from penstock.cluster.membership import Membership
from penstock.core.limits import BROKER_KEEP_ALIVE_SECONDS, BROKER_SESSION_SECONDS
from penstock.testing.memory_store import MemoryMetadataStore

BROKER = BrokerImage(1, "localhost", 9092, None, "directory-1", 0)


class StepClock:
    """A clock that moves when somebody sleeps, and ends the sleeper after some steps."""

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
