"""`TimeLimits`: which time limit a connection has passed, and when to check it next. Pure.

- A request that was begun is received whole within `frame_completion_seconds_max`.
- A client whose answers wait reads some of them within `slow_reader_seconds_max`; it is checked now
  and then, so it is closed a little late.
- A connection without requests is idle after `connection_idle_seconds_max`.

A quota mutes a connection until `muted_until`. This file neither reads clocks nor ends connections:
`broker.connections.listener` does.
"""

from typing import Final

from penstock.broker.connections import endings
from penstock.broker.connections.send_queue import Stall
from penstock.core.settings.tree import ListenerSettings

_STALL_LOOKS: Final = 4
"""Checks of a client that reads nothing, within its time limit: it is closed up to a quarter
late."""
_NOTHING: Final = ""


class TimeLimits:
    """The times of one connection."""

    __slots__ = ("_stall", "frame_since", "last_request_at", "muted_until")

    def __init__(self) -> None:
        self.frame_since: float | None = None
        """When the incomplete request began; None while the broker is not waiting for the
        client."""
        self.last_request_at = 0.0
        self.muted_until = 0.0
        self._stall = Stall()

    def begin_stall(self, now: float, settings: ListenerSettings) -> float:
        """Answers begin to wait for the client; return when to check it."""
        self._stall.begin(now)
        self.frame_since = None
        return now + settings.slow_reader_seconds_max / _STALL_LOOKS

    def used_up(
        self, now: float, settings: ListenerSettings, unsent_bytes: int | None, *, is_answered: bool
    ) -> str:
        """The time limit that is used up (of `endings.TIME_LIMITS`), or an empty string.

        `unsent_bytes` is None while no answers wait for the client.
        """
        if (
            self.frame_since is not None
            and now - self.frame_since >= settings.frame_completion_seconds_max
        ):
            return endings.UNFINISHED_REQUEST
        if unsent_bytes is not None and self._stall.lasts(
            unsent_bytes, now, settings.slow_reader_seconds_max
        ):
            return endings.UNREAD_ANSWERS
        if is_answered and now - self.last_request_at >= settings.connection_idle_seconds_max:
            return endings.IDLE
        return _NOTHING

    def next_check(
        self,
        now: float,
        settings: ListenerSettings,
        *,
        is_answered: bool,
        is_muted: bool,
        is_stalled: bool,
    ) -> float:
        """When a time limit may be used up at the earliest."""
        idle_since = self.last_request_at if is_answered else max(now, self.last_request_at)
        moments = [idle_since + settings.connection_idle_seconds_max]
        if self.frame_since is not None:
            moments.append(self.frame_since + settings.frame_completion_seconds_max)
        if is_muted:
            moments.append(self.muted_until)
        if is_stalled:
            moments.append(now + settings.slow_reader_seconds_max / _STALL_LOOKS)
        return min(moments)
