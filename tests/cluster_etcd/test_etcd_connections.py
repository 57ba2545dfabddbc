"""Connections to a real etcd are cut, freeze and lose answers; history is compacted meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path

import pytest

from penstock.cluster.etcd.etcd_store import EtcdMetadataStore
from penstock.cluster.stores.port import CompactedError, Compare, EventBatch, Put
from penstock.core.errors import AmbiguousStoreError, StoreError
from tests.cluster_etcd.counter_workload import CounterWorkload
from tests.cluster_etcd.cutting_proxy import Mode, proxies
from tests.cluster_etcd.etcd_stores import options, store_of
from tests.oracle.etcd_server import EtcdCluster

pytestmark = [pytest.mark.etcd, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest.fixture
def prefix(etcd: EtcdCluster, request: pytest.FixtureRequest) -> str:
    """A prefix for each test: one etcd serves all."""
    return f"/{request.node.name}/"


def ports(etcd: EtcdCluster) -> list[int]:
    return [member.client_port for member in etcd.members]


def test_connections_are_cut_again_and_again(etcd: EtcdCluster) -> None:
    async def main() -> None:
        async with proxies(*ports(etcd)) as lines:
            urls = [line.url for line in lines]
            async with (
                store_of(urls) as writer,
                store_of(urls, first_member=1) as watcher,
                CounterWorkload(writer, watcher).running() as workload,
            ):
                for round_number in range(30):
                    await workload.acknowledge(3)
                    lines[round_number % 3].cut()
                    lines[(round_number + 1) % 3].cut()
                assert lines[1].connections > 5

    asyncio.run(main())


def test_a_watch_is_cut_while_it_catches_up(etcd: EtcdCluster, prefix: str) -> None:
    async def main() -> None:
        async with proxies(*ports(etcd)) as lines, store_of(etcd.endpoints) as writer:
            first = (await writer.transact((), (Put(f"{prefix}0", b"0"),))).revision
            for number in range(1, 3_000):
                await writer.transact((), (Put(f"{prefix}{number % 7}", bytes(500)),))
            async with store_of([line.url for line in lines]) as watcher:
                watched: list[EventBatch] = []
                async for batch in watcher.watch(prefix, from_revision=first):
                    watched.append(batch)
                    if len(watched) % 300 == 1:
                        for line in lines:
                            line.cut()
                    if len(watched) == 3_000:
                        break
                assert [batch.revision for batch in watched] == list(range(first, first + 3_000))

    asyncio.run(main())


def test_a_lost_answer_is_ambiguous_and_the_write_is_there_once(
    etcd: EtcdCluster, prefix: str
) -> None:
    async def main() -> None:
        key = f"{prefix}a"
        async with proxies(*ports(etcd)) as lines, store_of([ln.url for ln in lines]) as store:
            before = await store.read(key)
            lines[0].set(Mode.NO_ANSWERS)
            with pytest.raises(AmbiguousStoreError, match="no certain answer"):
                await store.transact((Compare.absent(key),), (Put(key, b"mine"),))
            after = await store.read_prefix(prefix)
            assert [pair.value for pair in after.values] == [b"mine"]
            assert after.revision == before.revision + 1
            again = await store.transact(
                (Compare.absent(key),), (Put(key, b"2"),), read_on_failure=(key,)
            )
            assert not again.succeeded
            assert again.values == after.values

    asyncio.run(main())


def test_a_lost_answer_to_a_read_or_a_session_is_asked_for_elsewhere(
    etcd: EtcdCluster, prefix: str
) -> None:
    async def main() -> None:
        async with proxies(*ports(etcd)) as lines, store_of([ln.url for ln in lines]) as store:
            await store.read(prefix)
            lines[0].set(Mode.NO_ANSWERS)
            session = await store.open_session(5)
            lines[1].set(Mode.NO_ANSWERS)
            await store.keep_alive(session)
            lines[0].heal()
            lines[1].heal()
            lines[2].set(Mode.FROZEN)
            await store.end_session(session)
            lines[2].heal()
            assert not (await store.read(prefix)).values

    asyncio.run(main())


def test_nothing_is_written_while_no_member_can_be_reached(etcd: EtcdCluster, prefix: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with proxies(*ports(etcd)) as lines, store_of([ln.url for ln in lines]) as store:
            watch = store.watch(prefix, from_revision=(await store.read(prefix)).revision + 1)
            for line in lines:
                line.set(Mode.CUT)
            # On a connection whose end is not noticed yet, a request would be in doubt.
            await asyncio.sleep(0.2)
            started = loop.time()
            with pytest.raises(StoreError, match=r"failed .* in 5 s, last with: not") as error:
                await store.transact((), (Put(f"{prefix}a", b"1"),))
            assert not isinstance(error.value, AmbiguousStoreError)
            assert 5 <= loop.time() - started < 8
            for line in lines:
                line.set(Mode.WELL)
            assert not (await store.read_prefix(prefix)).values
            written = await store.transact((), (Put(f"{prefix}a", b"2"),))
            async with asyncio.timeout(5):
                assert (await anext(watch)).revision == written.revision

    asyncio.run(main())


def test_frozen_connections_do_not_freeze_the_watch(etcd: EtcdCluster, prefix: str) -> None:
    async def main() -> None:
        async with (
            proxies(*ports(etcd)) as lines,
            store_of([line.url for line in lines]) as store,
            store_of(etcd.endpoints) as writer,
        ):
            first = (await writer.transact((), (Put(f"{prefix}a", b"1"),))).revision
            watch = store.watch(prefix, from_revision=first)
            assert (await anext(watch)).revision == first
            for line in lines[:2]:
                line.set(Mode.FROZEN)
            written = await writer.transact((), (Put(f"{prefix}a", b"2"),))
            async with asyncio.timeout(12):
                assert (await anext(watch)).revision == written.revision

    asyncio.run(main())


def test_compaction_while_a_watch_is_away(etcd: EtcdCluster, prefix: str) -> None:
    async def main() -> None:
        async with (
            proxies(*ports(etcd)) as lines,
            store_of([line.url for line in lines]) as store,
            store_of(etcd.endpoints) as writer,
        ):
            first = (await writer.transact((), (Put(f"{prefix}a", b"1"),))).revision
            watch = store.watch(prefix, from_revision=first)
            assert (await anext(watch)).revision == first
            for line in lines:
                line.set(Mode.CUT)
            for value in (b"2", b"3", b"4"):
                last = await writer.transact((), (Put(f"{prefix}a", value),))
            await asyncio.to_thread(etcd.compact)
            for line in lines:
                line.set(Mode.WELL)
            async with asyncio.timeout(10):
                with pytest.raises(CompactedError, match=f"since revision {first + 1}"):
                    await anext(watch)
            with pytest.raises(CompactedError):
                await store.read(f"{prefix}a", revision=first)
            loaded = await store.read_prefix(prefix)
            assert [pair.value for pair in loaded.values] == [b"4"]
            following = store.watch(prefix, from_revision=loaded.revision + 1)
            later = await writer.transact((), (Put(f"{prefix}a", b"5"),))
            assert (await anext(following)).revision == later.revision > last.revision

    asyncio.run(main())


def test_compaction_under_an_open_watch_is_not_noticed(etcd: EtcdCluster, prefix: str) -> None:
    async def main() -> None:
        async with store_of(etcd.endpoints) as store:
            first = (await store.transact((), (Put(f"{prefix}a", b"1"),))).revision
            watch = store.watch(prefix, from_revision=first)
            assert (await anext(watch)).revision == first
            await asyncio.to_thread(etcd.compact)
            written = await store.transact((), (Put(f"{prefix}a", b"2"),))
            assert (await anext(watch)).revision == written.revision

    asyncio.run(main())


def test_large_answers_are_read_in_smaller_pages_and_large_histories_not_at_all(
    etcd: EtcdCluster, prefix: str
) -> None:
    async def main() -> None:
        small = EtcdMetadataStore(options(etcd.endpoints), answer_bytes_max=300_000)
        async with store_of(etcd.endpoints) as writer:
            first = (await writer.read(prefix)).revision + 1
            for start in range(0, 40, 10):
                values = [Put(f"{prefix}{n:03}", bytes(50_000)) for n in range(start, start + 10)]
                await writer.transact((), values)
            loaded = await small.read_prefix(prefix)
            assert [pair.key for pair in loaded.values] == [f"{prefix}{n:03}" for n in range(40)]
            with pytest.raises(CompactedError, match="more changes wait"):
                async for _ in small.watch(prefix, from_revision=first):
                    pass
            await writer.transact((), (Put(f"{prefix}large", bytes(400_000)),))
            with pytest.raises(StoreError, match="larger than max"):
                await small.read_prefix(f"{prefix}large")
            await small.close()

    asyncio.run(main())


def test_a_load_is_one_state_while_others_write(etcd: EtcdCluster, prefix: str) -> None:
    """Both keys always have the same value; they are pages apart."""

    async def main() -> None:
        paged = EtcdMetadataStore(options(etcd.endpoints), page_keys=3)
        first, last = f"{prefix}0", f"{prefix}9"
        async with store_of(etcd.endpoints) as writer, asyncio.TaskGroup() as tasks:
            await writer.transact((), [Put(f"{prefix}{n}", b"0") for n in range(10)])

            async def write() -> None:
                number = 0
                while True:
                    number += 1
                    value = str(number).encode()
                    await writer.transact((), (Put(first, value), Put(last, value)))

            writing = tasks.create_task(write())
            seen = set()
            for _ in range(50):
                snapshot = await paged.read_prefix(prefix)
                assert len(snapshot.values) == 10
                assert snapshot.values[0].value == snapshot.values[9].value
                seen.add(snapshot.values[0].value)
            assert len(seen) > 10
            writing.cancel()
        await paged.close()

    asyncio.run(main())


def test_cancelled_calls_and_watches_are_cancelled(etcd: EtcdCluster, prefix: str) -> None:
    async def main() -> None:
        async with proxies(*ports(etcd)) as lines, store_of([ln.url for ln in lines]) as store:
            start = (await store.read(prefix)).revision + 1
            for line in lines:
                line.set(Mode.FROZEN)
            for waiting in (
                store.transact((), (Put(f"{prefix}a", b"1"),)),
                store.keep_alive(5),
                anext(store.watch(prefix, from_revision=start)),
            ):
                async with asyncio.TaskGroup() as tasks:
                    task = tasks.create_task(waiting)  # type: ignore[arg-type]
                    await asyncio.sleep(0.3)
                    task.cancel()
                assert task.cancelled()
            for line in lines:
                line.heal()
            # The store is as good as before.
            await store.read(prefix)

    asyncio.run(main())


def test_calls_in_flight_fail_when_the_store_closes(etcd: EtcdCluster, prefix: str) -> None:
    async def main() -> None:
        async with proxies(*ports(etcd)) as lines, store_of([ln.url for ln in lines]) as store:
            start = (await store.read(prefix)).revision + 1
            watch = store.watch(prefix, from_revision=start)
            for line in lines:
                line.set(Mode.NO_ANSWERS)
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(_next(watch))
                reading = tasks.create_task(_error(store.read(prefix)))
                writing = tasks.create_task(_error(store.transact((), (Put(f"{prefix}", b""),))))
                await asyncio.sleep(0.3)
                await store.close()
            assert following.result() is None
            assert type(reading.result()) is StoreError
            assert type(writing.result()) is AmbiguousStoreError
            assert str(writing.result()) == "the metadata store is closed"

    asyncio.run(main())


async def _next(watch: AsyncIterator[EventBatch]) -> EventBatch | None:
    return await anext(watch, None)


async def _error(call: Awaitable[object]) -> StoreError | None:
    try:
        await call
    except StoreError as error:
        return error
    return None


def test_addresses_of_two_etcds_are_refused(etcd: EtcdCluster, tmp_path: Path) -> None:
    async def main(other: EtcdCluster) -> None:
        async with (
            proxies(etcd.members[0].client_port) as (line,),
            store_of([line.url, other.endpoints[0]]) as store,
        ):
            await store.read("/a")
            line.set(Mode.CUT)
            with pytest.raises(StoreError, match="belong to one etcd"):
                await store.read("/a")

    with EtcdCluster(tmp_path, members=1, arguments=["--initial-cluster-token", "b"]) as other:
        asyncio.run(main(other))
