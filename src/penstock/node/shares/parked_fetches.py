"""`ParkedFetches` and `HolderPrompt`: the fetches that wait for records of one share-partition.

A client may fetch again before it acknowledges the records that it got, and sends acknowledgements
with its next request. If the window is full and begins with its records, no member gets a record
before this fetch is answered. So the broker answers it early, without records. A client that does
not acknowledge then waits twice as long each time, until the window moves.

Apache Kafka lets such a fetch wait to its end, and all members of the group with it.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from penstock.broker.share_sessions.share_ports import ParkedFetch
from penstock.coordinator.shares.delivery.share_delivery import Held

PROMPT_SECONDS: Final = 0.005
"""A client needs a few milliseconds from an answer to its acknowledgements."""
PROMPT_SECONDS_MAX: Final = 0.64


class ParkedFetches:
    """Fetches in the order in which they were parked."""

    __slots__ = ("_fetches", "_of_member")

    def __init__(self) -> None:
        self._fetches: dict[ParkedFetch, None] = {}
        self._of_member: dict[str, ParkedFetch] = {}

    def __len__(self) -> int:
        return len(self._fetches)

    def __iter__(self) -> Iterator[ParkedFetch]:
        return iter(tuple(self._fetches))

    def add(self, fetch: ParkedFetch) -> None:
        """Park a fetch."""
        self._fetches[fetch] = None
        self._of_member[fetch.member] = fetch

    def discard(self, fetch: ParkedFetch) -> bool:
        """Forget a fetch; False if it is not parked."""
        if fetch not in self._fetches:
            return False
        del self._fetches[fetch]
        if self._of_member.get(fetch.member) is fetch:
            del self._of_member[fetch.member]
        return True

    def wake_all(self) -> None:
        """Wake every fetch."""
        for fetch in self:
            if self.discard(fetch):
                fetch.wake()

    def find(self, member: str) -> ParkedFetch | None:
        """Return the last fetch of a member."""
        return self._of_member.get(member)


class HolderPrompt:
    """Ends the wait of a fetch whose member keeps a full window closed."""

    __slots__ = ("_delay_seconds", "_held", "_loop", "_offset", "_parked", "_timer")

    def __init__(
        self,
        parked: ParkedFetches,
        held: Callable[[], Held | None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`held` returns the records that keep the window closed, and their owner."""
        self._parked = parked
        self._held = held
        self._loop = loop
        self._offset = -1
        """The first of the held records when this object looked last."""
        self._delay_seconds = PROMPT_SECONDS
        self._timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """Set the timer if the owner of the held records waits; the window or a fetch changed."""
        fetch = self._blocking()
        if fetch is None:
            self.stop()
        elif self._timer is None:
            self._timer = self._loop.call_later(self._delay_seconds, self._ring)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _blocking(self) -> ParkedFetch | None:
        held = self._held() if self._parked else None
        if held is None:
            return None
        if held.offset != self._offset:
            self._offset, self._delay_seconds = held.offset, PROMPT_SECONDS
            self.stop()
        return self._parked.find(held.member)

    def _ring(self) -> None:
        self._timer = None
        fetch = self._blocking()
        if fetch is not None:
            self._delay_seconds = min(2 * self._delay_seconds, PROMPT_SECONDS_MAX)
            fetch.hurry()
