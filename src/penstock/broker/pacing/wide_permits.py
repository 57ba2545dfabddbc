"""`WideRequests`: how many requests with very many array elements are in memory at once.

As objects, such a request and its answer take a hundred times the bytes of the request. Only
`WIDE_REQUESTS_MAX` of them are handled at a time; the others wait as bytes, in their order. A
request whose client is gone waits no longer, because its bytes count against no budget any more.
"""

import asyncio
from functools import partial

from penstock.core.cancellation import Cancellation
from penstock.core.limits import WIDE_REQUESTS_MAX


class WidePermit:
    """Permission to handle one wide request."""

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
        self._waiting: dict[asyncio.Future[bool], None] = {}
        """Requests that wait for a permit, in order. A future's result says whether it got one."""

    async def permit(self, client: Cancellation | None = None) -> WidePermit | None:
        """Wait for a place; None when the client is gone first."""
        if client is not None and client.is_cancelled:
            return None
        if self._handled < WIDE_REQUESTS_MAX:
            self._handled += 1
            return WidePermit(self)
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = None
        if client is not None:
            client.subscribe(turn, partial(self._give_up, turn))
        try:
            has_place = await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.result():
                self.release()
            raise
        finally:
            self._waiting.pop(turn, None)
            if client is not None:
                client.unsubscribe(turn)
        return WidePermit(self) if has_place else None

    def _give_up(self, turn: "asyncio.Future[bool]") -> None:
        if not turn.done():
            turn.set_result(False)

    def release(self) -> None:
        """One has been handled: its place goes to the one that waited longest."""
        while self._waiting:
            turn = next(iter(self._waiting))
            del self._waiting[turn]
            if not turn.done():
                turn.set_result(True)
                return
        self._handled -= 1
