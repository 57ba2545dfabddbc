"""`LoopLag`: the delay of the event loop, as a histogram.

Twice a second it schedules a call, and records the delay of the call. Every request waits that long
before it is handled. Causes are work that blocks the loop, a garbage collection, and a processor
that other processes use. It costs a few microseconds each time. It starts no task and changes
nothing.
"""

import asyncio
from typing import Final

from penstock.core.metrics import Histogram, Registry

INTERVAL_SECONDS: Final = 0.5
"""Time between two measurements. A stop of the loop that lasts this long is always measured, a
shorter one in proportion."""
LAG_BOUNDS: Final = (0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Starting at a millisecond, the precision of the loop's timers."""


class LoopLag:
    """Watches one event loop until it is stopped."""

    def __init__(self, loop: asyncio.AbstractEventLoop, metrics: Registry) -> None:
        self._loop = loop
        self._lags: Histogram = metrics.histogram(
            "event_loop_lag_seconds", "How late the event loop does what is due.", LAG_BOUNDS
        )
        self._due = 0.0
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start measuring."""
        self._due = self._loop.time() + INTERVAL_SECONDS
        self._handle = self._loop.call_at(self._due, self._look)

    def stop(self) -> None:
        """Stop measuring."""
        if self._handle is not None:
            self._handle.cancel()

    def _look(self) -> None:
        self._lags.observe(max(0.0, self._loop.time() - self._due))
        self.start()
