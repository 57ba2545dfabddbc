"""`PushSubscription`: the records of one subscription, as an async iterator.

A subscription of a queue gets records that no other subscriber of its group has. Each is
acknowledged alone: `acknowledge` accepts it, `release` returns it for another delivery, `reject`
removes it from the queue, `renew` keeps it for another `lock_seconds`. A record without an
acknowledgement within `lock_seconds` is delivered again, here or elsewhere.

The broker sends at most `credit` records that are not acknowledged, so the records that wait here
are bounded by it. Iteration ends with `PushClosedError` when the session ends, and without an error
after `close`.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Self

from penstock.client.push.push_values import PushEvent, PushReady, PushRecord, PushReset

RELEASE: Final = b"\x02"
REJECT: Final = b"\x03"
RENEW: Final = b"\x04"


class PushSubscription:
    """One subscription of a `PushClient`."""

    def __init__(
        self,
        topic: str,
        number: int,
        positions: dict[int, int],
        elsewhere: dict[int, int],
        send_ack: Callable[[int, bytes], None],
        on_close: Callable[[], Awaitable[None]],
    ) -> None:
        self.topic = topic
        self.number = number
        self.positions = positions
        """Where each partition started."""
        self.elsewhere = elsewhere
        """Partitions that other brokers lead, and the ids of these brokers."""
        self.addresses: dict[int, str] = {}
        """Push addresses of these brokers, by id, as far as the broker knows them."""
        self.queue_group: str | None = None
        """The share group of a queue; None: each subscription gets all records."""
        self.lock_seconds = 0.0
        """How long a record of a queue belongs to this subscription."""
        self._send_ack = send_ack
        self.on_close = on_close
        self.accepts_refresh = False
        """Whether the broker may send the data set again; see `events`."""
        self._records: deque[PushEvent] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._end: BaseException | None = None
        self._is_ended = False

    def __len__(self) -> int:
        return len(self._records)

    def acknowledge(self, record: PushRecord) -> None:
        """Acknowledge a record; without a queue, also all records before it."""
        self._send_ack(record.message_id, b"")

    def release(self, record: PushRecord) -> None:
        """Return a record to its queue: it is delivered again."""
        self._settle(record, RELEASE)

    def reject(self, record: PushRecord) -> None:
        """Remove a record from its queue: it cannot be processed."""
        self._settle(record, REJECT)

    def renew(self, record: PushRecord) -> None:
        """Keep a record of a queue for another `lock_seconds`."""
        self._settle(record, RENEW)

    def _settle(self, record: PushRecord, kind: bytes) -> None:
        if self.queue_group is None:
            raise ValueError(
                f"the subscription of {self.topic} is not a queue; subscribe with mode='queue'"
            )
        self._send_ack(record.message_id, kind)

    async def close(self) -> None:
        """End the subscription: acknowledged positions are committed when it returns."""
        await self.on_close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PushRecord:
        while True:
            found = await self.next_event()
            if isinstance(found, PushRecord):
                return found
            self.answer(found)

    async def events(self) -> AsyncIterator[PushEvent]:
        """Iterate over records, and over `PushReset` and `PushReady` of refreshes.

        Answer each of the latter with `answer`. Iteration over the subscription itself accepts
        refreshes and returns records only.
        """
        while True:
            try:
                yield await self.next_event()
            except StopAsyncIteration:
                return

    def answer(self, event: PushReset | PushReady, *, is_accepted: bool = True) -> None:
        """Accept or reject a refresh; after a rejection delivery continues as before."""
        self._send_ack(event.message_id, b"" if is_accepted else REJECT)

    async def next_event(self) -> PushEvent:
        """Return the next record or event of a refresh."""
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
        while self._records:
            found = self._records.popleft()
            if isinstance(found, PushRecord):
                return found
            self.answer(found)
        return None

    def put(self, record: PushEvent) -> None:
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


def describe(subscription: PushSubscription, answer: dict[str, object]) -> None:
    """Set the fields that the answer to SUBSCRIBE has; for the client only."""
    group, lock_ms, addresses = (answer.get(name) for name in ("group", "lock_ms", "addresses"))
    if isinstance(group, str):
        subscription.queue_group = group
    if isinstance(lock_ms, int):
        subscription.lock_seconds = lock_ms / 1000
    if isinstance(addresses, dict):
        subscription.addresses = {int(one): str(at) for one, at in addresses.items()}
