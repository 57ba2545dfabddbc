"""`WideRequests`: how many requests with very many array elements are in memory at once.

As objects, such a request and its answer take a hundred times the bytes of the request. Only
`WIDE_REQUESTS_MAX` of them are handled at a time; the others wait as bytes, in their order.
"""

import asyncio
from collections import deque

from penstock.core.limits import WIDE_REQUESTS_MAX


class WidePermit:
    """The place of one wide request among those that are handled."""

    __slots__ = ("_owner",)

    def __init__(self, owner: "WideRequests") -> None:
        self._owner: WideRequests | None = owner

    def release(self) -> None:
        """Give the place to the next one; does nothing the second time."""
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.release()


class WideRequests:
    """Counts the wide requests that are handled; the others wait."""

    __slots__ = ("_handled", "_waiting")

    def __init__(self) -> None:
        self._handled = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def permit(self) -> WidePermit:
        """Wait for a place."""
        if self._handled < WIDE_REQUESTS_MAX:
            self._handled += 1
        else:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self.release()
                raise
        return WidePermit(self)

    def release(self) -> None:
        """One has been handled: its place goes to the one that waited longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._handled -= 1
