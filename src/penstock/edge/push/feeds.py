"""`Feeds`: one wait for news of each partition, shared by all subscriptions at its end.

A subscription that found no record is added here in the same step, so no append can fall in
between. The first one of a partition parks one wait at the broker; news wake all of them.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from penstock.edge.push.ports import PushBroker

RETRY_SECONDS = 1.0
"""When a wait is tried again that the broker had no room for."""

Place = tuple[str, int]
"""Topic and partition."""


class Waiting(Protocol):
    """A connection with subscriptions that wait."""

    def news(self, number: int, partition: int) -> None:
        """A partition may have records for a subscription."""
        ...


class Feeds:
    """The partitions that subscriptions wait for."""

    def __init__(self, broker: PushBroker, loop: asyncio.AbstractEventLoop) -> None:
        self._broker = broker
        self._loop = loop
        self._waiting: dict[Place, dict[tuple[Waiting, int], None]] = {}
        self._cancels: dict[Place, Callable[[], None]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def park(self, topic: str, partition: int, owner: Waiting, number: int) -> None:
        """Wake a subscription when there are news."""
        place = topic, partition
        waiting = self._waiting.get(place)
        if waiting is not None:
            waiting[owner, number] = None
            return
        self._waiting[place] = {(owner, number): None}
        cancel = self._broker.wait(topic, partition, lambda: self._news(place))
        if cancel is None:
            cancel = self._loop.call_later(RETRY_SECONDS, self._news, place).cancel
        if place in self._waiting:
            self._cancels[place] = cancel

    def forget(self, topic: str, partition: int, owner: Waiting, number: int) -> None:
        """A subscription waits no more."""
        place = topic, partition
        waiting = self._waiting.get(place)
        if waiting is not None:
            waiting.pop((owner, number), None)
            if not waiting:
                del self._waiting[place]
                self._cancels.pop(place)()

    def _news(self, place: Place) -> None:
        self._cancels.pop(place, None)
        for owner, number in self._waiting.pop(place, ()):
            owner.news(number, place[1])

    def stop(self) -> None:
        """Cancel all waits."""
        self._waiting.clear()
        while self._cancels:
            self._cancels.popitem()[1]()
