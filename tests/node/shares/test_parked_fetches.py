"""`ParkedFetches` and `HolderPrompt`: the order of waits, and the end of one that blocks all."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import cast

import pytest

from penstock.coordinator.shares.delivery.share_delivery import Held
from penstock.node.shares import parked_fetches
from penstock.node.shares.parked_fetches import HolderPrompt, ParkedFetches
from tests.node.shares.share_scene import Parked, Scene, run, until


class Timer:
    """A timer that a test rings."""

    def __init__(self, delay_seconds: float, ring: Callable[[], None]) -> None:
        self.delay_seconds = delay_seconds
        self.ring = ring
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Timers:
    """The part of an event loop that the prompt uses."""

    def __init__(self) -> None:
        self.all: list[Timer] = []

    def call_later(self, delay_seconds: float, ring: Callable[[], None]) -> Timer:
        self.all.append(Timer(delay_seconds, ring))
        return self.all[-1]

    def ring(self) -> None:
        """Ring the last timer, unless it is cancelled."""
        if not self.all[-1].is_cancelled:
            self.all[-1].ring()


class Window:
    """A window, and a prompt that looks at it."""

    def __init__(self) -> None:
        self.held: Held | None = None
        self.timers = Timers()
        self.parked = ParkedFetches()
        self.hurried: list[str] = []
        loop = cast("asyncio.AbstractEventLoop", self.timers)
        self.prompt = HolderPrompt(self.parked, lambda: self.held, loop)

    def park(self, member: str) -> Parked:
        """Park a fetch, as a share-partition does."""

        def hurry() -> None:
            self.hurried.append(member)
            self.parked.discard(fetch)
            self.prompt.look()

        fetch = Parked(member, hurry=hurry)
        self.parked.add(fetch)
        self.prompt.look()
        return fetch

    @property
    def delays_ms(self) -> list[float]:
        """The delays of all timers so far."""
        return [round(timer.delay_seconds * 1000) for timer in self.timers.all]


def test_the_owner_of_the_first_records_is_answered_early() -> None:
    window = Window()
    window.held = Held(0, "a")
    window.park("b")
    assert window.timers.all == [], "its answer would open nothing"
    window.park("a")
    window.timers.ring()
    assert window.hurried == ["a"]


def test_a_window_with_room_hurries_no_fetch() -> None:
    window = Window()
    window.park("a")
    assert window.timers.all == []
    window.held = Held(0, "a")
    window.prompt.look()
    window.held = None
    window.timers.ring()
    assert window.hurried == []


@pytest.mark.parametrize("is_looked_at", [True, False])
def test_an_acknowledgement_in_time_ends_the_prompt(*, is_looked_at: bool) -> None:
    window = Window()
    window.held = Held(0, "a")
    window.park("a")
    window.held = Held(1000, "b")
    if is_looked_at:
        window.prompt.look()
    window.timers.ring()
    assert window.hurried == []


def test_a_client_that_does_not_acknowledge_waits_longer_each_time() -> None:
    """A client that fetches all the time must not keep the broker busy."""
    window = Window()
    window.held = Held(0, "a")
    for _ in range(10):
        window.park("a")
        window.timers.ring()
    assert window.delays_ms == [5, 10, 20, 40, 80, 160, 320, 640, 640, 640]
    window.held = Held(1000, "a")
    window.park("a")
    assert window.delays_ms[-1] == 5, "the window has moved"


def test_the_order_of_fetches_is_kept() -> None:
    window = Window()
    one, two, again = window.park("a"), window.park("b"), window.park("a")
    assert list(window.parked) == [one, two, again]
    assert window.parked.find("a") is again
    assert window.parked.discard(one)
    assert not window.parked.discard(one)
    assert window.parked.find("a") is again
    assert window.parked.discard(again)
    assert window.parked.find("a") is None
    assert len(window.parked) == 1


def test_a_share_partition_hurries_the_fetch_that_blocks_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parked_fetches, "PROMPT_SECONDS", 0.0)

    async def test() -> None:
        scene = Scene()
        scene.hosted.state.high_watermark = 4000
        scene.acquire("m", last=1999)
        hurried: list[str] = []
        for name in ("other", "m"):
            scene.live.park(Parked(name, hurry=partial(hurried.append, name)))
        await until(lambda: bool(hurried))
        assert hurried == ["m"]
        scene.live.stop()

    run(test)
