"""`BackOff`: pauses between attempts to reach a parent, with full jitter. Pure.

The bound of a pause doubles from 0.5 s to 60 s, and the pause is a random share of it. After an
outage thousands of children return at the same time: without the jitter they would all return in
the same moment again.
"""

from typing import Final

PAUSE_SECONDS_MIN: Final = 0.5
PAUSE_SECONDS_MAX: Final = 60.0


class BackOff:
    """The pauses of one pipe."""

    __slots__ = ("_bound_seconds",)

    def __init__(self) -> None:
        self._bound_seconds = PAUSE_SECONDS_MIN

    @property
    def bound_seconds(self) -> float:
        """The longest possible next pause."""
        return self._bound_seconds

    def next_pause(self, share: float) -> float:
        """Return the next pause; `share` is random, from 0 to 1."""
        assert 0.0 <= share <= 1.0
        pause = share * self._bound_seconds
        self._bound_seconds = min(PAUSE_SECONDS_MAX, 2 * self._bound_seconds)
        return pause

    def reset(self) -> None:
        """The parent answered: the next pause is short."""
        self._bound_seconds = PAUSE_SECONDS_MIN
