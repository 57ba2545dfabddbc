"""`PushSubscription`: the records of one subscription, as an async iterator.

The broker sends at most `credit` records that are not acknowledged, so the records that wait here
are bounded by it. Iteration ends with `PushClosedError` when the session ends, and without an error
after `close`.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Self

from penstock.client.push.push_values import PushRecord


class PushSubscription:
    """One subscription of a `PushClient`."""

    def __init__(
        self,
        topic: str,
        number: int,
        positions: dict[int, int],
        elsewhere: dict[int, int],
        send_ack: Callable[[int], None],
        on_close: Callable[[], Awaitable[None]],
    ) -> None:
        self.topic = topic
        self.number = number
        self.positions = positions
        """Where each partition started."""
        self.elsewhere = elsewhere
        """Partitions that other brokers lead, and the ids of these brokers."""
        self._send_ack = send_ack
        self.on_close = on_close
        self._records: deque[PushRecord] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._end: BaseException | None = None
        self._is_ended = False

    def __len__(self) -> int:
        return len(self._records)

    def acknowledge(self, record: PushRecord) -> None:
        """Acknowledge a record and all records of this subscription before it."""
        self._send_ack(record.message_id)

    async def close(self) -> None:
        """End the subscription: acknowledged positions are committed when it returns."""
        await self.on_close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PushRecord:
        while not self._records:
            if self._is_ended:
                if self._end is None:
                    raise StopAsyncIteration
                raise self._end
            assert self._waiter is None, "a subscription has one reader"
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._records.popleft()

    def next_nowait(self) -> PushRecord | None:
        """Return the next record if one is here."""
        return self._records.popleft() if self._records else None

    def put(self, record: PushRecord) -> None:
        """Add a delivered record; for the client only."""
        self._records.append(record)
        self._wake()

    def end(self, error: BaseException | None) -> None:
        """No more records come; for the client only."""
        self._is_ended, self._end = True, error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
