"""`FollowedImage`: the newest image of the cluster's metadata, as a store has it.

The image is loaded at one revision and follows every later change, so it is the state of the store
at some revision and never goes back. Subscribers get each image once, in order, before callers that
wait for a revision. It decides nothing and writes nothing.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from penstock.cluster.changes import Change, apply, interpret
from penstock.cluster.differences import difference
from penstock.cluster.image import MetadataImage
from penstock.cluster.keys import Keys
from penstock.cluster.stores.port import CompactedError, Event, EventBatch, MetadataStore

Subscriber = Callable[[MetadataImage, MetadataImage, tuple[Change, ...]], None]
"""Called with the previous image, the new image and the changes."""


@dataclass(slots=True)
class _Waiter:
    revision: int
    reached: "asyncio.Future[None]"


class FollowedImage:
    """The keys of one cluster in a store, as an image."""

    def __init__(self, store: MetadataStore, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self._subscribers: list[Subscriber] = []
        self._waiters: list[_Waiter] = []
        self.newest = MetadataImage()
        """Immutable, so it may be kept."""

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` for each new image; the returned function unsubscribes."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    async def reload(self) -> None:
        """Load all keys again."""
        snapshot = await self._store.read_prefix(self._keys.root)
        if snapshot.revision <= self.newest.revision:
            return
        events = (Event(pair.key, pair) for pair in snapshot.values)
        image = apply(MetadataImage(), interpret(self._keys, events), snapshot.revision)
        # Without subscribers no comparison: the first load of a large cluster is twice as fast.
        changes = difference(self.newest, image) if self._subscribers else ()
        self._publish(image, changes)

    async def follow(self) -> None:
        """Follow the changes of the store, until cancelled."""
        while True:
            try:
                first = self.newest.revision + 1
                async for batch in self._store.watch(self._keys.root, from_revision=first):
                    self._take(batch)
                return
            except CompactedError:
                await self.reload()

    async def wait_revision(self, revision: int) -> None:
        """Wait until the image includes the writes of `revision`."""
        if self.newest.revision < revision:
            reached = asyncio.get_running_loop().create_future()
            self._waiters.append(_Waiter(revision, reached))
            await reached

    def cancel_waits(self) -> None:
        """Cancel the callers that wait for a revision: nothing follows the store any more."""
        for waiter in self._waiters:
            waiter.reached.cancel()

    def _take(self, batch: EventBatch) -> None:
        # A reload may have overtaken the watch.
        if batch.revision > self.newest.revision:
            changes = interpret(self._keys, batch.events)
            self._publish(apply(self.newest, changes, batch.revision), changes)

    def _publish(self, image: MetadataImage, changes: tuple[Change, ...]) -> None:
        before, self.newest = self.newest, image
        for subscriber in tuple(self._subscribers):
            subscriber(before, image, changes)
        waiting = []
        for waiter in self._waiters:
            if waiter.revision > image.revision:
                waiting.append(waiter)
            elif not waiter.reached.done():
                waiter.reached.set_result(None)
        self._waiters = waiting
