"""`PartitionWriter`: writes partition states of this broker's replicas, beside all other changes.

Guarantees: each outcome is known when `write` returns. True: the change is stored, and the image
shows it, or a later state. False: it is not stored and never will be; the image shows the newer
state, if there is one. A transaction without an answer is sent again until it has one, for as long
as the broker runs. A transaction whose compares fail is divided: each of its changes is written
alone. Several transactions are under way at a time.

It decides nothing about replicas (`elections`, `link.partition_writes`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import count
from typing import Final

from penstock.cluster.controller import GuardedWrites
from penstock.cluster.image import WriteMark
from penstock.cluster.keys import Keys
from penstock.cluster.link.followed_image import FollowedImage
from penstock.cluster.link.membership import Membership
from penstock.cluster.link.partition_writes import (
    MarkedWrite,
    PartitionWrite,
    marked,
    own_states,
    transactions,
)
from penstock.cluster.stores.port import Compare, MetadataStore, TransactionResult
from penstock.core.errors import StoreError

logger = logging.getLogger(__name__)

TRANSACTIONS_AT_ONCE: Final = 4
"""Transactions under way: etcd writes about as many in one round of its log."""
PAUSE_SECONDS: Final = 0.05
PAUSE_SECONDS_MAX: Final = 1.0
"""Before a transaction is sent again: the first pause, and the longest after doubling."""


class PartitionWriter:
    """The writes of partition states by one broker."""

    def __init__(self, store: MetadataStore, keys: Keys, followed: FollowedImage) -> None:
        self._store = store
        self._keys = keys
        self._followed = followed
        self._under_way = asyncio.Semaphore(TRANSACTIONS_AT_ONCE)
        self._nonces = count(1)
        self._sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
        self._is_stopped = False

    def stop(self) -> None:
        """Cancel the callers at their next attempt."""
        self._is_stopped = True

    async def write(
        self, membership: Membership | None, writes: Sequence[PartitionWrite]
    ) -> list[bool]:
        """Return for each change whether it is stored."""
        stored = [False] * len(writes)
        if membership is None or not membership.is_registered:
            return stored
        mark = WriteMark(membership.broker_id, membership.epoch, next(self._nonces))
        guard, image = membership.guard(), self._followed.newest
        possible = [
            found
            for number, write in enumerate(writes)
            if (found := marked(self._keys, image, write, number, mark)) is not None
        ]
        assert len({one.key for one in possible}) == len(possible), "one change for each partition"
        landed = await asyncio.gather(*(self._write(*one) for one in transactions(possible, guard)))
        again = [one for _, few in landed for one in few]
        alone = await asyncio.gather(
            *(self._write(*one) for one in transactions(again, guard, count_max=1))
        )
        for numbers, _ in (*landed, *alone):
            for number in numbers:
                stored[number] = True
        return stored

    async def _write(
        self, transaction: GuardedWrites, writes: tuple[MarkedWrite, ...]
    ) -> tuple[Iterable[int], tuple[MarkedWrite, ...]]:
        """Return the numbers of the stored changes, and the changes to write alone."""
        async with self._under_way:
            result = await self._transact(transaction, [write.key for write in writes])
        if result.succeeded:
            await self._see(lambda: self._followed.wait_revision(result.revision))
            return [write.number for write in writes], ()
        stored = own_states(result.values, writes)
        if stored:
            latest = max(stored.values())
            await self._see(lambda: self._followed.wait_revision(latest))
        left = tuple(write for write in writes if write.number not in stored)
        if left and len(writes) == 1:
            await self._see(lambda: self._wait_refuted(transaction.compares, result.revision))
            return (), ()
        return stored, left

    async def _transact(self, transaction: GuardedWrites, keys: list[str]) -> TransactionResult:
        """Send the transaction until it is answered."""
        pause = PAUSE_SECONDS
        while True:
            try:
                return await self._store.transact(
                    transaction.compares, transaction.operations, read_on_failure=keys
                )
            except StoreError as error:
                logger.warning("a partition's state is written again, without an answer: %s", error)
            await self._pause(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    async def _wait_refuted(self, compares: Sequence[Compare], revision: int) -> None:
        """Wait until the image shows why the compares failed, if it can be read."""
        if not any(compare.key in self._followed.unreadable for compare in compares):
            await self._followed.wait_refuted(compares, revision)

    async def _see(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Wait for the image: the outcome is known, and the store may not answer a load now."""
        pause = PAUSE_SECONDS
        while True:
            try:
                await wait()
            except StoreError as error:
                logger.warning("a written state of a partition is not in the image yet: %s", error)
            else:
                return
            await self._pause(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    async def _pause(self, seconds: float) -> None:
        if self._is_stopped:
            raise asyncio.CancelledError
        await self._sleep(seconds)
        if self._is_stopped:
            raise asyncio.CancelledError
