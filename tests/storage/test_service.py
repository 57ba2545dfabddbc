"""The asyncio door: rounds end to end, cold reads, duties, failures, a stop that finishes."""

import asyncio
import errno
import threading
from collections.abc import Callable, Coroutine

import pytest

from penstock.core.errors import LogDirectoryOfflineError, QuarantinedLogError
from penstock.core.types import TopicPartition
from penstock.storage.disk.disk_guard import DiskState
from penstock.storage.log.log_settings import FlushMode, LogSettings
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log_manager import LogManager
from penstock.storage.service import StorageService
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.logs import (
    PARTITION,
    SMALL,
    TOPIC_ID,
    Clock,
    batch,
    new_log,
    open_manager,
)


class Scene:
    """A service over a faulty memory disk, and its reports."""

    def __init__(
        self, settings: LogSettings = SMALL, flush_mode: FlushMode = FlushMode.ALWAYS
    ) -> None:
        self.disk = FaultyDisk(MemoryDisk())
        self.manager: LogManager
        self.manager, self.log = new_log(self.disk, settings, flush_mode=flush_mode)
        self.durable: list[int] = []
        self.failures: list[tuple[str, LogDirectoryOfflineError]] = []
        self.moved = asyncio.Event()
        self.service = StorageService(
            self.manager,
            Clock(),
            on_durable=self.on_durable,
            on_failure=self.on_failure,
        )
        self.service.start(asyncio.get_running_loop())

    def on_durable(self, logs: list[PartitionLog]) -> None:
        assert logs == [self.log]
        self.durable.append(self.log.durable_offset)
        self.moved.set()

    def on_failure(self, path: str, error: LogDirectoryOfflineError) -> None:
        self.failures.append((path, error))
        self.moved.set()

    def append(self, count: int = 1) -> None:
        for _ in range(count):
            self.log.append(batch(), leader_epoch=0)
            self.service.schedule_flush()

    async def next_report(self) -> None:
        await asyncio.wait_for(self.moved.wait(), 5)
        self.moved.clear()


