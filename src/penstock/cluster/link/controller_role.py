"""`ControllerRole`: lets this broker control the cluster while no other broker does.

The controller is the broker that created the key `controller`, which is bound to its session. The
role is read from the image each time: a broker that registered again has lost it. Each write of a
controller compares the revision of the key, so a controller that was replaced changes nothing.

The controller deletes the remains of creations that were interrupted; each broker deletes the keys
of its own creations that have failed. In a cluster the controller elects leaders first
(`link.controlling`), and only a running broker becomes the controller. A broker that is alone
elects nothing.
"""

import asyncio
import logging
from typing import Final

from penstock.cluster import acl_changes
from penstock.cluster.changes import Change
from penstock.cluster.image import BrokerState, MetadataImage
from penstock.cluster.link.broker_link import BrokerLink
from penstock.cluster.link.controlling import Elections
from penstock.cluster.link.leftovers import has_leftovers, sweep_writes
from penstock.cluster.moves.internal_topics import min_isr_writes
from penstock.cluster.stores.port import Compare
from penstock.core.errors import StoreError

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.5
"""Pause after a failure of the store, unless the metadata changes before."""


class ControllerRole:
    """The part of one broker in the control of the cluster."""

    def __init__(self, link: BrokerLink, elections: Elections | None = None) -> None:
        """`elections`: None for a broker that is alone."""
        self._link = link
        self._elections = elections
        self._wakened = asyncio.Event()

    async def begin(self) -> None:
        """Try to get the role now. `run` goes on, also if this fails."""
        await self._act()

    async def run(self) -> None:
        """Follow the images and act on them, until cancelled."""
        stop_following = self._link.followed.subscribe(self._wake)
        try:
            has_failed = False
            while True:
                await self._wait(RETRY_SECONDS if has_failed else self._next_seconds())
                has_failed = not await self._act()
        finally:
            stop_following()

    def _wake(
        self, before: MetadataImage, image: MetadataImage, changes: tuple[Change, ...]
    ) -> None:
        must_elect = self._elections is not None and self._elections.follow(before, image, changes)
        if must_elect or image.controller is None or image.unpublished or image.creating:
            self._wakened.set()

    def _next_seconds(self) -> float | None:
        return None if self._elections is None else self._elections.next_seconds

    async def _wait(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wakened.wait()
        except TimeoutError:
            pass
        self._wakened.clear()

    async def _act(self) -> bool:
        """Return False if the store failed."""
        try:
            if self._link.image.controller is None and self._may_control():
                await self._link.become_controller()
                await self._sweep_rules()
            if self._elections is not None:
                await self._elections.carry_out(self._guards)
                await self._secure_internal_topics()
            await self._release_creations()
            await self._sweep_partitions()
        except StoreError as error:
            logger.warning("the controller's work failed, trying again: %s", error)
            return False
        return True

    def _may_control(self) -> bool:
        membership = self._link.membership
        broker = None if membership is None else self._link.image.brokers.get(membership.broker_id)
        is_running = broker is not None and broker.state is BrokerState.RUNNING
        return is_running or self._elections is None

    def _guards(self) -> tuple[Compare, ...] | None:
        controller = self._link.controls()
        if controller is None:
            return None
        key = self._link.keys.controller()
        return (*self._link.guards(), Compare.created_at(key, controller.revision))

    async def _secure_internal_topics(self) -> None:
        """Let internal topics that have got three replicas acknowledge with two."""
        guards = self._guards()
        if guards is None or not any(min_isr_writes(self._link.keys, self._link.image, guards)):
            return
        async with self._link.changing():
            guards, image = self._guards(), self._link.image
            if guards is not None:
                for write in min_isr_writes(self._link.keys, image, guards):
                    await self._link.write((write,))

    async def _release_creations(self) -> None:
        """Delete the keys of creations that this broker began and could not end."""
        if self._link.has_forgotten():
            async with self._link.changing():
                await self._link.release_forgotten()

    async def _sweep_partitions(self) -> None:
        # While a key is unreadable, its topic may have published the partitions.
        if self._link.followed.unreadable or not has_leftovers(self._link.image):
            return
        async with self._link.changing():
            guards, image = self._guards(), self._link.image
            if guards is not None:
                # One by one: a creation that began again must not keep the others from it.
                for write in sweep_writes(self._link.keys, image, guards):
                    await self._link.write((write,))

    async def _sweep_rules(self) -> None:
        """Delete the keys of deleted access rules that a crash left."""
        if not self._link.image.acl_removals:
            return
        async with self._link.changing():
            guards, image = self._guards(), self._link.image
            if guards is not None:
                await self._link.write(acl_changes.sweep_writes(self._link.keys, image, guards))
