"""`Pauses`: a client above a quota is not read, or gets no records, until its time is over.

Each of the two has one timer, which runs only while it is held. It decides nothing: the quotas of
the broker do (`ports.PushBroker.charge_publish`, `.charge_delivery`).
"""

import asyncio
from collections.abc import Callable


class Pauses:
    """The pauses of one connection."""

    __slots__ = ("_delivery", "_loop", "_reading")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._reading: asyncio.TimerHandle | None = None
        self._delivery: asyncio.TimerHandle | None = None

    @property
    def is_reading_held(self) -> bool:
        """Whether nothing is received from the client."""
        return self._reading is not None

    @property
    def is_delivery_held(self) -> bool:
        """Whether the client gets no records."""
        return self._delivery is not None

    def hold_reading(self, seconds: float, resume: Callable[[], None]) -> None:
        """Receive nothing for a time; the longest time counts."""
        before = self._reading
        if before is None or before.when() < self._loop.time() + seconds:
            if before is not None:
                before.cancel()
            self._reading = self._loop.call_later(seconds, self._read_again, resume)

    def hold_delivery(self, seconds: float, resume: Callable[[], None]) -> None:
        """Deliver nothing for a time."""
        if self._delivery is not None:
            self._delivery.cancel()
        self._delivery = self._loop.call_later(seconds, self._deliver_again, resume)

    def _read_again(self, resume: Callable[[], None]) -> None:
        self._reading = None
        resume()

    def _deliver_again(self, resume: Callable[[], None]) -> None:
        self._delivery = None
        resume()

    def cancel(self) -> None:
        """The connection is gone."""
        for timer in (self._reading, self._delivery):
            if timer is not None:
                timer.cancel()
