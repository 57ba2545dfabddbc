"""The `Clock` port and `SystemClock`: the only place that reads the time.

Wall-clock milliseconds are for timestamps that leave the process; monotonic seconds are for
durations and deadlines. The fake is `penstock.testing.ManualClock`.
"""

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """The source of time."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since 1970. May jump; never use it for durations."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed point. Never goes back; independent of the date."""
        ...


class SystemClock:
    """The clock of this machine."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds since the machine started."""
        return time.monotonic()


def stopwatch(clock: Clock) -> Callable[[], float]:
    """Return `clock.monotonic` for callers that use it several times a request: half the cost."""
    return time.monotonic if isinstance(clock, SystemClock) else clock.monotonic
