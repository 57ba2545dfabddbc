"""One timer for the time limits of all connections: an idle one costs no wake-ups.

A connection asks to be checked by a time; it is asked once, at that time or up to ten milliseconds
later, and says itself what is to be done and when to look again. One whose check fails is ended,
and the others keep their alarms. What the limits are is NOT known here.
"""

import asyncio
import logging
from typing import Final, Protocol

from penstock.core.deadlines import DeadlineTable

logger = logging.getLogger(__name__)

NEVER: Final = float("inf")


class Checked(Protocol):
    """Who has time limits."""

    check_at: float
    """When it is checked next; `NEVER` at first."""
    check_key: int | None
    """Kept for the alarm; None at first."""

    def check_time(self, now: float) -> None:
        """End what has used up its time, or ask to be checked again."""
        ...

    def abort(self) -> None:
        """End it at once."""
        ...


class Alarms:
    """The timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._alarm_loop = loop
        self._deadlines: DeadlineTable[Checked] = DeadlineTable()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = NEVER

    def check_by(self, connection: Checked, deadline: float) -> None:
        """Have `connection.check_time` called at `deadline` or before."""
        if deadline < connection.check_at:
            self.stop_checking(connection)
            connection.check_at = deadline
            connection.check_key = self._deadlines.add(connection, deadline)
            self._set_alarm()

    def stop_checking(self, connection: Checked) -> None:
        """Do not check it any more."""
        if connection.check_key is not None:
            self._deadlines.discard(connection, connection.check_key)

    def stop(self) -> None:
        """No more timers."""
        if self._alarm is not None:
            self._alarm.cancel()

    def _set_alarm(self) -> None:
        deadline = self._deadlines.next_deadline()
        if deadline is not None and deadline < self._alarm_at:
            self.stop()
            self._alarm_at = deadline
            self._alarm = self._alarm_loop.call_at(deadline, self._ring)

    def _ring(self) -> None:
        self._alarm, self._alarm_at = None, NEVER
        now = self._alarm_loop.time()
        due = self._deadlines.expire(now)
        # All of them first: a check may end, or ask to be checked, another one that is due.
        for connection in due:
            connection.check_at, connection.check_key = NEVER, None
        for connection in due:
            try:
                connection.check_time(now)
            except Exception:
                logger.exception("the time limits of a connection were not checked; it is closed")
                connection.abort()
        self._set_alarm()
