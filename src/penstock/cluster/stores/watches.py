"""`WatchHub`: sends each change of an in-process store to its watchers.

One hub serves one store and one event loop. Each watcher has its own bounded queue, so a slow
watcher does not delay the store or the others. When its queue is full, it must load everything
again (`CompactedError`); it never gets changes with a gap. The hub knows live changes only; the
store looks up earlier ones.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from penstock.cluster.stores.port import CompactedError, EventBatch
from penstock.core.limits import STORE_WATCH_BATCHES_MAX

History = Callable[[str, int], Awaitable[Sequence[EventBatch]]]
"""Looks up the batches of a prefix, starting at a revision; raises `CompactedError`."""


class _Watcher:
    """One reader's queue."""

    __slots__ = ("ended", "prefix", "queue", "reason", "wakened")

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.queue: deque[EventBatch] = deque()
        self.wakened = asyncio.Event()
        self.ended = False
        self.reason: CompactedError | None = None

    def offer(self, batch: EventBatch) -> None:
        """Queue the events that this reader watches."""
        events = tuple(event for event in batch.events if event.key.startswith(self.prefix))
        if not events or self.ended:
            return
        if len(self.queue) == STORE_WATCH_BATCHES_MAX:
            self.end(CompactedError("the watcher fell too far behind"))
            return
        self.queue.append(EventBatch(batch.revision, events))
        self.wakened.set()

    def end(self, reason: CompactedError | None) -> None:
        """End the watch; with a reason, queued events are dropped too."""
        self.ended = True
        self.reason = reason
        self.wakened.set()


class WatchHub:
    """The watchers of one store."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._watchers: set[_Watcher] = set()
        self._closed = False

    def publish(self, batches: Sequence[EventBatch]) -> None:
        """Send changes in the order of their revisions."""
        for batch in batches:
            for watcher in self._watchers:
                watcher.offer(batch)

    def lose_track(self) -> None:
        """Make every watcher load everything again, because the store does not know the changes."""
        for watcher in self._watchers:
            watcher.end(CompactedError("the store lost track of its changes"))

    def close(self) -> None:
        """End every watch after its queued events, and every later watch at once."""
        self._closed = True
        for watcher in self._watchers:
            watcher.end(None)

    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[EventBatch]:
        """Yield changes of a prefix starting at a revision, first past ones, then new ones."""
        if self._closed:
            return
        watcher = _Watcher(prefix)
        # Registered before the history is read: changes in between may arrive twice, but none is
        # lost.
        self._watchers.add(watcher)
        try:
            delivered = from_revision - 1
            for batch in await self._history(prefix, from_revision):
                yield batch
                delivered = batch.revision
            while True:
                await watcher.wakened.wait()
                watcher.wakened.clear()
                if watcher.reason is not None:
                    raise watcher.reason
                while watcher.queue:
                    batch = watcher.queue.popleft()
                    if batch.revision > delivered:
                        yield batch
                        delivered = batch.revision
                if watcher.ended:
                    return
        finally:
            self._watchers.discard(watcher)
