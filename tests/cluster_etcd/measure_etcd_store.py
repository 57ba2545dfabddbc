"""Measures the etcd store on three members on this machine; run it as a module.

    python -m tests.cluster_etcd.measure_etcd_store

CPU is that of this process alone. It is NOT a test: times depend on what else the machine does.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from penstock.cluster.etcd.etcd_store import EtcdMetadataStore
from penstock.cluster.stores.port import Compare, EventBatch, Put
from tests.cluster_etcd.etcd_stores import store_of
from tests.oracle.etcd_server import VERSIONS, EtcdCluster

VALUE = bytes(172)
"""As large as a partition's state."""


async def timed(name: str, count: int, work: Callable[[int], Awaitable[object]]) -> None:
    """Run the work again and again, and print its times."""
    seconds = []
    cpu = time.process_time()
    for number in range(count):
        started = time.perf_counter()
        await work(number)
        seconds.append(time.perf_counter() - started)
    cpu = time.process_time() - cpu
    seconds.sort()
    print(
        f"  {name}: p50 {statistics.median(seconds) * 1e3:.2f} ms, "
        f"p99 {seconds[int(count * 0.99)] * 1e3:.2f} ms, CPU {cpu / count * 1e3:.3f} ms"
    )


async def compare_and_swap(store: EtcdMetadataStore) -> None:
    revision = 0

    async def swap(number: int) -> None:
        nonlocal revision
        result = await store.transact((Compare.unchanged("/c", revision),), (Put("/c", VALUE),))
        assert result.succeeded
        revision = result.revision

    await timed("compare and swap", 1_000, swap)

    async def batch(number: int) -> None:
        keys = [f"/b/{part}" for part in range(100)]
        compares = [Compare.created_at("/c", 0), *(Compare.absent(key) for key in keys[:99])]
        await store.transact(compares, [Put(key, VALUE) for key in keys])
        await store.transact((), [Put(key, VALUE) for key in keys])

    await timed("two transactions of 100 keys", 100, batch)


async def to_event(writer: EtcdMetadataStore, watcher: EtcdMetadataStore) -> None:
    first = (await watcher.read("/e")).revision + 1
    watch: AsyncIterator[EventBatch] = watcher.watch("/e", from_revision=first)

    async def through(number: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(writer.transact((), (Put("/e", VALUE),)))
            await anext(watch)

    await timed("put to event at another member", 1_000, through)


async def parallel(store: EtcdMetadataStore) -> None:
    async def write(lane: int) -> None:
        for _ in range(60):
            await store.transact((), (Put(f"/p/{lane}", VALUE),))

    started, cpu = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as tasks:
        for lane in range(64):
            tasks.create_task(write(lane))
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    print(f"  64-way puts: {64 * 60 / seconds:.0f}/s, CPU {cpu / (64 * 60) * 1e3:.3f} ms each")


async def load(store: EtcdMetadataStore) -> None:
    for first in range(0, 10_000, 100):
        await store.transact((), [Put(f"/l/{first + n:05}", VALUE) for n in range(100)])

    async def whole(number: int) -> None:
        assert len((await store.read_prefix("/l/")).values) == 10_000

    await timed("load of 10,000 keys", 10, whole)
    keys = [f"/l/{n:05}" for n in range(10_000)]
    since = (await store.read("/l/")).revision - 99
    watch = store.watch("/l/", from_revision=since)
    started, cpu = time.perf_counter(), time.process_time()
    events = 0
    while events < len(keys):
        events += len((await anext(watch)).events)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    print(f"  watch of 10,000 past changes: {seconds * 1e3:.0f} ms, CPU {cpu * 1e3:.0f} ms")


async def measure(etcd: EtcdCluster) -> None:
    async with (
        store_of(etcd.endpoints) as store,
        store_of(etcd.endpoints, first_member=1) as other,
    ):
        await store.read("/")
        await compare_and_swap(store)
        await to_event(store, other)
        await parallel(store)
        await load(store)


def main() -> None:
    for version in VERSIONS:
        print(f"etcd {version}")
        with (
            tempfile.TemporaryDirectory() as folder,
            EtcdCluster(Path(folder), version=version) as etcd,
        ):
            asyncio.run(measure(etcd))


if __name__ == "__main__":
    main()
