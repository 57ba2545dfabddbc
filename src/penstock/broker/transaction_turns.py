"""`TransactionTurns`: requests of one producer stay in their order while one asks a coordinator.

A client sends batches one after the other without waiting. While the first of a transaction is
being verified, the ones behind it must not overtake it. Producers do not wait for each other.
"""

import asyncio


class Turn:
    """One request's place behind the earlier ones of its producer."""

    __slots__ = ("_before", "_over", "_producer_id", "_turns")

    def __init__(
        self, turns: "TransactionTurns", producer_id: int, before: asyncio.Event | None
    ) -> None:
        self._turns = turns
        self._producer_id = producer_id
        self._before = before
        self._over = asyncio.Event()

    @property
    def over(self) -> asyncio.Event:
        """Set when the next may go on."""
        return self._over

    async def wait(self) -> None:
        """Until the requests before it are through."""
        if self._before is not None:
            await self._before.wait()

    def end(self) -> None:
        """Let the next one go on; to be called once, whatever happened."""
        self._over.set()
        self._turns.ended(self._producer_id, self)


class TransactionTurns:
    """Requests of a producer that wait for its coordinator, in the order in which they came."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[int, Turn] = {}

    def is_free(self, producer_id: int) -> bool:
        """Whether no request waits, so that the next may go on at once."""
        return producer_id not in self._last

    def take(self, producer_id: int) -> Turn:
        """A place at the end; its owner ends it."""
        before = self._last.get(producer_id)
        turn = Turn(self, producer_id, None if before is None else before.over)
        self._last[producer_id] = turn
        return turn

    def ended(self, producer_id: int, turn: Turn) -> None:
        """Forget the queue when its last one is through."""
        if self._last.get(producer_id) is turn:
            del self._last[producer_id]
