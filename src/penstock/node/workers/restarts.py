"""`Restarts`: when a worker that ended is started again, and when the supervisor gives up. Pure.

A worker that answered before is started again for ever: at once the first time, then after pauses
that double. One that never answers is tried `START_FAILURES_MAX` times. Wrong settings at the first
start are reported at once: another try would change nothing.
"""

from typing import Final

START_FAILURES_MAX: Final = 5
"""Starts in a row that end before the worker answers."""
PAUSE_SECONDS_MIN: Final = 0.25
PAUSE_SECONDS_MAX: Final = 30.0
STEADY_SECONDS: Final = 60.0
"""A worker that ran this long has recovered from earlier failures."""


class Restarts:
    """The history of one worker."""

    def __init__(self) -> None:
        self._crashes = 0
        self._start_failures = 0
        self._has_answered = False

    def pause_after_run(self, ran_seconds: float) -> float:
        """Return the seconds until the next start, after the end of a worker that answered."""
        self._has_answered = True
        self._start_failures = 0
        if ran_seconds >= STEADY_SECONDS:
            self._crashes = 0
        self._crashes += 1
        return 0.0 if self._crashes == 1 else _pause(self._crashes - 2)

    def pause_after_failed_start(self, *, is_wrongly_set: bool) -> float | None:
        """Return the seconds until the next start; None to give up."""
        self._start_failures += 1
        is_hopeless = is_wrongly_set and not self._has_answered
        if is_hopeless or self._start_failures >= START_FAILURES_MAX:
            return None
        return _pause(self._start_failures)


def _pause(doublings: int) -> float:
    return min(PAUSE_SECONDS_MAX, PAUSE_SECONDS_MIN * 2.0 ** min(doublings, 16))
