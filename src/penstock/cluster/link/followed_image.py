"""`FollowedImage`: the newest image of the cluster's metadata, as a store has it.

The image is loaded at one revision and follows every later change, so it is the state of the store
at some revision and never goes back. Subscribers get each image once, in order, before callers that
wait for a revision. It decides nothing and writes nothing.

A value that it cannot read, because a newer broker wrote it, does not end the broker: the image
keeps the last state of that key, and `problems` has the reason until the key can be read. Only the
first load raises an error: without an earlier state, a broker would take topics for deleted.

No wait is endless: after `wait_seconds` everything is loaded again, which shows the newest state.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.cluster.changes import Change, apply
from penstock.cluster.differences import difference
from penstock.cluster.image import MetadataImage
from penstock.cluster.keys import KeyKind, Keys
from penstock.cluster.link.interpretation import in_order, interpret
from penstock.cluster.link.last_known import last_known, may_hold, published_again
from penstock.cluster.stores.port import (
    CompactedError,
    Compare,
    Event,
    EventBatch,
    MetadataStore,
    Snapshot,
)
from penstock.cluster.values import topic_id_of
from penstock.core.errors import StoreError

logger = logging.getLogger(__name__)

Subscriber = Callable[[MetadataImage, MetadataImage, tuple[Change, ...]], None]
"""Called with the previous image, the new image and the changes."""

WAIT_SECONDS: Final = 5.0
"""Longest wait for a change to arrive by the watch. etcd may need 2 s while it elects a leader."""

RETRY_SECONDS: Final = 1.0
"""Pause after a failure of the store."""


@dataclass(slots=True)
class _Waiter:
    has_come: Callable[[MetadataImage], bool]
    reached: "asyncio.Future[None]"


class FollowedImage:
    """The keys of one cluster in a store, as an image."""

    def __init__(self, store: MetadataStore, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self._subscribers: list[Subscriber] = []
        self._waiters: list[_Waiter] = []
        self._unreadable: dict[str, str] = {}
        self._contradicted: frozenset[str] = frozenset()
        """Names of topics whose keys contradict each other."""
        self._failure: str | None = None
        self._sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
        self._is_loaded = False
        self.wait_seconds = WAIT_SECONDS
        self.newest = MetadataImage()
        """Immutable, so it may be kept."""

    @property
    def unreadable(self) -> Mapping[str, str]:
        """The reason why the newest state of a key is not in the image, by key."""
        return self._unreadable

    @property
    def problems(self) -> tuple[str, ...]:
        """Why the image is not the state of the store; empty in most cases."""
        lost = () if self._failure is None else (self._failure,)
        return (*lost, *self._unreadable.values())

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` for each new image; the returned function unsubscribes."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    async def reload(self) -> None:
        """Load all keys again."""
        snapshot = await self._store.read_prefix(self._keys.root)
        self._failure = None
        if not self._is_loaded:
            self._load(snapshot)
        elif snapshot.revision > self.newest.revision or self._unreadable:
            self._load_again(snapshot)

    def _load(self, snapshot: Snapshot) -> None:
        changes = interpret(self._keys, _events(snapshot))
        image = apply(MetadataImage(), changes, snapshot.revision)
        self._is_loaded = True
        # Without subscribers no comparison: the first load of a large cluster is twice as fast.
        self._publish(image, difference(self.newest, image) if self._subscribers else ())

    def _load_again(self, snapshot: Snapshot) -> None:
        before, unreadable, contradictions = self.newest, dict[str, str](), dict[str, str]()
        if snapshot.revision < before.revision:
            return
        changes = interpret(self._keys, _events(snapshot), unreadable)
        if unreadable:
            kept = (last_known(before, self._keys.parse(key)) for key in unreadable)
            changes = in_order((*changes, *(one for some in kept for one in some)))
        image = apply(MetadataImage(), changes, snapshot.revision, contradictions)
        image = self._with_topics(image, snapshot, contradictions)
        self._contradicted = frozenset(contradictions)
        self._note({**unreadable, **self._by_key(contradictions)})
        changes = difference(before, image) if self._subscribers else ()
        self._publish(image, changes)

    def _with_topics(
        self, image: MetadataImage, snapshot: Snapshot, contradictions: dict[str, str]
    ) -> MetadataImage:
        """Keep the topics of before that have a key, and that the new image lacks."""
        kept: list[Change] = []
        for pair in snapshot.values:
            key = self._keys.parse(pair.key)
            if key.kind is KeyKind.TOPIC and key.name not in image.topics:
                topic = self.newest.topic(key.name)
                kept.extend(() if topic is None else published_again(topic))
        return apply(image, kept, snapshot.revision, contradictions) if kept else image

    async def follow(self) -> None:
        """Follow the changes of the store, until cancelled or until the store is closed."""
        must_load = False
        while True:
            try:
                if must_load:
                    await self.reload()
                    must_load = False
                first = self.newest.revision + 1
                async for batch in self._store.watch(self._keys.root, from_revision=first):
                    if self._take(batch):
                        await self.reload()
                return
            except CompactedError:
                must_load = True
            except StoreError as error:
                must_load = True
                self._failure = f"the metadata store cannot be followed: {error}"
                logger.warning("%s; trying again", self._failure)
                await self._sleep(RETRY_SECONDS)

    async def wait_revision(self, revision: int) -> None:
        """Wait until the image includes the writes of `revision`."""
        await self._wait(lambda image: image.revision >= revision)

    async def wait_refuted(self, compares: Sequence[Compare], revision: int) -> None:
        """Wait until the image shows why these compares failed at `revision` of the store.

        Raises an error if it cannot, because the value of a compared key is unreadable.
        """
        for compare in compares:
            if compare.key in self._unreadable:
                raise StoreError(self._unreadable[compare.key])

        def has_come(image: MetadataImage) -> bool:
            # The revision may be that of keys which are not watched, so it may not arrive.
            return image.revision >= revision or not all(
                may_hold(self._keys, image, compare) for compare in compares
            )

        await self._wait(has_come)

    async def _wait(self, has_come: Callable[[MetadataImage], bool]) -> None:
        if has_come(self.newest):
            return
        waiter = _Waiter(has_come, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(self.wait_seconds):
                await waiter.reached
        except TimeoutError:
            logger.warning("a change of the metadata does not arrive: loading everything again")
            await self.reload()
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def cancel_waits(self) -> None:
        """Cancel the callers that wait: nothing follows the store any more."""
        for waiter in self._waiters:
            waiter.reached.cancel()

    def _take(self, batch: EventBatch) -> bool:
        """Apply a batch; return whether everything must be loaded because of it."""
        # A reload may have overtaken the watch.
        if batch.revision <= self.newest.revision:
            return False
        unreadable, contradictions = dict[str, str](), dict[str, str]()
        changes = interpret(self._keys, batch.events, unreadable)
        image = apply(self.newest, changes, batch.revision, contradictions)
        touched = {event.key for event in batch.events}
        # The values that depended on an unreadable one were left out too.
        was_mended = bool(self._unreadable) and any(
            key not in unreadable and self._mends(key) for key in touched
        )
        self._contradicted |= contradictions.keys()
        noted = {k: v for k, v in self._unreadable.items() if k not in touched}
        self._note({**noted, **unreadable, **self._by_key(contradictions)})
        self._publish(image, changes)
        return was_mended

    def _mends(self, key: str) -> bool:
        """Return whether a readable value of this key may end a problem."""
        if key in self._unreadable:
            return True
        parsed = self._keys.parse(key)
        if parsed.kind is not KeyKind.PARTITION or not self._contradicted:
            return False
        return self.newest.topic_names.get(topic_id_of(parsed.name)) in self._contradicted

    def _by_key(self, contradictions: Mapping[str, str]) -> dict[str, str]:
        topics = {self._keys.topic(name): text for name, text in contradictions.items()}
        return {key: f"{key}: {text}" for key, text in topics.items()}

    def _note(self, unreadable: dict[str, str]) -> None:
        for key, problem in unreadable.items():
            if self._unreadable.get(key) != problem:
                logger.error("the metadata has a value that this broker cannot read: %s", problem)
        self._unreadable = unreadable

    def _publish(self, image: MetadataImage, changes: tuple[Change, ...]) -> None:
        before, self.newest = self.newest, image
        for subscriber in tuple(self._subscribers):
            subscriber(before, image, changes)
        for waiter in tuple(self._waiters):
            if waiter.has_come(image):
                self._waiters.remove(waiter)
                if not waiter.reached.done():
                    waiter.reached.set_result(None)


def _events(snapshot: Snapshot) -> Iterator[Event]:
    return (Event(pair.key, pair) for pair in snapshot.values)
