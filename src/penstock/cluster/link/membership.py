"""`Membership`: this broker's registration and its session.

The registration is a key bound to a session; the revision that created it is the broker's epoch. A
session is lost if this process is stopped for longer than its time to live. Then a new session with
a higher epoch replaces it. Safety does not depend on this: every write compares the epoch
(`guard`), so a broker that was declared dead cannot change metadata before it has registered again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from penstock.cluster import values
from penstock.cluster.controller import GuardedWrites
from penstock.cluster.image import BrokerImage, BrokerState, MetadataImage
from penstock.cluster.keys import Keys
from penstock.cluster.link.registration import check_takeover, decide_registration
from penstock.cluster.stores.port import (
    Compare,
    KeyValue,
    MetadataStore,
    Put,
    SessionLostError,
)
from penstock.core.errors import AmbiguousStoreError, StoreError
from penstock.core.limits import (
    BROKER_KEEP_ALIVE_SECONDS,
    BROKER_SESSION_SECONDS,
    METADATA_ATTEMPTS_MAX,
)

logger = logging.getLogger(__name__)


class Membership:
    """One broker's registration in the cluster."""

    def __init__(
        self,
        store: MetadataStore,
        keys: Keys,
        broker: BrokerImage,
        *,
        may_have_lost: bool = False,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`may_have_lost`: records that the broker reported as durable may be gone since."""
        self._store = store
        self._keys = keys
        self._broker = broker
        self._may_have_lost = may_have_lost
        self._sleep = sleep
        self._session = 0
        self._epoch = 0
        self._is_registered = False
        """Whether the broker has registered and the registration is not known to be lost."""
        self._one_at_a_time = asyncio.Lock()

    def guard(self) -> Compare:
        """Return the compare that holds while this registration is valid."""
        return Compare.created_at(self._keys.broker(self._broker.id), self._epoch)

    @property
    def broker_id(self) -> int:
        """The id of the broker."""
        return self._broker.id

    @property
    def session(self) -> int:
        """The session that keys of this broker are bound to."""
        return self._session

    @property
    def epoch(self) -> int:
        """The broker epoch of this registration."""
        return self._epoch

    def owns(self, broker_id: int, epoch: int) -> bool:
        """Return whether a value names this broker with its present registration."""
        return (broker_id, epoch) == (self._broker.id, self._epoch)

    def must_register(self, image: MetadataImage) -> bool:
        """Return whether the registration is lost: it is known to be, or the image has none.

        A registration of another process in the image is not replaced.
        """
        return not self._is_registered or self._broker.id not in image.brokers

    async def join(self) -> int:
        """Register, and return the broker epoch.

        A registration of the same data directory belongs to a process that has ended, because the
        caller holds the directory's lock: its session is ended. Any other registration means two
        brokers with one id, and raises `DuplicateBrokerError`.
        """
        key = self._keys.broker(self._broker.id)
        self._session = await self._store.open_session(BROKER_SESSION_SECONDS)
        for _ in range(METADATA_ATTEMPTS_MAX):
            for pair in (await self._store.read(key)).values:
                if pair.session == self._session:
                    # The response was lost, the write was not.
                    return self._registered_at(pair.create_revision)
                registered = values.read_broker(pair.value, self._broker.id, pair.create_revision)
                check_takeover(self._broker, registered)
                await self._store.end_session(pair.session)
            writes = decide_registration(
                self._keys,
                self._broker,
                self._session,
                node=await self._value(self._keys.node(self._broker.id)),
                features=await self._value(self._keys.features()),
                may_have_lost=self._may_have_lost,
            )
            try:
                result = await self._store.transact(writes.compares, writes.operations)
            except AmbiguousStoreError:
                continue
            if result.succeeded:
                return self._registered_at(result.revision)
        raise StoreError(f"broker {self._broker.id} could not be registered")

    def _registered_at(self, revision: int) -> int:
        self._epoch = revision
        self._is_registered = True
        # It is known to the others now. A later registration of this process lost nothing more.
        self._may_have_lost = False
        return revision

    async def _value(self, key: str) -> KeyValue | None:
        found = (await self._store.read(key)).values
        return found[0] if found else None

    def state_writes(self, state: BrokerState) -> GuardedWrites:
        """Return the write that changes the state of this broker; later registrations keep it."""
        self._broker = replace(self._broker, state=state)
        put = Put(
            self._keys.broker(self._broker.id), values.write_broker(self._broker), self._session
        )
        return GuardedWrites((self.guard(),), (put,))

    async def ensure(self) -> int:
        """Prolong the session, or register again if it was lost; return the present epoch."""
        async with self._one_at_a_time:
            if self._is_registered:
                try:
                    await self._store.keep_alive(self._session)
                except SessionLostError:
                    self._is_registered = False
            return self._epoch if self._is_registered else await self.join()

    async def keep(self) -> None:
        """Keep the session until cancelled; register again if it was lost."""
        while True:
            await self._sleep(BROKER_KEEP_ALIVE_SECONDS)
            try:
                await self.ensure()
            except StoreError as error:
                # The store may answer again. Until then `guard` rejects every write of this broker,
                # and the logs can be served anyway.
                logger.warning("the metadata store does not answer, trying again: %s", error)

    async def leave(self) -> None:
        """End the session: the broker is removed at once, not after a timeout."""
        await self._store.end_session(self._session)
