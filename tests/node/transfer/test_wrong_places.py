"""A transfer of the wrong directory, or of the remains of another attempt, is refused."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import pytest

from penstock.cluster import values
from penstock.cluster.image import BrokerImage, Endpoint
from penstock.cluster.keys import Keys
from penstock.cluster.link.membership import Membership
from penstock.cluster.link.transfer_mark import TransferRefusedError
from penstock.cluster.stores.port import Delete, Put
from penstock.core.types import PLAINTEXT
from penstock.node.transfer.directory_state import look_at_directory
from penstock.node.transfer.exporting import export_cluster
from penstock.node.transfer.importing import import_directory
from penstock.node.transfer.settling import settle_at_start
from penstock.storage.disk.filesystem import DiskFileSystem
from penstock.testing.memory_store import MemoryMetadataStore
from tests.node.transfer.transfer_scene import (
    KEYS,
    ROOT,
    Crash,
    CrashingDisk,
    CrashingStore,
    Directory,
    Points,
    loaded,
    state,
)

TARGET = Keys(ROOT)
FIRST, SECOND = "/penstock/a/", "/penstock/b/"
LAST_ALONE = 12
"""The last point of an import before its decision, as in the tests of crashes."""
LATER = UUID(int=77)
Body = Callable[[Directory, MemoryMetadataStore], Awaitable[None]]


def run(tmp_path: Path, body: Body) -> None:
    async def main() -> None:
        await body(await Directory(tmp_path / "d").fill(), MemoryMetadataStore())

    asyncio.run(main())


def member(store: MemoryMetadataStore, directory: str) -> Membership:
    endpoint = Endpoint(PLAINTEXT, "localhost", 9092)
    return Membership(store, TARGET, BrokerImage(1, (endpoint,), None, directory, 0))


async def never(_seconds: float) -> None:
    raise AssertionError("a wrong directory is refused without a wait")


async def refused_export(
    directory: Directory, store: MemoryMetadataStore, text: str, root: str = ROOT
) -> None:
    """Check that an export is refused, and changes neither the store nor the directory."""
    names, before = directory.names(), (await store.read_prefix("/")).values
    disk = DiskFileSystem()
    for only_checks in (True, False):
        with pytest.raises(TransferRefusedError, match=text):
            await export_cluster(
                disk, directory.path, store, root, only_checks=only_checks, sleep=never
            )
    assert directory.names() == names
    assert (await store.read_prefix("/")).values == before
    assert not await directory.starts_alone()


@pytest.mark.parametrize("is_running", [True, False])
def test_the_former_disk_of_a_broker_is_not_exported(tmp_path: Path, is_running: bool) -> None:
    """The broker has got an empty disk since, and all records are there."""

    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        await directory.import_(store)
        running = member(store, "new-directory")
        await running.join()
        if not is_running:
            await store.end_session(running.session)
        await refused_export(directory, store, "broker 1 used new-directory as its last")

    run(tmp_path, body)


def test_a_directory_that_never_registered_is_not_exported(tmp_path: Path) -> None:
    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        await directory.import_(store)
        await store.transact((), (Delete(TARGET.node(1)),))
        await refused_export(directory, store, "broker 1 has not used a data directory")

    run(tmp_path, body)


def test_a_disk_that_is_replaced_during_an_export_is_noticed(tmp_path: Path) -> None:
    """The broker comes and goes after the first look and before the key `transfer`."""

    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        await directory.import_(store)
        transact = store.transact

        async def late(*given: object, **more: object) -> object:
            store.transact = transact  # type: ignore[method-assign]
            await transact((), (Put(TARGET.node(1), values.write_node("new-directory")),))
            return await transact(*given, **more)  # type: ignore[arg-type]

        store.transact = late  # type: ignore[assignment,method-assign]
        with pytest.raises(TransferRefusedError, match="used new-directory as its last"):
            await directory.export(store)
        assert not (await store.read(TARGET.transfer())).values
        assert (await store.read(TARGET.cluster_id())).values
        assert not await directory.starts_alone()

    run(tmp_path, body)


def test_a_check_does_not_call_a_copy_of_a_running_broker_possible(tmp_path: Path) -> None:
    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        await directory.import_(store)
        await member(store, "directory").join()
        before = (await store.read_prefix("/")).values

        async def sleep(_seconds: float) -> None:
            return

        with pytest.raises(TransferRefusedError, match="is a copy of its data directory") as error:
            await export_cluster(
                DiskFileSystem(), directory.path, store, ROOT, only_checks=True, sleep=sleep
            )
        assert "Stop it" in error.value.hint
        assert (await store.read_prefix("/")).values == before

    run(tmp_path, body)


# --- The remains of another attempt ---


async def interrupted_import(
    directory: Directory, store: MemoryMetadataStore, root: str, at: int = LAST_ALONE
) -> None:
    points = Points(at)
    with pytest.raises(Crash):
        await import_directory(
            CrashingDisk(points),
            directory.path,
            CrashingStore(store, points),
            root,
            only_checks=False,
        )


async def import_elsewhere(directory: Directory, store: MemoryMetadataStore) -> None:
    """Import into the second root, with a topic that the remains below the first one lack."""
    await interrupted_import(directory, store, FIRST)
    topic = values.write_topic(values.TopicValue(LATER, 1))
    await directory.put({KEYS.topic("later"): topic, KEYS.partition(LATER, 0): state()})
    disk = DiskFileSystem()
    await import_directory(disk, directory.path, store, SECOND, only_checks=False)


def test_the_remains_of_an_earlier_import_are_not_published(tmp_path: Path) -> None:
    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        await import_elsewhere(directory, store)
        before = (await store.read_prefix("/")).values
        disk = DiskFileSystem()
        for work in (
            settle_at_start(disk, directory.path, store, FIRST),
            import_directory(disk, directory.path, store, FIRST, only_checks=False),
        ):
            with pytest.raises(TransferRefusedError, match=f"is in etcd below {SECOND}") as error:
                await work
            assert "cluster.name" in error.value.hint
        assert (await store.read_prefix("/")).values == before
        await settle_at_start(disk, directory.path, store, SECOND)
        assert "later" in (await loaded(store, Keys(SECOND))).topics

    run(tmp_path, body)


def test_the_remains_of_an_earlier_import_are_not_exported(tmp_path: Path) -> None:
    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        await import_elsewhere(directory, store)
        await refused_export(directory, store, f"is in etcd below {SECOND}", FIRST)
        # Alone again, the broker removes both.
        disk = DiskFileSystem()
        for root in (SECOND, FIRST):
            await export_cluster(disk, directory.path, store, root, only_checks=False)
        assert "later" in (await directory.image()).topics
        assert not (await store.read_prefix("/")).values

    run(tmp_path, body)


def test_the_attempt_of_a_copy_is_not_published(tmp_path: Path) -> None:
    """It is below the same root, and has replaced an import that was decided about."""

    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        copy = directory.copied(tmp_path / "copy")
        await interrupted_import(directory, store, ROOT, LAST_ALONE + 1)
        await interrupted_import(copy, store, ROOT, 4)
        disk = DiskFileSystem()
        for work in (
            settle_at_start(disk, directory.path, store, ROOT),
            directory.import_(store),
            directory.export(store),
        ):
            with pytest.raises(TransferRefusedError, match="a copy of this data directory"):
                await work
        assert not (await store.read(TARGET.cluster_id())).values

    run(tmp_path, body)


def test_an_old_copy_does_not_end_a_cluster(tmp_path: Path) -> None:
    """It is from before the import, and an export of the newer directory was interrupted."""

    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        old = directory.copied(tmp_path / "old")
        await directory.import_(store)
        points = Points(2)
        with pytest.raises(Crash):
            await directory.export(CrashingStore(store, points), CrashingDisk(points))
        before = (await store.read_prefix("/")).values
        for work in (old.export, old.import_):
            for only_checks in (True, False):
                with pytest.raises(TransferRefusedError, match="a copy of that data directory"):
                    await work(store, only_checks=only_checks)
        assert (await store.read_prefix("/")).values == before
        assert await directory.starts_in_cluster(store)

    run(tmp_path, body)


def test_the_directory_names_the_transfer_that_it_decided_about(tmp_path: Path) -> None:
    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        nonces = set()
        for work in (directory.import_, directory.export):
            await work(store)
            found = look_at_directory(DiskFileSystem(), directory.path)
            assert found.decided_root == ROOT
            nonces.add(found.decided_nonce)
        assert len(nonces - {None}) == 2

    run(tmp_path, body)


def test_the_warning_about_replicas_says_when_produces_are_rejected(tmp_path: Path) -> None:
    """With one replica they are accepted: Kafka asks for no more than there are."""

    async def body(directory: Directory, store: MemoryMetadataStore) -> None:
        settings = values.write_settings({"min.insync.replicas": "2"})
        await directory.put({KEYS.topic_settings("a.b"): settings})
        (warning,) = (await directory.import_(store, only_checks=True)).warnings
        assert "with one replica, a produce with acks=all is accepted" in warning
        assert "while replicas are added, it is rejected (NOT_ENOUGH_REPLICAS)" in warning

    run(tmp_path, body)
