"""`TurnBudget`: the work that connections may do in one turn of the event loop, and their order.

A client chooses how many requests it sends at once. Without a bound, the requests of one connection
run to their end while the others wait. Guarantees:

- in one turn the connections together handle requests for `TURN_SECONDS`, and one connection for
  `CONNECTION_TURN_SECONDS`; both may be passed by one request;
- the work that is left waits in a queue and continues in later turns, each of them with at most
  `QUEUED_TURN_SECONDS` for the queue, so that requests that arrive are not behind all of it;
- the queue is fair by time: the work that has used least of the loop is next. A connection with a
  small request does not wait for the rest of the expensive ones;
- owners that had an expensive turn recently share the queue's part of a turn, also when they do
  not wait: expensive requests of many connections do not follow one another in a turn. A new
  connection is not known to be expensive, so `TURN_SECONDS` is the bound for it;
- everything in the queue is continued after a bounded amount of other work.

The queue is start-time fair queuing. `_virtual_seconds` is the start tag of the work that was
continued last. The start tag of a new entry is that value, or the time at which the earlier work of
the same owner ended, if that is later. An owner is never more than `TAG_SECONDS_MAX` behind the
others for work it did while the queue was empty.

The seconds left are not reset at the start of each turn, because that would cost a callback each
time. They are reset when they are used up: work then waits for the next turn, if need be once more
than needed. Pure: the caller measures time, and `call_soon` schedules.
"""

import logging
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

from penstock.core.limits import (
    CONNECTION_TURN_SECONDS,
    QUEUED_TURN_SECONDS,
    TURN_SECONDS,
)

logger = logging.getLogger(__name__)

TAG_SECONDS_MAX = 2 * TURN_SECONDS
CHEAP_TURN_SECONDS = TURN_SECONDS - QUEUED_TURN_SECONDS
"""The part of a turn that is kept for owners that are not expensive and do not wait."""
SLICE_SECONDS_MIN = 1e-5
"""The shortest slice that the queue gives: a shorter one is below the resolution of the clock."""
REMEMBERED = 0.9
"""An owner with a turn of 1 ms is expensive for a dozen cheap turns more."""
EXPENSIVE_SECONDS = CONNECTION_TURN_SECONDS / 4
"""A turn of this length or more is expensive. Less is not counted while the queue is empty."""


class Resumable(Protocol):
    """Work that can stop after a part and continue in a later turn."""

    turn_tag: float
    """Kept for the queue; 0 at first."""
    turn_seconds: float
    """The longest of its recent turns, kept by `TurnBudget.spend`; 0 at first."""

    def continue_turn(self) -> None:
        """Continue for `TurnBudget.slice_seconds` at most, call `spend`, and `join` if need be."""
        ...


class TurnBudget:
    """The turns of one listener."""

    __slots__ = (
        "_call_soon",
        "_is_scheduled",
        "_number",
        "_queue",
        "_virtual_seconds",
        "left_seconds",
        "yields",
    )

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._is_scheduled = False
        self._number = 0
        self._queue: list[tuple[float, float, int, Resumable]] = []
        self._virtual_seconds = 0.0
        self.left_seconds = TURN_SECONDS
        self.yields = 0
        """How often work was put off to a later turn."""

    def slice_seconds(self, owner: Resumable) -> float:
        """How long an owner may work now; not above 0 when it must wait for a later turn."""
        left = self.left_seconds
        if owner.turn_seconds >= EXPENSIVE_SECONDS:
            left -= CHEAP_TURN_SECONDS
        return min(CONNECTION_TURN_SECONDS, left)

    @property
    def is_share_used(self) -> bool:
        """Whether the queue's share of this turn is used up."""
        return self.left_seconds <= CHEAP_TURN_SECONDS

    @property
    def waiting_count(self) -> int:
        """Owners that wait for a turn."""
        return len(self._queue)

    def spend(self, owner: Resumable, seconds: float) -> None:
        """Count the work that an owner did just now."""
        self.left_seconds -= seconds
        # A cheap request, or a part of one, does not make an expensive owner cheap.
        owner.turn_seconds = max(seconds, owner.turn_seconds * REMEMBERED)
        if seconds >= EXPENSIVE_SECONDS or self._queue:
            latest = self._virtual_seconds + TAG_SECONDS_MAX
            owner.turn_tag = min(max(self._virtual_seconds, owner.turn_tag) + seconds, latest)

    def join(self, owner: Resumable, seconds: float) -> None:
        """Have `owner.continue_turn` called in a later turn. An owner is in the queue once.

        `seconds` is what it has worked in this turn: among equals, the owner that worked least goes
        first.
        """
        self.yields += 1
        self._number += 1
        tag = max(self._virtual_seconds, owner.turn_tag)
        owner.turn_tag = tag
        heappush(self._queue, (tag, seconds, self._number, owner))
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        """Continue the work that waits, within its share of the turn; one piece at least."""
        self._is_scheduled = False
        self.left_seconds = TURN_SECONDS
        queue = self._queue
        while queue:
            tag, _, _, owner = heappop(queue)
            if tag > self._virtual_seconds:
                self._virtual_seconds = tag
            try:
                owner.continue_turn()
            except Exception:
                # The other owners must continue; an owner handles its expected errors itself.
                logger.exception("work that waited for its turn failed")
            if self.left_seconds <= CHEAP_TURN_SECONDS + SLICE_SECONDS_MIN:
                break
        if queue:
            self._schedule()
