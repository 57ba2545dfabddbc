"""A swap that finds no room waits for it, and blocks no other work meanwhile."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from penstock.core.types import TopicPartition
from penstock.storage.compaction.log_cleaner import LogCleaner
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log_manager import LogManager
from penstock.storage.service import StorageService
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.compacted import COMPACTED, all_records, compacted_log, put, seal
from tests.storage.logs import PARTITION, Clock, open_manager, sync

OTHER = TopicPartition("other", 0)
DECIDING, FINISHING = ".log.swap", ".log"
"""What each half of a swap calls the new data file."""


class Scene:
    """A log whose swap finds no room, another log, and a cleaner that the test pauses."""

    def __init__(self, half: str) -> None:
        disk = FaultyDisk(MemoryDisk())
        self.manager = open_manager(disk, COMPACTED)
        self.log = filled(self.manager, PARTITION)
        self.other = filled(self.manager, OTHER)
        self.other.settings = replace(COMPACTED, compacts=False, retention_ms=1)
        self.service = StorageService(
            self.manager,
            Clock(),
            on_durable=lambda _logs: None,
            on_failure=lambda _path, _error: None,
        )
        self.service.start(asyncio.get_running_loop())
        self.is_full = True
        self.waits = asyncio.Event()
        self._room = asyncio.Event()

        def hook(operation: str, path: str) -> None:
            if self.is_full and operation == "rename" and path.endswith("0" + half):
                raise OSError(errno.ENOSPC, "no room")

        disk.hook = hook
        self._disk = disk
        service = self.service
        self._cleaner = LogCleaner(
            self.manager, Clock(), service._work, service._file_removal, self._rest
        )

    async def _rest(self, _seconds: float) -> None:
        if self.log.is_swapping:
            self.waits.set()
            await self._room.wait()

    def make_room(self) -> None:
        self.is_full = False
        self._room.set()

    async def clean(self) -> int:
        return await self._cleaner.clean_logs()

    def left_over(self) -> list[str]:
        return [
            name
            for name in self._disk.list_directory("/data/orders-0")
            if name.endswith((".cleaned", ".swap"))
        ]


def filled(manager: LogManager, partition: TopicPartition) -> PartitionLog:
    log = compacted_log(manager, partition=partition)
    for number in range(4):
        put(log, (b"a", b"%d" % number), (b"b", b"x" * 100))
        seal(manager, log)
    sync(manager)
    return log


def run_scene(half: str, story: Callable[[Scene, "asyncio.Task[int]"], Awaitable[None]]) -> None:
    async def go() -> None:
        scene = Scene(half)
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            cleaning = group.create_task(scene.clean())
            await scene.waits.wait()
            await story(scene, cleaning)
            scene.make_room()
        await scene.service.stop()

    asyncio.run(go())


@pytest.mark.parametrize("half", [DECIDING, FINISHING])
def test_others_are_removed_meanwhile_and_the_swap_is_finished_later(half: str) -> None:
    async def story(scene: Scene, cleaning: "asyncio.Task[int]") -> None:
        before = len(scene.other.segments)
        await scene.service.run_retention()
        assert len(scene.other.segments) < before
        await scene.service.delete_logs([OTHER])
        scene.make_room()
        assert await cleaning == 1
        assert [seen.value for seen in all_records(scene.log)] == [b"3", b"x" * 100]
        assert scene.left_over() == []
        assert not scene.log.is_swapping

    run_scene(half, story)


@pytest.mark.parametrize("half", [DECIDING, FINISHING])
def test_retention_leaves_the_log_alone_until_its_segments_are_exchanged(half: str) -> None:
    async def story(scene: Scene, cleaning: "asyncio.Task[int]") -> None:
        scene.log.settings = replace(COMPACTED, retention_ms=1)
        before = list(scene.log.segments)
        await scene.service.run_retention()
        assert scene.log.segments == before
        scene.make_room()
        await cleaning
        await scene.service.run_retention()
        assert len(scene.log.segments) == 1

    run_scene(half, story)


@pytest.mark.parametrize("half", [DECIDING, FINISHING])
def test_a_log_that_is_deleted_meanwhile_ends_the_swap(half: str) -> None:
    async def story(scene: Scene, cleaning: "asyncio.Task[int]") -> None:
        await scene.service.delete_logs([PARTITION])
        scene.make_room()
        await cleaning
        assert scene.manager.problems == []
        assert PARTITION not in scene.manager.logs
        assert scene.manager.home_of(OTHER).shared.failure is None

    run_scene(half, story)


@pytest.mark.parametrize("half", [DECIDING, FINISHING])
def test_a_truncation_waits_for_the_end_of_the_swap(
    half: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.storage.cut_runner._SWAP_RETRY_SECONDS", 0)

    async def story(scene: Scene, cleaning: "asyncio.Task[int]") -> None:
        async with asyncio.TaskGroup() as group:
            cutting = group.create_task(scene.service.truncate_log(PARTITION, 7))
            # As long as a disk is full: it may neither cut nor hold the lock.
            await scene.service.run_retention()
            assert not cutting.done()
            assert scene.log.end_offset == 8
            scene.make_room()
            await cleaning
        assert scene.log.end_offset == 6, "the batch that holds it goes"
        assert scene.left_over() == []
        scene.log.validate()

    run_scene(half, story)


def test_a_truncation_holds_the_lock_on_removal() -> None:
    async def go() -> None:
        scene = Scene(DECIDING)
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            async with scene.service._file_removal:
                cutting = group.create_task(scene.service.truncate_log(PARTITION, 6))
                await asyncio.sleep(0)
                assert scene.log.end_offset == 8
            await cutting
            assert scene.log.end_offset == 6
        await scene.service.stop()

    asyncio.run(go())
