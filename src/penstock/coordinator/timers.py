"""`Timers`: the timers of all shards, on one alarm.

A shard has a timer for each member of each group, so setting one must cost little and waiting
nothing: they are in `core.deadlines`, and the alarm is set for the earliest. It does NOT know what
a timer is for.
"""

from typing import Protocol

from penstock.coordinator.ports import Alarm
from penstock.coordinator.shard import TimerKey
from penstock.core.deadlines import DeadlineTable


class TimerOwner(Protocol):
    """The owner of a timer."""

    def timer_fired(self, timer: "Timer") -> None:
        """The timer is due."""
        ...


class Timer:
    """One timer that was set; hashed by identity."""

    __slots__ = ("bucket", "key", "owner")

    def __init__(self, owner: TimerOwner, key: TimerKey) -> None:
        self.owner = owner
        self.key = key
        self.bucket = -1


class Timers:
    """All timers that are set."""

    def __init__(self, alarm: Alarm) -> None:
        self._alarm = alarm
        self._table: DeadlineTable[Timer] = DeadlineTable()
        self._alarm_at: float | None = None

    def __len__(self) -> int:
        return len(self._table)

    def add(self, owner: TimerOwner, key: TimerKey, delay_ms: int) -> Timer:
        """A timer that fires after `delay_ms`, or up to a hundredth of a second later."""
        timer = Timer(owner, key)
        timer.bucket = self._table.add(timer, self._alarm.now() + delay_ms / 1000)
        self._set_alarm()
        return timer

    def discard(self, timer: Timer) -> None:
        """Cancel the timer."""
        self._table.discard(timer, timer.bucket)

    def _set_alarm(self) -> None:
        deadline = self._table.next_deadline()
        if deadline is not None and (self._alarm_at is None or deadline < self._alarm_at):
            self._alarm_at = deadline
            self._alarm.set_alarm(deadline, self._ring)

    def _ring(self) -> None:
        self._alarm_at = None
        for timer in self._table.expire(self._alarm.now()):
            # A timer that fires may cancel or move the next: its owner knows which are still valid.
            timer.owner.timer_fired(timer)
        self._set_alarm()
