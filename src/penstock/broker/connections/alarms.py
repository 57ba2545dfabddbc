"""One timer for the time limits of all connections: an idle one costs no wake-ups.

A connection registers a deadline; `check_time` is called once, at that time or up to ten
milliseconds later, and the connection decides itself what to do and when the next check is due. A
connection whose check fails is aborted, and the others keep their alarms. The limits are NOT known
here.
"""

import asyncio
import logging
from typing import Final, Protocol

from penstock.core.deadlines import DeadlineTable

logger = logging.getLogger(__name__)

NEVER: Final = float("inf")


class Checked(Protocol):
    """A connection with time limits."""

    check_at: float
    """Time of the next check; `NEVER` at first."""
    check_key: int | None
    """Key of the pending alarm; None at first."""

    def check_time(self, now: float) -> None:
        """Abort if a time limit has passed, or register the next check."""
        ...

    def abort(self) -> None:
        """Abort the connection immediately."""
        ...


class Alarms:
    """The timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._alarm_loop = loop
        self._deadlines: DeadlineTable[Checked] = DeadlineTable()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = NEVER

    def check_by(self, connection: Checked, deadline: float) -> None:
        """Call `connection.check_time` at `deadline` or before."""
        if deadline < connection.check_at:
            self.stop_checking(connection)
            connection.check_at = deadline
            connection.check_key = self._deadlines.add(connection, deadline)
            self._set_alarm()

    def stop_checking(self, connection: Checked) -> None:
        """Cancel the connection's pending check."""
        if connection.check_key is not None:
            self._deadlines.discard(connection, connection.check_key)

    def stop(self) -> None:
        """Cancel the timer."""
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
        # Reset all of them first: a check may abort, or register, another connection that is due.
        for connection in due:
            connection.check_at, connection.check_key = NEVER, None
        for connection in due:
            try:
                connection.check_time(now)
            except Exception:
                logger.exception("the time limits of a connection were not checked; it is closed")
                connection.abort()
        self._set_alarm()
