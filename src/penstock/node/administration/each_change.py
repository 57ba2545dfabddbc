"""`change_each`: the changes of one request, one after the other, each with its own outcome.

A rejected change does not end the others. Rejected changes never wait for the store, and one
request may name twenty thousand resources, so other connections get a turn after every few changes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from penstock.core.errors import PenstockError

Change = TypeVar("Change")

CHANGES_AT_ONCE: Final = 20
"""Changes handled before other connections get a turn: about 5 ms of work for settings of
topics."""


async def change_each(
    changes: Sequence[Change], apply: Callable[[Change], Awaitable[object]]
) -> list[PenstockError | None]:
    """Apply the changes in order; return one outcome for each, None for success."""
    outcomes: list[PenstockError | None] = []
    for number, change in enumerate(changes, 1):
        if number % CHANGES_AT_ONCE == 0:
            await asyncio.sleep(0)
        outcome: PenstockError | None = None
        try:
            await apply(change)
        except PenstockError as error:
            # Without its frames, one of which is this one: that would be a cycle.
            outcome = error.with_traceback(None)
        outcomes.append(outcome)
    return outcomes
