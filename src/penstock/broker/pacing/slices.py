"""`in_slices`: a loop over the items of a request, a slice in each turn of the event loop.

A client chooses how many partitions or topics its request names. A handler whose work grows with
that number iterates with `in_slices`: after `CONNECTION_TURN_SECONDS` of work it waits in the queue
of the listener's turns (`turns`), behind requests that used less of the loop. Guarantees:

- every item is yielded once, in order;
- a request with at most `SLICE_ITEMS` items waits only when the turn is used up by others, a longer
  one also when the queue's share of the turn is;
- however many such loops there are, they share the time of a turn with the connections.

State may change between two slices: a handler takes state that must be consistent (an image of the
metadata) before the loop. It is not for hot requests: an async generator costs more than they do.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, TypeVar

from penstock.broker.pacing.turns import TurnBudget
from penstock.core.clock import Clock
from penstock.core.limits import CONNECTION_TURN_SECONDS

Item = TypeVar("Item")
Result = TypeVar("Result")

SLICE_ITEMS: Final = 16
"""Items between two readings of the clock: below a millisecond for items of 50 microseconds each,
such as the settings of a topic."""


class NextTurn:
    """One coroutine's place in the queue of turns."""

    __slots__ = ("_begun", "_clock", "_future", "_turns", "turn_seconds", "turn_tag")

    def __init__(self, turns: TurnBudget, clock: Clock) -> None:
        self._turns = turns
        self._clock = clock
        self._begun = clock.monotonic()
        self._future: asyncio.Future[None] | None = None
        self.turn_tag = 0.0
        self.turn_seconds = 0.0

    def continue_turn(self) -> None:
        """Wake the coroutine: it continues in the next pass over the loop's callbacks."""
        future, self._future = self._future, None
        if future is not None and not future.done():
            # Charge the expected use now: otherwise the queue would wake all that wait in this
            # turn.
            self._turns.left_seconds -= CONNECTION_TURN_SECONDS
            future.set_result(None)

    def restart(self) -> None:
        """Restart the measurement: the coroutine has waited for something else."""
        self._begun = self._clock.monotonic()

    async def wait_if_used_up(self, *, is_wide: bool) -> None:
        """Before the first slice: wait for a later turn if others have used this one up."""
        if self._turns.left_seconds <= 0 or (is_wide and self._turns.is_share_used):
            await self._wait(0.0)

    async def wait_if_due(self) -> None:
        """Wait for a later turn if this one is used up."""
        used_seconds = self._clock.monotonic() - self._begun
        if used_seconds >= CONNECTION_TURN_SECONDS:
            await self._wait(used_seconds)

    def end(self) -> None:
        """Count the work since the last wait; there is no more."""
        self._turns.spend(self, self._clock.monotonic() - self._begun)

    async def _wait(self, used_seconds: float) -> None:
        self._future = asyncio.get_running_loop().create_future()
        self._turns.spend(self, used_seconds)
        self._turns.join(self, used_seconds)
        await self._future
        self._begun = self._clock.monotonic()


async def in_slices(
    items: Sequence[Item], turns: TurnBudget, clock: Clock
) -> AsyncIterator[Sequence[Item]]:
    """Yield the items in order, some at a time, and wait for another turn where one is used up."""
    turn = NextTurn(turns, clock)
    await turn.wait_if_used_up(is_wide=len(items) > SLICE_ITEMS)
    for start in range(0, len(items), SLICE_ITEMS):
        if start:
            await turn.wait_if_due()
        yield items[start : start + SLICE_ITEMS]
    turn.end()


async def map_in_slices(
    function: Callable[[Item], Result], items: Sequence[Item], turns: TurnBudget, clock: Clock
) -> list[Result]:
    """Return `function` of each item, in order, a slice in each turn."""
    results: list[Result] = []
    async for few in in_slices(items, turns, clock):
        results += [function(item) for item in few]
    return results
