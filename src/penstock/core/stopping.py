"""The time limits of a stop: the division of the five seconds after SIGTERM; `StopDeadline`.

A stop ends within `STOP_SECONDS_MAX`, independent of client requests and of a busy disk. Every wait
of a stop ends at one deadline and never adds its own time.

    0.0 s   the signal; the listener accepts nothing more
    3.0 s   requests that were accepted are answered, or their connections are closed
    4.0 s   no more syncs of a clean close begin; checkpoints are written
    4.6 s   the process exits, wherever the stop is (`cli.serve`)
    5.0 s   the bound; the operating system has ended the process
"""

from typing import Final

from penstock.core.clock import Clock

STOP_SECONDS_MAX: Final = 5.0
"""Time from SIGTERM to the end of the process. Orchestrators kill a process after 10 s (Docker) or
30 s (Kubernetes), and operators press Ctrl-C again long before that."""

STOP_DRAIN_SECONDS_MAX: Final = 3.0
"""Time that a stop waits for answers to accepted requests."""

WORK_STOP_SECONDS_MAX: Final = 1.0
"""Time that a stop waits for storage's threads after it cancelled their work: 500 slices."""

STOP_CLOSE_SECONDS: Final = 4.0
"""Time after which a clean close starts no more syncs. A slice of syncs and four small files
follow."""

STOP_EXIT_SECONDS: Final = 4.6
"""Time after which the process exits without waiting. The operating system needs the remaining
time: it ends a thread inside a sync only when that sync returns."""


class StopDeadline:
    """One deadline for all waits of a stop; it starts with the stop."""

    __slots__ = ("_begun_at", "_clock", "_seconds")

    def __init__(self, clock: Clock, seconds: float = STOP_CLOSE_SECONDS) -> None:
        self._clock = clock
        self._seconds = seconds
        self._begun_at: float | None = None

    def begin(self) -> None:
        """Start to count; later calls change nothing."""
        if self._begun_at is None:
            self._begun_at = self._clock.monotonic()

    @property
    def seconds_left(self) -> float:
        """Return the seconds until the deadline, at least 0; the full time before `begin`."""
        if self._begun_at is None:
            return self._seconds
        return max(0.0, self._begun_at + self._seconds - self._clock.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return self.seconds_left <= 0.0
