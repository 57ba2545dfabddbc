"""`ProgressBoard`: the state of the follower for the tasks of the event loop.

The follower's thread publishes after each commit; requests read the facts, or wait until the
positions have reached an offset. Facts are immutable values, replaced as a whole. The number of
waits is bounded, and each has a time limit.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.materialize.offset_waits import missing
from penstock.materialize.store_health import ServiceFacts, TopicFacts, Trouble

WAITS_MAX: Final = 256


class TooManyWaitsError(PenstockError):
    """As many requests wait as are allowed."""


class ProgressBoard:
    """The facts of one service. One thread publishes, and one event loop reads."""

    def __init__(self, topics: Mapping[str, TopicFacts], clock: Clock) -> None:
        self._clock = clock
        self._started = clock.monotonic()
        self._contact: float | None = None
        self._facts = ServiceFacts(dict(topics))
        self._waits: set[asyncio.Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- In the follower's thread ---

    def publish(self, topic: str, facts: TopicFacts) -> None:
        """Replace the facts of a topic."""
        self._facts = replace(self._facts, topics={**self._facts.topics, topic: facts})
        loop = self._loop
        if loop is not None and self._waits:
            self._in_loop(loop, self._wake)

    def contacted(self) -> None:
        """A broker answered."""
        self._contact = self._clock.monotonic()
        if self._facts.unreachable is not None:
            self._facts = replace(self._facts, unreachable=None)

    def unreachable(self, trouble: Trouble) -> None:
        """No broker answered."""
        self._facts = replace(self._facts, unreachable=trouble)

    def store_trouble(self, trouble: Trouble | None) -> None:
        """The file cannot be written, or can be written again."""
        self._facts = replace(self._facts, store=trouble)

    @staticmethod
    def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        try:
            loop.call_soon_threadsafe(call)
        except RuntimeError:
            assert loop.is_closed()  # the process stops

    # --- In the event loop ---

    def attach(self) -> None:
        """Wake waits in the running event loop."""
        self._loop = asyncio.get_running_loop()

    def facts(self) -> ServiceFacts:
        """Return the present facts."""
        now = self._clock.monotonic()
        since = None if self._contact is None else now - self._contact
        return replace(self._facts, contact_seconds=since, uptime_seconds=now - self._started)

    async def wait(
        self, topic: str, wanted: Mapping[int, int], seconds_max: float
    ) -> dict[int, int]:
        """Wait until the positions are beyond these offsets; return the conditions that failed."""
        deadline = self._clock.monotonic() + seconds_max
        while left := missing(wanted, self._facts.topics[topic].positions):
            remaining = deadline - self._clock.monotonic()
            if remaining <= 0:
                return left
            if len(self._waits) >= WAITS_MAX:
                raise TooManyWaitsError(f"{WAITS_MAX} requests wait already.")
            woken = asyncio.get_running_loop().create_future()
            self._waits.add(woken)
            try:
                # Checked again: the follower may have published before it saw this wait.
                if missing(wanted, self._facts.topics[topic].positions):
                    await asyncio.wait([woken], timeout=remaining)
            finally:
                self._waits.discard(woken)
        return {}

    def _wake(self) -> None:
        for woken in self._waits:
            if not woken.done():
                woken.set_result(None)
