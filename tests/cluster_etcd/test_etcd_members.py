"""Members of a real etcd die, hang and restart: nothing is lost, doubled or stale."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.cluster.etcd.etcd_limits import WATCH_SILENCE_SECONDS
from penstock.cluster.stores.port import Compare, EventBatch, Put, SessionLostError
from penstock.core.errors import StoreError
from tests.cluster_etcd.counter_workload import CounterWorkload, KeptSession, until
from tests.cluster_etcd.cutting_proxy import proxies
from tests.cluster_etcd.etcd_stores import store_of
from tests.oracle.etcd_server import EtcdCluster

pytestmark = [pytest.mark.etcd, pytest.mark.timeout(180)]

GAP_SECONDS_MAX = 5.0
"""A deadline of a metadata write is never below this."""


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path) as cluster:
        yield cluster


@asynccontextmanager
async def counting(etcd: EtcdCluster, member: int = 0) -> AsyncIterator[CounterWorkload]:
    """Count with a writer and a watcher that both begin at one member."""
    async with (
        store_of(etcd.endpoints, first_member=member) as writer,
        store_of(etcd.endpoints, first_member=member) as watcher,
        KeptSession(watcher, 3).running(),
        CounterWorkload(writer, watcher).running() as workload,
    ):
        await workload.acknowledge(20)
        yield workload


def test_the_leader_is_killed_and_comes_back(etcd: EtcdCluster) -> None:
    async def main() -> float:
        leader = etcd.leader()
        async with counting(etcd, etcd.members.index(leader)) as workload:
            leader.kill()
            await workload.acknowledge(50)
            etcd.restart(leader)
            await asyncio.to_thread(etcd.wait)
            await workload.acknowledge(50)
        return workload.longest_gap_seconds

    assert asyncio.run(main()) < GAP_SECONDS_MAX


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_the_connected_member_hangs(etcd: EtcdCluster, role: str) -> None:
    """SIGSTOP: its connections stay open and nothing answers; watches must leave it."""

    async def main() -> float:
        member = etcd.leader() if role == "leader" else etcd.followers()[0]
        async with counting(etcd, etcd.members.index(member)) as workload:
            watched = len(workload.watched)
            member.pause()
            # Before its silence would be noticed: the watch moves with the calls.
            await until(lambda: len(workload.watched) >= watched + 50, WATCH_SILENCE_SECONDS - 0.5)
            member.go_on()
            await workload.acknowledge(50)
        return workload.longest_gap_seconds

    assert asyncio.run(main()) < GAP_SECONDS_MAX


def test_a_quiet_watch_leaves_a_member_that_hangs(etcd: EtcdCluster) -> None:
    """Without any call: only the silence of the watch shows that the member hangs."""

    async def main() -> None:
        member = etcd.followers()[0]
        first = etcd.members.index(member)
        others = [url for url in etcd.endpoints if url != member.client_url]
        async with (
            store_of(etcd.endpoints, first_member=first) as watcher,
            store_of(others) as writer,
        ):
            revision = (await writer.transact((), (Put("/a", b"1"),))).revision
            watch = watcher.watch("/", from_revision=revision)
            assert (await anext(watch)).revision == revision
            member.pause()
            await asyncio.sleep(0.5)
            written = await writer.transact((), (Put("/a", b"2"),))
            # gRPC's own pings would notice it after 9 s.
            async with asyncio.timeout(8.5):
                assert (await anext(watch)).revision == written.revision
            member.go_on()

    asyncio.run(main())


def test_all_members_hang_for_longer_than_a_session(etcd: EtcdCluster) -> None:
    async def main() -> None:
        async with store_of(etcd.endpoints) as store:
            session = await store.open_session(3)
            put = await store.transact((), (Put("/mine", b"x", session),))
            watch = store.watch("/", from_revision=put.revision + 1)
            for member in etcd.members:
                member.pause()
            started = asyncio.get_running_loop().time()
            with pytest.raises(StoreError, match="failed 3 times") as failed:
                await store.keep_alive(session)
            assert not isinstance(failed.value, SessionLostError)
            with pytest.raises(StoreError, match="Check that most etcd members run"):
                await store.read("/mine")
            assert asyncio.get_running_loop().time() - started < 14
            for member in etcd.members:
                member.go_on()
            async with asyncio.timeout(10):
                (event,) = (await anext(watch)).events
            assert (event.key, event.value) == ("/mine", None)
            with pytest.raises(SessionLostError):
                await store.keep_alive(session)
            with pytest.raises(SessionLostError):
                await store.transact((Compare.absent("/mine"),), (Put("/mine", b"x", session),))
            assert not (await store.read("/mine")).values

    asyncio.run(main())


def test_a_quiet_watch_leaves_a_member_without_a_leader(etcd: EtcdCluster) -> None:
    """Such a member answers a watch's questions for ever, and never sends another change."""

    async def main() -> None:
        alone = etcd.followers()[0]
        others = [member for member in etcd.members if member is not alone]
        async with (
            proxies(*(member.client_port for member in others)) as lines,
            store_of([alone.client_url, *(line.url for line in lines)]) as watcher,
        ):
            revision = (await watcher.transact((), (Put("/a", b"1"),))).revision
            watch = watcher.watch("/", from_revision=revision)
            assert (await anext(watch)).revision == revision
            assert sum(line.connections for line in lines) == 0
            for member in others:
                member.pause()
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(_next(watch))
                await until(lambda: sum(line.connections for line in lines) > 0, 5)
                for member in others:
                    member.go_on()
                async with asyncio.timeout(10):
                    await asyncio.to_thread(etcd.control, "put", "/a", "2")
                    assert (await following).revision == revision + 1

    asyncio.run(main())


async def _next(watch: AsyncIterator[EventBatch]) -> EventBatch:
    return await anext(watch)


def test_a_member_without_a_majority_serves_nothing_stale(etcd: EtcdCluster) -> None:
    """Two of three hang: the connected one has no leader, so its watch ends and moves on."""

    async def main() -> None:
        alone = etcd.followers()[0]
        others = [member for member in etcd.members if member is not alone]
        async with counting(etcd, etcd.members.index(alone)) as workload:
            for member in others:
                member.pause()
            await asyncio.sleep(3)
            count = len(workload.acknowledged)
            await asyncio.sleep(2)
            assert len(workload.acknowledged) == count
            for member in others:
                member.go_on()
            await workload.acknowledge(50)

    asyncio.run(main())


def test_every_member_restarts_and_the_session_survives(etcd: EtcdCluster) -> None:
    async def main() -> None:
        async with (
            store_of(etcd.endpoints) as store,
            KeptSession(store, 6, "/penstock/default/brokers/2").running() as kept,
            counting(etcd, 1) as workload,
        ):
            epoch = (await store.read(kept.key)).values[0].create_revision
            for member in etcd.members:
                await asyncio.to_thread(member.stop)
                await workload.acknowledge(30)
                etcd.restart(member)
                await asyncio.to_thread(etcd.wait)
                await workload.acknowledge(30)
            assert kept.losses == 0
            assert kept.renewals > 0
            (pair,) = (await store.read(kept.key)).values
            assert pair.create_revision == epoch

    asyncio.run(main())
