"""A log with sealed segments and a book of leases over it, for the tests of leases."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TypeVar

from penstock.core.types import TopicPartition
from penstock.storage.disk.disk_guard import DiskGuard
from penstock.storage.disk.filesystem import FileSystem, Space
from penstock.storage.leases.lease_book import Lease, LeaseBook
from penstock.storage.leases.lease_rules import LeaseWish
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log_manager import LogManager
from tests.storage.logs import PARTITION, SMALL, Clock, batch, new_log, open_manager, sync

Result = TypeVar("Result")
OPEN = Space(1 << 40, 1 << 40)
LOW = Space(200 << 20, 1 << 40)
ALL = 1 << 62


async def at_once(call: Callable[[], Result]) -> Result:
    """A worker thread that is this one."""
    return call()


async def no_rest(_seconds: float) -> None:
    """A sleep of no time."""


class Scene:
    """A manager with one log, and the leases over it."""

    def __init__(
        self,
        disk: FileSystem,
        settings: LogSettings = SMALL,
        *,
        batches: int = 60,
        is_new: bool = True,
    ) -> None:
        self.disk = disk
        self.manager: LogManager
        self.log: PartitionLog
        if is_new:
            self.manager, self.log = new_log(disk, settings)
            self.append(batches)
        else:
            self.manager = open_manager(disk, settings)
            found = self.manager.get_log(PARTITION)
            assert found is not None
            self.log = found
        self.clock = Clock()
        self.guard = DiskGuard()
        self.guard.sample(OPEN)
        self._ids = iter(f"{number:032x}" for number in range(1, 1_000))
        self.book = self.new_book()

    def new_book(self) -> LeaseBook:
        book = LeaseBook(
            self.manager,
            self.clock,
            {"/data": self.guard},
            at_once,
            asyncio.Lock(),
            no_rest,
            new_id=lambda: next(self._ids),
        )
        book.load()
        return book

    def append(self, count: int, leader_epoch: int = 0) -> None:
        for _ in range(count):
            self.log.append(batch(), leader_epoch=leader_epoch)
        sync(self.manager)

    def wish(
        self,
        begin: int = 0,
        end: int = ALL,
        stable: int | None = None,
        partition: TopicPartition = PARTITION,
    ) -> LeaseWish:
        limit = self.log.end_offset if stable is None else stable
        return LeaseWish(partition, begin, end, partial(int, limit))

    def grant(
        self, begin: int = 0, end: int = ALL, *, stable: int | None = None, seconds: int = 60
    ) -> Lease:
        return run(self.book.grant([self.wish(begin, end, stable)], seconds, "User:a"))

    def names(self, lease: Lease) -> list[str]:
        return sorted(self.disk.list_directory(lease.path))


def run(coroutine: Coroutine[object, object, Result]) -> Result:
    """Run a coroutine that waits for nothing."""
    return asyncio.run(_awaited(coroutine))


async def _awaited(coroutine: Coroutine[object, object, Result]) -> Result:
    return await coroutine
