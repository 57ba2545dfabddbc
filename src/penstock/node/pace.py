"""`Pace`: the interval between two rounds of a periodic duty, which can change during the wait.

Guarantees: a waiting duty uses a shorter or longer interval at once; elapsed time counts. It costs
nothing while the interval is unchanged. It runs no duty itself.
"""

import asyncio


class Pace:
    """The pause of a duty between two rounds."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_seconds = interval_ms / 1_000
        self._changed = asyncio.Event()

    @property
    def interval_seconds(self) -> float:
        """The present interval."""
        return self._interval_seconds

    def change(self, interval_ms: int) -> None:
        """Change the interval; wake a waiting duty."""
        self._interval_seconds = interval_ms / 1_000
        self._changed.set()
        self._changed = asyncio.Event()

    async def rest(self) -> None:
        """Wait until the interval is over; the interval may change during the wait."""
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        while (left := began_at + self._interval_seconds - loop.time()) > 0:
            changed = self._changed
            try:
                async with asyncio.timeout(left):
                    await changed.wait()
            except TimeoutError:
                return