def run(scene: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(scene())


def test_appends_of_one_iteration_share_a_round_on_the_thread() -> None:
    async def go() -> None:
        scene = Scene()
        scene.append(10)
        assert scene.durable == []
        await scene.next_report()
        assert scene.durable == [10]
        await scene.service.stop()

    run(go)


def test_a_lone_append_is_synced_at_the_end_of_the_iteration() -> None:
    async def go() -> None:
        scene = Scene()
        scene.append()
        await asyncio.sleep(0)
        assert scene.durable == [1]
        await scene.service.stop()

    run(go)


def test_what_comes_during_a_round_gets_the_next() -> None:
    async def go() -> None:
        scene = Scene()
        scene.append(2)
        await asyncio.sleep(0)
        scene.append(3)
        while scene.log.durable_offset < 5:
            await scene.next_report()
        assert scene.durable == [2, 5]
        await scene.service.stop()

    run(go)


@pytest.mark.parametrize("count", [1, 2])
def test_a_failed_sync_is_told_and_nothing_is_acknowledged_after(count: int) -> None:
    async def go() -> None:
        scene = Scene()
        scene.disk.fail_next("sync", errno.EIO)
        scene.append(count)
        await scene.next_report()
        assert [path for path, _ in scene.failures] == ["/data"]
        assert scene.durable == []
        with pytest.raises(LogDirectoryOfflineError):
            scene.append()
        scene.service._commit.report_failure(scene.manager.flushers[0].directory)
        assert len(scene.failures) == 1, "a failure is told once"
        await scene.service.stop()
        assert scene.durable == []

    run(go)


def test_a_stop_finishes_what_was_appended() -> None:
    async def go() -> None:
        scene = Scene()
        scene.append(2)
        await asyncio.sleep(0)
        scene.append(1)
        await scene.service.stop()
        assert scene.log.durable_offset == 3
        assert scene.durable[-1] == 3
        again = open_manager(scene.disk).get_log(PARTITION)
        assert again is not None
        assert again.end_offset == 3

    run(go)


@pytest.mark.parametrize("mode", [FlushMode.OS, FlushMode.INTERVAL])
def test_modes_that_sync_later_report_at_once(mode: FlushMode) -> None:
    async def go() -> None:
        scene = Scene(flush_mode=mode)
        scene.append(30)
        await asyncio.sleep(0)
        assert scene.durable == [30]
        await scene.service.flush_owed()
        await scene.service.stop()
        assert scene.log.synced_offset == 30

    run(go)


def test_cold_reads_run_on_a_thread_and_are_verified() -> None:
    async def go() -> None:
        scene = Scene(LogSettings(retention_ms=-1))
        scene.append(3)
        await scene.next_report()
        scene.disk.is_cold = True
        with pytest.raises(BlockingIOError):
            scene.log.read(0, 999, offset_limit=3, at_least_one=True, nowait=True)
        service, log = scene.service, scene.log
        answer = await service.read_cold(log, 0, 999, offset_limit=3, at_least_one=True)
        assert answer.next_offset == 3
        path = "/data/orders-0/00000000000000000000.log"
        scene.disk.open_file(path).write_at(b"damage", 70)
        with pytest.raises(QuarantinedLogError):
            await service.read_cold(log, 0, 999, offset_limit=3, at_least_one=True)
        with pytest.raises(QuarantinedLogError):
            log.read(0, 999, offset_limit=3, at_least_one=True, nowait=True)
        await service.stop()

    run(go)


def test_searches_run_on_a_thread() -> None:
    async def go() -> None:
        scene = Scene()
        scene.append(3)
        found = await scene.service.offset_for_timestamp(scene.log, 0)
        assert found is not None
        assert found.offset == 0
        highest = await scene.service.max_timestamp(scene.log)
        assert highest is not None
        assert highest.timestamp_ms == 1_000
        await scene.service.stop()

    run(go)


@pytest.mark.uncompiled
def test_no_room_for_a_small_file_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.storage.group_commit.FULL_RETRY_SECONDS", 0.001)

    async def go() -> None:
        scene = Scene()
        scene.append()
        scene.disk.fail_next("write", errno.ENOSPC)
        await scene.next_report()
        assert scene.durable == [1]
        assert not scene.failures
        await scene.service.stop()

    run(go)


def test_duties() -> None:
    async def go() -> None:
        scene = Scene(LogSettings(segment_bytes=300, retention_bytes=300))
        scene.append(20)
        await scene.next_report()
        await scene.service.checkpoint()
        assert scene.disk.read_file("/data/recovery-point-offset-checkpoint").endswith(b" 20\n")
        await scene.service.run_retention()
        assert scene.log.log_start_offset > 0
        await scene.service.sample_space()
        assert scene.service.disk_guard("/data").state is DiskState.OPEN
        scene.disk.bytes_left = 10
        await scene.service.sample_space()
        assert scene.service.disk_guard("/data").state is DiskState.FULL
        scene.disk.bytes_left = None
        await scene.service.stop()

    run(go)


def test_an_owed_sync_that_cannot_begin_is_told() -> None:
    async def go() -> None:
        scene = Scene(flush_mode=FlushMode.INTERVAL)
        scene.append()
        await asyncio.sleep(0)
        scene.disk.fail_next("open", errno.EIO)
        await scene.service.flush_owed()
        assert [path for path, _ in scene.failures] == ["/data"]
        await scene.service.stop()

    run(go)


def test_a_segment_that_retention_began_is_synced() -> None:
    async def go() -> None:
        scene = Scene(LogSettings(retention_ms=1))
        scene.append()
        await asyncio.sleep(0)
        assert not scene.log.is_dirty
        await scene.service.run_retention()
        assert len(scene.log.segments) == 2
        await asyncio.sleep(0)
        await scene.service._wait_between_rounds()
        assert not scene.log.is_dirty
        assert not scene.log.owes_sealed
        await scene.service.stop()

    run(go)


def test_retention_passes_over_a_log_whose_times_cannot_be_read() -> None:
    async def go() -> None:
        disk = FaultyDisk(MemoryDisk())
        settings = LogSettings(segment_bytes=300, index_interval_bytes=100, retention_ms=1)
        manager = open_manager(disk, settings)
        names = [TopicPartition("a", 0), TopicPartition("b", 0)]
        for name in names:
            made = manager.create_log(name, TOPIC_ID, settings)
            for _ in range(9):
                made.append(batch(), leader_epoch=0)
        manager.close()
        manager = open_manager(disk, settings)
        first, second = (manager.logs[name] for name in names)

        def hook(_operation: str, path: str) -> None:
            if path.startswith("/data/a-0/") and path.endswith(".timeindex"):
                raise OSError(errno.EIO, "injected", path)

        disk.hook = hook
        service = StorageService(
            manager, Clock(), on_durable=lambda _logs: None, on_failure=lambda _path, _error: None
        )
        service.start(asyncio.get_running_loop())
        await service.run_retention()
        assert first.log_start_offset == 0
        assert second.log_start_offset > 0
        disk.hook = None
        await service.run_retention()
        assert first.log_start_offset > 0
        await service.stop()

    run(go)


def damage_index(scene: Scene, base_offset: int) -> str:
    """Let the second entry of a segment's index lead astray."""
    path = f"/data/orders-0/{base_offset:020d}.index"
    scene.disk.open_file(path).write_at(bytes(7) + b"\x77", 8)
    return path


def test_the_index_of_the_growing_segment_is_rebuilt_on_the_loop() -> None:
    async def go() -> None:
        scene = Scene(LogSettings(index_interval_bytes=100, retention_ms=-1))
        scene.append(30)
        await scene.next_report()
        scene.log.active.finish()
        good = scene.disk.read_file("/data/orders-0/00000000000000000000.index")
        path = damage_index(scene, 0)
        writers: set[int] = set()

        def hook(operation: str, path_: str) -> None:
            if operation in ("write", "truncate") and path_ == path:
                writers.add(threading.get_ident())

        scene.disk.hook = hook
        with pytest.raises(BlockingIOError):
            scene.log.read(4, 99, offset_limit=30, at_least_one=True, nowait=True)
        found = await scene.service.read_cold(scene.log, 4, 99, offset_limit=30, at_least_one=True)
        assert found.first_offset == 4
        assert writers == {threading.get_ident()}
        assert scene.disk.read_file(path) == good
        await scene.service.stop()

    run(go)


def test_the_index_of_a_sealed_segment_is_rebuilt_by_one_thread() -> None:
    async def go() -> None:
        scene = Scene()
        scene.append(30)
        await scene.next_report()
        path = damage_index(scene, 0)
        locked: list[bool] = []

        def hook(operation: str, path_: str) -> None:
            if operation == "truncate" and path_ == path:
                locked.append(scene.log.rebuild_lock.locked())

        scene.disk.hook = hook
        reads = [
            scene.service.read_cold(scene.log, 4, 99, offset_limit=30, at_least_one=True)
            for _ in range(4)
        ]
        assert {found.first_offset for found in await asyncio.gather(*reads)} == {4}
        assert locked == [True], "the others found it done"
        await scene.service.stop()

    run(go)


def test_times_that_a_start_did_not_load_are_not_read_on_the_loop() -> None:
    """Guards the loop after a start: retention scanned segments without timestamps on it."""

    async def go() -> None:
        disk = FaultyDisk(MemoryDisk())
        manager, log = new_log(disk, SMALL)
        for _ in range(6):
            log.append(batch(timestamp_ms=-1), leader_epoch=0)
            log.roll()
        manager.flushers[0].sync_now()
        manager.close()
        manager = open_manager(disk, SMALL)
        service = StorageService(
            manager, Clock(), on_durable=lambda _: None, on_failure=lambda *_: None
        )
        service.start(asyncio.get_running_loop())
        readers: list[str] = []

        def hook(operation: str, path: str) -> None:
            if operation == "read" and path.endswith(".log"):
                readers.append(threading.current_thread().name)

        disk.hook = hook
        await service.run_retention()
        disk.hook = None
        await service.stop()
        assert readers
        assert all(name.startswith("storage-reads") for name in readers)

    run(go)
