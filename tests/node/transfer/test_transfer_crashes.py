"""A crash at any point of an import or an export leaves one way to start, and can be repeated."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock.cluster.keys import Keys
from penstock.cluster.link.transfer_mark import TransferRefusedError
from penstock.cluster.stores.port import MetadataStore
from penstock.node.transfer.importing import TransferReport
from penstock.node.transfer.settling import settle_at_start
from penstock.storage.disk.filesystem import DiskFileSystem
from penstock.testing.memory_store import MemoryMetadataStore
from tests.node.transfer.transfer_scene import (
    CLUSTER_ID,
    DOTTED,
    ROOT,
    Crash,
    CrashingDisk,
    CrashingStore,
    Directory,
    Points,
    copied,
    loaded,
)

Work = Callable[[Directory, MetadataStore, DiskFileSystem], Awaitable[TransferReport]]


def importing(
    directory: Directory, store: MetadataStore, disk: DiskFileSystem
) -> Awaitable[TransferReport]:
    return directory.import_(store, disk)


def exporting(
    directory: Directory, store: MetadataStore, disk: DiskFileSystem
) -> Awaitable[TransferReport]:
    return directory.export(store, disk)


async def prepared(path: Path, work: Work) -> tuple[Directory, MemoryMetadataStore]:
    """Return a directory and a store before the work."""
    directory, store = await Directory(path).fill(), MemoryMetadataStore()
    if work is exporting:
        await directory.import_(store)
    return directory, store


def points_of(path: Path, work: Work) -> int:
    """Return the number of points of an undisturbed transfer."""

    async def main() -> int:
        directory, store = await prepared(path, work)
        points = Points()
        await work(directory, CrashingStore(store, points), CrashingDisk(points))
        return points.passed

    return asyncio.run(main())


async def crash(directory: Directory, store: MemoryMetadataStore, work: Work, at: int) -> None:
    points = Points(at)
    with pytest.raises(Crash):
        await work(directory, CrashingStore(store, points), CrashingDisk(points))


async def check_one_way(directory: Directory, store: MemoryMetadataStore, path: Path) -> bool:
    """Check that the broker starts in one way only; return whether that is alone."""
    alone = await directory.starts_alone()
    same, same_store = directory.copied(path / "copy"), copied(store)
    assert await same.starts_in_cluster(same_store) is not alone
    # Another broker neither founds a second cluster nor joins the remains of this one.
    other = path / "other"
    other.mkdir()
    if (await store.read(Keys(ROOT).transfer())).values:
        with pytest.raises(TransferRefusedError, match="broker 1"):
            await settle_at_start(DiskFileSystem(), str(other), store, ROOT)
    else:
        image = await loaded(store, Keys(ROOT))
        assert image.cluster_id == ("" if alone else CLUSTER_ID)
    return alone


IMPORT_POINTS = 22
EXPORT_POINTS = 14
LAST_ALONE = 12
"""The last point of an import before its decision: before the rename of `meta.properties`."""
LAST_IN_CLUSTER = 6
"""The same of an export."""


def test_the_points_are_all_that_there_are(tmp_path: Path) -> None:
    """The numbers below are those of the code: a new step gets its crashes."""
    assert points_of(tmp_path / "import", importing) == IMPORT_POINTS
    assert points_of(tmp_path / "export", exporting) == EXPORT_POINTS


@pytest.mark.parametrize("at", range(IMPORT_POINTS))
def test_a_crash_of_an_import(tmp_path: Path, at: int) -> None:
    async def main() -> None:
        directory, store = await prepared(tmp_path / "d", importing)
        await crash(directory, store, importing, at)
        assert await check_one_way(directory, store, tmp_path) is (at <= LAST_ALONE)
        # The command is repeated.
        await directory.import_(store)
        assert not await directory.starts_alone()
        assert await directory.starts_in_cluster(store)
        image = await loaded(store, Keys(ROOT))
        assert image.partition_count == 232
        since = image.nodes[1].revision
        assert all(
            partition.isr_epochs == (since,)
            for topic in image.topics.values()
            for partition in topic.partitions
        )

    asyncio.run(main())


@pytest.mark.parametrize("at", range(EXPORT_POINTS))
def test_a_crash_of_an_export(tmp_path: Path, at: int) -> None:
    async def main() -> None:
        directory, store = await prepared(tmp_path / "d", exporting)
        await crash(directory, store, exporting, at)
        assert await check_one_way(directory, store, tmp_path) is (at > LAST_IN_CLUSTER)
        await directory.export(store)
        assert await directory.starts_alone()
        assert not (await store.read_prefix(ROOT)).values
        assert not await directory.starts_in_cluster(store)

    asyncio.run(main())


@pytest.mark.parametrize("at", range(EXPORT_POINTS))
def test_an_import_after_a_crash_of_an_export(tmp_path: Path, at: int) -> None:
    """The administrator changes the decision."""

    async def main() -> None:
        directory, store = await prepared(tmp_path / "d", exporting)
        await crash(directory, store, exporting, at)
        await directory.import_(store)
        assert not await directory.starts_alone()
        assert await directory.starts_in_cluster(store)

    asyncio.run(main())


@pytest.mark.parametrize("at", range(IMPORT_POINTS))
def test_an_export_after_a_crash_of_an_import(tmp_path: Path, at: int) -> None:
    async def main() -> None:
        directory, store = await prepared(tmp_path / "d", importing)
        await crash(directory, store, importing, at)
        await directory.export(store)
        assert await directory.starts_alone()
        assert not (await store.read_prefix(ROOT)).values

    asyncio.run(main())


def test_changes_after_a_crash_are_imported(tmp_path: Path) -> None:
    """The broker starts alone after the crash, and the repeated import has its newest metadata."""

    async def main() -> None:
        directory, store = await prepared(tmp_path / "d", importing)
        # The last point before the decision: all keys are in the store.
        await crash(directory, store, importing, LAST_ALONE)
        assert await directory.starts_alone()
        keys = Keys()
        await directory.put({keys.producer_ids(): b'{"v":1,"next":9000}'})
        await directory.delete(keys.topic("a.b"), keys.partition(DOTTED, 0), keys.name("a_b"))
        await directory.import_(store)
        image = await loaded(store, Keys(ROOT))
        assert image.next_producer_id == 9000
        assert set(image.topics) == {"orders", "old_one"}
        assert not image.unpublished

    asyncio.run(main())
