"""`Membership`: this broker's registration and its session.

The registration is a key bound to a session; the revision that created it is the broker's epoch. A
session is lost if this process is stopped for longer than its time to live. Then a new session with
a higher epoch replaces it. Safety does not depend on this: every write compares the epoch
(`guard`), so a broker that was declared dead cannot change metadata before it has registered again.

A lost registration is noticed by a keep-alive, by a write, or by an image without the broker's key;
`on_change` is called at once, and again when the broker has registered. A keep-alive is sent only
while the event loop is on time: a broker that hangs must not look alive.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from penstock.cluster import values
from penstock.cluster.controller import GuardedWrites
from penstock.cluster.features.levels import unsupported_level
from penstock.cluster.image import BrokerImage, BrokerState, MetadataImage
from penstock.cluster.keys import Keys
from penstock.cluster.link.registration import (
    check_takeover,
    decide_registration,
    duplicate_directory,
    is_elsewhere,
)
from penstock.cluster.link.transfer_mark import read_transfer
from penstock.cluster.stores.port import (
    Compare,
    KeyValue,
    MetadataStore,
    Put,
    SessionLostError,
)
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import AmbiguousStoreError, MetadataError, StoreError
from penstock.core.limits import (
    BROKER_SESSION_SECONDS,
    KEEP_ALIVES_PER_SESSION,
    METADATA_ATTEMPTS_MAX,
)

logger = logging.getLogger(__name__)

ISOLATION_SHARE: Final = 7.5 / 9
"""Share of a session: after this time without a keep-alive a broker counts as isolated, before the
store can have ended its session."""
LATE_SECONDS: Final = 1.0
"""A timer that is later than this: the event loop hung, and a keep-alive waits for a timely one."""
GONE_SECONDS: Final = 1.0
"""Between two looks at the session of a broker with the same directory at other addresses."""
TICK_SECONDS: Final = 0.1
"""Time of a timer that shows whether the event loop is on time again."""


class Membership:
    """One broker's registration in the cluster."""

    def __init__(
        self,
        store: MetadataStore,
        keys: Keys,
        broker: BrokerImage,
        *,
        may_have_lost: bool = False,
        session_seconds: float = BROKER_SESSION_SECONDS,
        clock: Clock | None = None,
        on_change: Callable[[int], None] = lambda _: None,
        sleep: Callable[[float, asyncio.Event], Awaitable[None]] | None = None,
    ) -> None:
        """`may_have_lost`: records that the broker reported as durable may be gone since.

        `on_change` gets the epoch of each registration, and 0 when one is lost. `sleep` ends early
        when its event is set.
        """
        self._store = store
        self._keys = keys
        self._broker = broker
        self._may_have_lost = may_have_lost
        self._session_seconds = session_seconds
        self._clock = clock or SystemClock()
        self._on_change = on_change
        self._sleep = sleep or _sleep
        self._sent_at = self._clock.monotonic()
        """When the last successful keep-alive was sent, not when it was answered."""
        self._lost = asyncio.Event()
        self._session = 0
        self._epoch = 0
        self._is_registered = False
        """Whether the broker has registered and the registration is not known to be lost."""
        self._one_at_a_time = asyncio.Lock()
        self._loss: str | None = None
        self._misfit: str | None = None

    def guard(self) -> Compare:
        """Return the compare that holds while this registration is valid."""
        return Compare.created_at(self._keys.broker(self._broker.id), self._epoch)

    @property
    def problem(self) -> str | None:
        """Why the registration was not kept at the last attempt, or which level is not supported.

        A level is raised only if each registered broker supports it. Another way to raise it, such
        as the restoring of a backup of etcd, must be noticed.
        """
        return self._loss or self._misfit

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

    @property
    def is_registered(self) -> bool:
        """Whether the registration is not known to be lost."""
        return self._is_registered

    @property
    def is_isolated(self) -> bool:
        """Whether the store may soon end the session, for lack of a successful keep-alive."""
        silence = self._clock.monotonic() - self._sent_at
        return silence > self._session_seconds * ISOLATION_SHARE

    def follow(self, image: MetadataImage) -> None:
        """Notice a lost registration in an image that is not older than it, and a new level."""
        self._misfit = unsupported_level(image.features.levels, self._broker.features)
        if not self._is_registered or image.revision < self._epoch:
            return
        broker = image.brokers.get(self._broker.id)
        if broker is None or broker.epoch != self._epoch:
            # A registration of another process is not replaced at once: that one may do the same.
            self.lose(is_replaced=broker is not None)

    def lose(self, *, is_replaced: bool = False) -> None:
        """Note that the registration is lost; `keep` registers again at once."""
        if self._is_registered:
            self._is_registered = False
            if not is_replaced:
                self._lost.set()
            logger.warning("broker %d has lost its registration", self._broker.id)
            self._on_change(0)

    def owns(self, broker_id: int, epoch: int) -> bool:
        """Return whether a value names this broker with its present registration."""
        return (broker_id, epoch) == (self._broker.id, self._epoch)

    def must_register(self, image: MetadataImage) -> bool:
        """Return whether the registration is lost: it is known to be, or the image has none.

        A registration of another process in the image is not replaced.
        """
        broker = image.brokers.get(self._broker.id)
        if broker is None:
            return True
        return not self._is_registered and broker.epoch <= self._epoch

    async def join(self) -> int:
        """Register, and return the broker epoch.

        A registration of the same data directory with one of the same addresses belongs to a
        process that has ended, because the caller holds the directory's lock and listens there: its
        session is ended. At other addresses it may be that of a running broker, and this directory
        is a copy: then the session must end by itself. Any other registration means two brokers
        with one id. Raises `DuplicateBrokerError` for these.
        """
        key = self._keys.broker(self._broker.id)
        await self._open_session()
        for _ in range(METADATA_ATTEMPTS_MAX):
            for pair in (await self._store.read(key)).values:
                if pair.session == self._session:
                    # The response was lost, the write was not.
                    return self._registered_at(pair.create_revision)
                registered = values.read_broker(pair.value, self._broker.id, pair.create_revision)
                check_takeover(self._broker, registered)
                if is_elsewhere(self._broker, registered):
                    await self._wait_gone(key, pair)
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
                result = await self._store.transact(
                    writes.compares, writes.operations, read_on_failure=(self._keys.transfer(),)
                )
            except AmbiguousStoreError:
                continue
            except SessionLostError:
                # The attempts took longer than a session lasts.
                await self._open_session()
                continue
            if result.succeeded:
                return self._registered_at(result.revision)
            for pair in result.values:
                raise StoreError(read_transfer(pair.value).problem)
        raise StoreError(f"broker {self._broker.id} could not be registered")

    async def _wait_gone(self, key: str, registered: KeyValue) -> None:
        """Wait for the end of a session; raises `DuplicateBrokerError` if it is kept alive."""
        logger.warning("broker %d waits until its former session has ended", self._broker.id)
        left = self._session_seconds + GONE_SECONDS
        while left > 0:
            await self._sleep(GONE_SECONDS, asyncio.Event())
            left -= GONE_SECONDS
            if registered.create_revision not in [
                pair.create_revision for pair in (await self._store.read(key)).values
            ]:
                return
        other = values.read_broker(registered.value, self._broker.id, registered.create_revision)
        raise duplicate_directory(self._broker, other)

    async def _open_session(self) -> None:
        sent_at = self._clock.monotonic()
        self._session = await self._store.open_session(self._session_seconds)
        self._sent_at = sent_at

    def _registered_at(self, revision: int) -> int:
        self._epoch = revision
        self._is_registered = True
        self._lost.clear()
        # It is known to the others now. A later registration of this process lost nothing more.
        self._may_have_lost = False
        self._on_change(revision)
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
                sent_at = self._clock.monotonic()
                try:
                    await self._store.keep_alive(self._session)
                    self._sent_at = sent_at
                except SessionLostError:
                    self.lose()
            return self._epoch if self._is_registered else await self.join()

    async def keep(self) -> None:
        """Keep the session until cancelled; register again if it was lost."""
        while True:
            await self._rest()
            try:
                await self.ensure()
                self._loss = None
            except MetadataError as error:
                # The store may answer again, and another broker with this id may stop. Until then
                # `guard` rejects every write of this broker.
                self._loss = f"broker {self._broker.id} cannot keep its registration: {error}"
                logger.warning("%s; trying again", self._loss)

    async def _rest(self) -> None:
        """Wait for the next keep-alive; less if the registration is lost, more after a hang."""
        seconds = self._session_seconds / KEEP_ALIVES_PER_SESSION
        while not self._lost.is_set():
            begun_at = self._clock.monotonic()
            await self._sleep(seconds, self._lost)
            if self._clock.monotonic() - begun_at <= seconds + LATE_SECONDS:
                return
            seconds = TICK_SECONDS
        # Not at once again and again, while another broker has the id.
        self._lost.clear()

    async def leave(self) -> None:
        """End the session: the broker is removed at once, not after a timeout."""
        try:
            await self._store.end_session(self._session)
        except StoreError as error:
            logger.warning("the broker is removed when its session ends: %s", error)


async def _sleep(seconds: float, ended: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(seconds):
            await ended.wait()
    except TimeoutError:
        pass
