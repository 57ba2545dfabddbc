"""`Pace`: the time between two rounds of a periodic duty, which may change while it is waited for.

Guarantees: a duty that waits uses a shorter or longer time at once; time that has passed already
counts. It costs nothing while the pace is unchanged. It runs no duty itself.
"""

import asyncio


class Pace:
    """How long a duty rests between two rounds."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_seconds = interval_ms / 1_000
        self._changed = asyncio.Event()

    @property
    def interval_seconds(self) -> float:
        """The present interval."""
        return self._interval_seconds

    def change(self, interval_ms: int) -> None:
        """Change the interval; a duty that rests already is woken."""
        self._interval_seconds = interval_ms / 1_000
        self._changed.set()
        self._changed = asyncio.Event()

    async def rest(self) -> None:
        """Wait until the interval is over, as long as it is by then."""
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        while (left := began_at + self._interval_seconds - loop.time()) > 0:
            changed = self._changed
            try:
                async with asyncio.timeout(left):
                    await changed.wait()
            except TimeoutError:
                return
