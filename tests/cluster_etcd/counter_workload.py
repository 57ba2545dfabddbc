"""`CounterWorkload`: increments a key by compare-and-swap and watches it, and judges the outcome.

Guarantees of `check`: every acknowledged increment is in the watched history exactly once, no
rejected one is, the counts have no gap, and the watch reached the newest value. The writer resolves
an increment in doubt as brokers do: it reads the key and looks for its own mark.

It does NOT produce faults: tests do, while it runs.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from penstock.cluster.etcd.etcd_store import EtcdMetadataStore
from penstock.cluster.stores.port import CompactedError, Compare, Put, SessionLostError
from penstock.core.errors import AmbiguousStoreError, StoreError

KEY = "/penstock/default/counter"
PREFIX = "/penstock/default/"


async def until(holds: Callable[[], bool], within_seconds: float = 10.0) -> None:
    """Wait until a condition holds."""
    for _ in range(int(within_seconds * 100)):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError(f"not within {within_seconds:g} s")


@dataclass
class CounterWorkload:
    """A writer on one store and a watcher on another."""

    writer: EtcdMetadataStore
    watcher: EtcdMetadataStore
    acknowledged: list[int] = field(default_factory=list)
    rejected: set[int] = field(default_factory=set)
    ambiguous: int = 0
    longest_gap_seconds: float = 0.0
    watched: list[tuple[int, int, int]] = field(default_factory=list)
    """Revision, count and mark."""
    _marks: int = 0
    _is_over: bool = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator["CounterWorkload"]:
        """Write and watch during the block, then check."""
        first = (await self.watcher.read(KEY)).revision + 1
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self._watch(first))
            writing = tasks.create_task(self._write())
            yield self
            self._is_over = True
            await writing
            await self.check()
            watching.cancel()

    async def acknowledge(self, count: int, within_seconds: float = 10.0) -> None:
        """Wait until more increments are acknowledged."""
        wanted = len(self.acknowledged) + count
        await until(lambda: len(self.acknowledged) >= wanted, within_seconds)

    async def check(self) -> None:
        """Judge the history."""
        (newest,) = (await self.writer.read(KEY)).values
        await until(lambda: bool(self.watched) and self.watched[-1][0] >= newest.mod_revision)
        revisions = [revision for revision, _, _ in self.watched]
        assert revisions == sorted(set(revisions))
        assert [count for _, count, _ in self.watched] == list(range(1, len(self.watched) + 1))
        marks = [mark for _, _, mark in self.watched]
        assert len(marks) == len(set(marks))
        assert set(self.acknowledged) <= set(marks)
        assert not self.rejected & set(marks)

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        last = loop.time()
        while not self._is_over:
            if await self._increment():
                now = loop.time()
                self.longest_gap_seconds = max(self.longest_gap_seconds, now - last)
                last = now
            await asyncio.sleep(0.005)

    async def _increment(self) -> bool:
        try:
            found = (await self.writer.read(KEY)).values
        except StoreError:
            return False
        self._marks += 1
        mark = self._marks
        count = int(found[0].value.split()[0]) if found else 0
        revision = found[0].mod_revision if found else 0
        write = Put(KEY, f"{count + 1} {mark}".encode())
        try:
            result = await self.writer.transact((Compare.unchanged(KEY, revision),), (write,))
        except AmbiguousStoreError:
            self.ambiguous += 1
            return False
        except StoreError:
            self.rejected.add(mark)
            return False
        if not result.succeeded:
            # An increment in doubt before this one landed late.
            self.rejected.add(mark)
            return False
        self.acknowledged.append(mark)
        return True

    async def _watch(self, first: int) -> None:
        async for batch in self.watcher.watch(PREFIX, from_revision=first):
            for event in batch.events:
                if event.key == KEY and event.value is not None:
                    count, mark = event.value.value.split()
                    self.watched.append((batch.revision, int(count), int(mark)))


@dataclass
class KeptSession:
    """A session with a key, kept alive as a broker does: every TTL / 4.5."""

    store: EtcdMetadataStore
    time_to_live_seconds: float
    key: str = f"{PREFIX}brokers/1"
    losses: int = 0
    failures: int = 0
    renewals: int = 0
    session: int = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator["KeptSession"]:
        """Keep the session during the block; register again when it is lost."""
        await self._register()
        async with asyncio.TaskGroup() as tasks:
            keeping = tasks.create_task(self._keep())
            yield self
            keeping.cancel()

    async def _register(self) -> None:
        self.session = await self.store.open_session(self.time_to_live_seconds)
        await self.store.transact((), (Put(self.key, b"me", self.session),))

    async def _keep(self) -> None:
        is_lost = False
        while True:
            await asyncio.sleep(self.time_to_live_seconds / 4.5)
            try:
                if is_lost:
                    await self._register()
                    is_lost = False
                await self.store.keep_alive(self.session)
                self.renewals += 1
            except SessionLostError:
                self.losses += 1
                is_lost = True
            except (StoreError, CompactedError):
                self.failures += 1
