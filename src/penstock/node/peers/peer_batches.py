"""`PeerBatches`: gathers items for each broker into requests, a few requests at a time.

While all requests to a broker are under way, items wait and share the next one. An idle broker gets
an item at once, with the others of the same turn of the event loop. Each item gets the result of
its own, or the error of its request. An item is sent once: nothing is repeated here.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from penstock.core.errors import BrokerUnreachableError, PenstockError
from penstock.node.peers.peer_limits import CALL_SLOTS, WAITING_MAX

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")

Send = Callable[[int, int, Sequence[Item]], Awaitable[Sequence[Result]]]
"""Sends items to a broker over the connection with this number; one result for each item."""


class _Queue(Generic[Item, Result]):
    """The items for one broker."""

    __slots__ = ("free_slots", "is_starting", "waiting")

    def __init__(self, slot_count: int) -> None:
        self.waiting: deque[tuple[Item, asyncio.Future[Result | PenstockError]]] = deque()
        self.free_slots = list(reversed(range(slot_count)))
        self.is_starting = False
        """Whether a request begins in the next turn, with all items of this one."""


class PeerBatches(Generic[Item, Result]):
    """The items of one kind, for all brokers."""

    def __init__(
        self, send: Send[Item, Result], *, items_max: int, slot_count: int = CALL_SLOTS
    ) -> None:
        """With one slot, the items for a broker are sent in the order of their calls."""
        self._slot_count = slot_count
        self._send = send
        self._items_max = items_max
        self._queues: dict[int, _Queue[Item, Result]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, broker_id: int, item: Item) -> Result | PenstockError:
        """Send an item to a broker; return its result, or the error of its request."""
        queue = self._queues.get(broker_id)
        if queue is None:
            queue = self._queues[broker_id] = _Queue(self._slot_count)
        if len(queue.waiting) >= WAITING_MAX:
            return BrokerUnreachableError(
                f"{len(queue.waiting)} items wait for broker {broker_id}, at most {WAITING_MAX}; "
                "retry later"
            )
        answer: asyncio.Future[Result | PenstockError]
        answer = asyncio.get_running_loop().create_future()
        queue.waiting.append((item, answer))
        if queue.free_slots and not queue.is_starting:
            queue.is_starting = True
            self._start(broker_id, queue)
        return await answer

    def _start(self, broker_id: int, queue: _Queue[Item, Result]) -> None:
        work = self._drain(broker_id, queue, queue.free_slots.pop())
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.critical("requests to another broker have ended", exc_info=task.exception())

    async def _drain(self, broker_id: int, queue: _Queue[Item, Result], slot: int) -> None:
        queue.is_starting = False
        try:
            while queue.waiting:
                count = min(len(queue.waiting), self._items_max)
                taken = [queue.waiting.popleft() for _ in range(count)]
                await self._request(broker_id, slot, taken)
        finally:
            queue.free_slots.append(slot)
            queue.free_slots.sort(reverse=True)

    async def _request(
        self,
        broker_id: int,
        slot: int,
        taken: Sequence[tuple[Item, asyncio.Future[Result | PenstockError]]],
    ) -> None:
        results: Sequence[Result | PenstockError]
        try:
            results = await self._send(broker_id, slot, [item for item, _ in taken])
            assert len(results) == len(taken), "one result for each item"
        except PenstockError as error:
            results = [error] * len(taken)
        except BaseException:
            for _, answer in taken:
                answer.cancel()
            raise
        for (_, answer), result in zip(taken, results, strict=True):
            if not answer.done():
                answer.set_result(result)

    async def stop(self) -> None:
        """Abandon all items."""
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))
        for queue in self._queues.values():
            while queue.waiting:
                queue.waiting.popleft()[1].cancel()
