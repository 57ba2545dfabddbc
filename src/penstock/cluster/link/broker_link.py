"""`BrokerLink`: one broker's way to the metadata store, for its own changes.

It writes decisions in order, one change after the other, under the compares that a stale broker
cannot satisfy. When a transaction was not certainly written, the caller decides again on a newer
image. When `write` returns True, the image shows the effect: a caller reads its own writes.

`write_held` is for changes of several transactions: meanwhile the broker holds the key
`creating/<topic id>` with its session, so that no other broker deletes the first half as the
remains of a crash. Each of the transactions compares the key: after it is gone, none arrives late.

It decides nothing about topics.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from uuid import UUID

from penstock.cluster import values
from penstock.cluster.controller import GuardedWrites
from penstock.cluster.image import BrokerImage, BrokerState, ControllerImage, MetadataImage
from penstock.cluster.keys import Keys
from penstock.cluster.link.followed_image import FollowedImage
from penstock.cluster.link.membership import Membership
from penstock.cluster.link.partition_writer import PartitionWriter
from penstock.cluster.stores.port import (
    Compare,
    Delete,
    MetadataStore,
    Put,
    SessionLostError,
)
from penstock.core.clock import Clock
from penstock.core.errors import AmbiguousStoreError, PenstockError, StoreError
from penstock.core.limits import BROKER_SESSION_SECONDS

logger = logging.getLogger(__name__)

RegistrationSubscriber = Callable[[int], None]
"""Called with the epoch of a new registration, and with 0 when the registration is lost."""


class BrokerLink:
    """The writes of one broker, or of a process that has the store for itself."""

    def __init__(
        self,
        store: MetadataStore,
        keys: Keys,
        *,
        session_seconds: float = BROKER_SESSION_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self.keys = keys
        self.followed = FollowedImage(store, keys)
        self.partitions = PartitionWriter(store, keys, self.followed)
        self._one_change = asyncio.Lock()
        self._session_seconds = session_seconds
        self._clock = clock
        self._membership: Membership | None = None
        self._subscribers: list[RegistrationSubscriber] = []

    @property
    def image(self) -> MetadataImage:
        """The newest image."""
        return self.followed.newest

    @property
    def membership(self) -> Membership | None:
        """This broker's registration; None before it registers and after it leaves."""
        return self._membership

    def subscribe_registration(self, subscriber: RegistrationSubscriber) -> Callable[[], None]:
        """Call `subscriber` at each change of the registration; returns how to unsubscribe."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def _registration_changed(self, epoch: int) -> None:
        for subscriber in tuple(self._subscribers):
            subscriber(epoch)

    async def register(self, broker: BrokerImage, *, may_have_lost: bool) -> Membership:
        """Register the broker; return its membership, which the caller keeps alive."""
        assert self._membership is None, "a broker registers once"
        membership = Membership(
            self._store,
            self.keys,
            broker,
            may_have_lost=may_have_lost,
            session_seconds=self._session_seconds,
            clock=self._clock,
            on_change=self._registration_changed,
        )
        epoch = await membership.join()
        self._membership = membership
        self.followed.subscribe(lambda _before, image, _changes: membership.follow(image))
        await self.followed.wait_revision(epoch)
        return membership

    async def leave(self) -> None:
        """End the broker's session, if it has registered."""
        self.followed.cancel_waits()
        self.partitions.stop()
        membership, self._membership = self._membership, None
        if membership is not None:
            await membership.leave()

    @contextlib.asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """Hold the lock for one change at a time, by a registered broker."""
        async with self._one_change:
            await self._stay_registered()
            yield

    def guards(self) -> tuple[Compare, ...]:
        """Return the compare of every write of a registered broker: it is still registered."""
        return () if self._membership is None else (self._membership.guard(),)

    def controls(self) -> ControllerImage | None:
        """Return this broker's role as the controller; None if another broker has it, or none."""
        controller, membership = self.image.controller, self._membership
        is_own = (
            controller is not None
            and membership is not None
            and membership.owns(controller.broker_id, controller.broker_epoch)
        )
        return controller if is_own else None

    async def change_state(self, state: BrokerState) -> bool:
        """Change the state of this broker; return as `write`."""
        assert self._membership is not None, "a registered broker has a state"
        return await self.write((self._membership.state_writes(state),))

    async def become_controller(self) -> None:
        """Write this broker as the controller, unless there is one."""
        membership = self._membership
        if membership is None:
            return
        key = self.keys.controller()
        value = values.write_controller(membership.broker_id, membership.epoch)
        compares = (membership.guard(), Compare.absent(key))
        await self.write((GuardedWrites(compares, (Put(key, value, membership.session),)),))

    async def write(self, writes: Iterable[GuardedWrites]) -> bool:
        """Write in order; return whether all transactions are certainly written and in the image.

        If one is not, the image is newer afterwards, and the caller decides on that image.
        """
        for write in writes:
            try:
                result = await self._store.transact(write.compares, write.operations)
            except AmbiguousStoreError:
                await self.followed.reload()
                await self._stay_registered()
                return False
            except SessionLostError:
                if self._membership is not None:
                    self._membership.lose()
                await self._register_again()
                return False
            if not result.succeeded:
                await self.followed.wait_refuted(write.compares, result.revision)
                await self._stay_registered()
                return False
            if result.changed:
                await self.followed.wait_revision(result.revision)
        return True

    async def attempt(self, writes: Iterable[GuardedWrites]) -> StoreError | None:
        """Write the transactions; return the error if the store fails permanently."""
        try:
            await self.write(writes)
        except StoreError as error:
            return error
        return None

    async def write_held(
        self, topic_id: UUID, writes: Callable[[tuple[Compare, ...]], Iterable[GuardedWrites]]
    ) -> bool:
        """Write many partitions of a topic: `writes` returns the transactions under compares.

        The last of the transactions must delete the key `creating/<topic id>`. Returns as `write`.
        Raises an error if another broker writes partitions of the topic.
        """
        if self._membership is None:
            return await self.write(writes(()))
        if not await self._hold(topic_id, self._membership):
            return False
        held = self.image.creating.get(topic_id)
        if held is None:
            # The session has ended since.
            return False
        has_landed = False
        try:
            hold = Compare.created_at(self.keys.creating(topic_id), held.revision)
            has_landed = await self.write(writes((*self.guards(), hold)))
        finally:
            if not has_landed:
                await self._release(topic_id)
        return has_landed

    def has_forgotten(self) -> bool:
        """Return whether a failure may have left keys of creations that this broker has ended."""
        return any(self._own_creations())

    async def release_forgotten(self) -> None:
        """Delete such keys, while this broker carries out no other change."""
        for topic_id in list(self._own_creations()):
            await self._release(topic_id)

    def _own_creations(self) -> Iterator[UUID]:
        broker_id = None if self._membership is None else self._membership.broker_id
        for topic_id, creation in self.image.creating.items():
            if creation.broker_id == broker_id:
                yield topic_id

    async def _hold(self, topic_id: UUID, membership: Membership) -> bool:
        held = self.image.creating.get(topic_id)
        if held is not None and held.broker_id != membership.broker_id:
            raise StoreError(
                f"broker {held.broker_id} adds partitions to the topic: try again when it has "
                "finished"
            )
        # A failure may have left it. Held anew, it has another revision: late writes are refused.
        await self._release(topic_id)
        key = self.keys.creating(topic_id)
        put = Put(key, values.write_creation(membership.broker_id), membership.session)
        compares = (membership.guard(), Compare.absent(key))
        return await self.write((GuardedWrites(compares, (put,)),))

    async def _release(self, topic_id: UUID) -> None:
        """Delete the key of a creation that failed; the end of the session would delete it too."""
        held = self.image.creating.get(topic_id)
        if held is None:
            return
        key = self.keys.creating(topic_id)
        compares = (*self.guards(), Compare.created_at(key, held.revision))
        try:
            await self.write((GuardedWrites(compares, (Delete(key),)),))
        except StoreError as error:
            logger.warning("the key of a failed creation of topic %s stays: %s", topic_id, error)

    async def _stay_registered(self) -> None:
        """Register again if the session ended because this process was suspended for too long.

        If only the session's task did this, a request could fail before: not enough brokers, or
        outdated writes. If another process has the id by now, this one must not register: its
        writes fail.
        """
        if self._membership is not None and self._membership.must_register(self.image):
            await self._register_again()

    async def _register_again(self) -> None:
        if self._membership is None:
            return
        # The session's task gets the same error and logs it; the write will fail too.
        with contextlib.suppress(PenstockError):
            await self.followed.wait_revision(await self._membership.ensure())
