"""Truncations and restarts from the loop: no file work there, one checkpoint, nothing half done."""

import asyncio
import errno
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace

import pytest

from penstock.core.errors import (
    DiskFullError,
    LogBusyError,
    LogDirectoryOfflineError,
    StorageError,
)
from penstock.core.types import TopicPartition
from penstock.storage.disk.data_directory import CLEAN_FILE
from penstock.storage.log.log_settings import FlushMode, LogSettings
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.service import StorageService
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from penstock.testing.recording_disk import Fate, RecordingDisk
from tests.storage.logs import (
    PARTITION,
    SMALL,
    TOPIC_ID,
    Clock,
    batch,
    new_log,
    open_manager,
    producer_batch,
    read_all,
)

OTHER = TopicPartition("other", 1)
POINTS = "recovery-point-offset-checkpoint"
THREE = replace(SMALL, segment_bytes=300)
"""Three batches in a segment."""


class Scene:
    """A service with two logs of ten batches, and a gate that file work can be stopped at."""

    def __init__(
        self, settings: LogSettings = THREE, flush_mode: FlushMode = FlushMode.ALWAYS
    ) -> None:
        self.recording = RecordingDisk()
        self.disk = FaultyDisk(self.recording)
        self.manager, self.log = new_log(self.disk, settings, flush_mode=flush_mode)
        self.other = self.manager.create_log(OTHER, TOPIC_ID, settings)
        self.service = StorageService(
            self.manager,
            Clock(),
            on_durable=lambda _logs: self.moved.set(),
            on_failure=lambda _path, _error: None,
        )
        self.moved = asyncio.Event()
        self.service.start(asyncio.get_running_loop())
        self.operations: list[tuple[str, str]] = []
        """Operations of threads other than the loop's."""
        self.on_loop: list[tuple[str, str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.stopped_at = ""
        self.reached = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    async def fill(self) -> None:
        for log in (self.log, self.other):
            for number in range(10):
                log.append(producer_batch(number), leader_epoch=number // 4)
        await self.flush()
        await self.service.checkpoint()
        self.disk.hook = self.note_operation

    async def flush(self) -> None:
        self.service.schedule_flush()
        async with asyncio.timeout(5):
            while self.log.synced_offset < self.log.end_offset:
                self.moved.clear()
                await self.moved.wait()

    def note_operation(self, operation: str, path: str) -> None:
        """Note an operation, and wait if it is the one to stop at."""
        is_loop = threading.get_ident() == self._thread
        (self.on_loop if is_loop else self.operations).append((operation, path))
        if self.stopped_at and (operation, path.rpartition("/")[2]) == (
            self.stopped_at.partition(" ")[0],
            self.stopped_at.partition(" ")[2],
        ):
            self._loop.call_soon_threadsafe(self.reached.set)
            self.gate.wait(5)

    def stop_at(self, operation: str) -> None:
        """Let file work wait before this operation, for example `truncate NAME`."""
        self.stopped_at = operation
        self.gate.clear()

    def written(self, name: str) -> int:
        return sum(
            path.endswith(name) for operation, path in self.operations if operation == "rename"
        )

    def loaded(self, partition: TopicPartition = PARTITION) -> PartitionLog:
        """The log as a power cut at this moment leaves it."""
        left = self.recording.after(len(self.recording.changes), Fate.LOST)
        again = open_manager(left, THREE)
        assert again.problems == []
        return again.logs[partition]


def run(story: Callable[[Scene], Coroutine[None, None, None]]) -> None:
    async def go() -> None:
        scene = Scene()
        await scene.fill()
        async with asyncio.timeout(10):
            await story(scene)
            await scene.service.stop()

    asyncio.run(go())


def test_a_truncation_does_no_file_work_on_the_loop() -> None:
    async def story(scene: Scene) -> None:
        await scene.service.truncate_log(PARTITION, 4)
        assert scene.on_loop == []
        log = scene.log
        log.validate()
        assert (log.end_offset, log.synced_offset, log.durable_offset) == (4, 4, 4)
        assert log.latest_epoch == 0
        assert len(log.producers.entries[7].batches) == 4
        assert log.append(producer_batch(4), leader_epoch=9).base_offset == 4
        await scene.flush()
        assert scene.loaded().end_offset == 5

    run(story)


def test_a_log_that_is_cut_is_busy_and_others_go_on() -> None:
    async def story(scene: Scene) -> None:
        scene.stop_at("truncate 00000000000000000003.log")
        # The flush that the checkpoint scheduled is over.
        await asyncio.sleep(0)
        scene.log.append(producer_batch(10), leader_epoch=3)
        async with asyncio.TaskGroup() as group:
            group.create_task(scene.service.truncate_log(PARTITION, 4))
            await scene.reached.wait()
            with pytest.raises(LogBusyError):
                scene.log.append(batch(), leader_epoch=3)
            with pytest.raises(LogBusyError):
                scene.log.read(0, 100, offset_limit=9, at_least_one=True, nowait=True)
            scene.other.append(batch(), leader_epoch=3)
            scene.service.schedule_flush()
            while scene.other.durable_offset < 11:
                scene.moved.clear()
                await scene.moved.wait()
            assert scene.log.synced_offset == 10, "the round left it out"
            await scene.service.checkpoint()
            assert scene.manager.home_of(PARTITION).recovery_points[PARTITION] == 4
            scene.gate.set()
        assert scene.log.end_offset == 4
        assert len(read_all(scene.log)) == 4 * len(producer_batch(0).buffer)

    run(story)


def test_many_logs_share_one_checkpoint() -> None:
    async def story(scene: Scene) -> None:
        errors = await scene.service.truncate_logs({PARTITION: 4, OTHER: 7})
        assert errors == {}
        assert scene.written(POINTS) == 1
        assert (scene.log.end_offset, scene.other.end_offset) == (4, 7)

    run(story)


def test_one_log_that_is_damaged_does_not_keep_the_others() -> None:
    async def story(scene: Scene) -> None:
        scene.log.problem = StorageError("damaged")
        errors = await scene.service.truncate_logs({PARTITION: 4, OTHER: 7})
        assert [str(error) for error in errors.values()] == ["damaged"]
        assert scene.other.end_offset == 7
        missing = TopicPartition("nothing", 0)
        with pytest.raises(StorageError, match="no log"):
            await scene.service.truncate_log(missing, 0)

    run(story)


def test_unsynced_records_below_the_cut_are_synced_by_the_next_round() -> None:
    async def story(scene: Scene) -> None:
        for number in range(10, 14):
            scene.log.append(producer_batch(number), leader_epoch=3)
        await scene.service.truncate_log(PARTITION, 12)
        assert scene.log.synced_offset <= scene.log.end_offset == 12
        await scene.flush()
        assert scene.loaded().end_offset == 12

    run(story)


def test_a_round_that_ends_during_the_wait_is_counted() -> None:
    async def story(scene: Scene) -> None:
        scene.stop_at("sync 00000000000000000009.log")
        for number in range(10, 13):
            scene.log.append(producer_batch(number), leader_epoch=3)
        scene.service.schedule_flush()
        await scene.reached.wait()
        async with asyncio.TaskGroup() as group:
            cut = group.create_task(scene.service.truncate_log(PARTITION, 4))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not cut.done()
            assert scene.log.end_offset == 13
            scene.gate.set()
        assert scene.log.end_offset == 4

    run(story)


@pytest.mark.parametrize("flush_mode", [FlushMode.INTERVAL, FlushMode.OS])
def test_modes_that_sync_later_forget_the_owed_work_of_the_cut(flush_mode: FlushMode) -> None:
    async def go() -> None:
        scene = Scene(flush_mode=flush_mode)
        for number in range(10):
            scene.log.append(producer_batch(number), leader_epoch=0)
        scene.service.schedule_flush()
        await asyncio.sleep(0)
        scene.disk.hook = scene.note_operation
        scene.stop_at("truncate 00000000000000000003.log")
        async with asyncio.TaskGroup() as group:
            group.create_task(scene.service.truncate_log(PARTITION, 4))
            await scene.reached.wait()
            await scene.service.flush_owed()
            assert not scene.log.is_flushing, "the round left it out"
            scene.gate.set()
        scene.log.validate()
        assert scene.log.durable_offset == scene.log.end_offset == 4
        await scene.service.flush_owed()
        scene.log.append(producer_batch(4), leader_epoch=0)
        await scene.service.stop()
        assert scene.loaded().end_offset == 5

    asyncio.run(go())


def test_a_cancelled_caller_leaves_no_half_cut_log() -> None:
    async def story(scene: Scene) -> None:
        scene.stop_at("truncate 00000000000000000003.log")
        async with asyncio.TaskGroup() as group:
            caller = group.create_task(scene.service.truncate_log(PARTITION, 4))
            await scene.reached.wait()
            caller.cancel()
            with suppress(asyncio.CancelledError):
                await caller
            with pytest.raises(LogBusyError):
                scene.log.refuse()
            scene.gate.set()
            # It holds the lock until its end.
            await scene.service.delete_logs([OTHER])
        scene.log.validate()
        scene.log.refuse()
        assert scene.log.end_offset == 4

    run(story)


def test_a_stop_waits_for_the_cut() -> None:
    async def story(scene: Scene) -> None:
        scene.stop_at("create recovery-point-offset-checkpoint.tmp")
        async with asyncio.TaskGroup() as group:
            group.create_task(scene.service.truncate_log(PARTITION, 4))
            await scene.reached.wait()
            stop = group.create_task(scene.service.stop())
            await asyncio.sleep(0)
            assert not stop.done()
            scene.gate.set()

    async def go() -> None:
        scene = Scene()
        await scene.fill()
        async with asyncio.timeout(10):
            await story(scene)
        assert scene.loaded().end_offset == 4

    asyncio.run(go())


@pytest.mark.parametrize("is_restart", [False, True])
def test_without_room_for_the_first_step_the_log_stays_as_it_was(*, is_restart: bool) -> None:
    async def story(scene: Scene) -> None:
        name = ".restart" if is_restart else POINTS + ".tmp"

        def hook(operation: str, path: str) -> None:
            if operation == "create" and path.endswith(name):
                raise OSError(errno.ENOSPC, "no room")

        scene.disk.hook = hook
        service, before = scene.service, read_all(scene.log)
        with pytest.raises(DiskFullError):
            await (service.restart_log if is_restart else service.truncate_log)(PARTITION, 4)
        assert read_all(scene.log) == before
        scene.log.append(producer_batch(10), leader_epoch=3)
        await scene.flush()
        assert scene.log.durable_offset == 11
        scene.disk.hook = None
        await service.truncate_log(PARTITION, 4)
        assert scene.log.end_offset == 4

    run(story)


@pytest.mark.parametrize("is_restart", [False, True])
def test_an_error_in_the_middle_takes_the_directory_offline(*, is_restart: bool) -> None:
    async def story(scene: Scene) -> None:
        def hook(operation: str, path: str) -> None:
            if operation == "remove" and path.endswith(".log"):
                raise OSError(errno.EIO, "gone")

        scene.disk.hook = hook
        service = scene.service
        with pytest.raises(LogDirectoryOfflineError):
            await (service.restart_log if is_restart else service.truncate_log)(PARTITION, 2)
        with pytest.raises(LogDirectoryOfflineError):
            scene.log.append(batch(), leader_epoch=0)
        scene.disk.hook = None

    run(story)


def test_a_wrong_index_does_not_keep_a_log_from_being_cut() -> None:
    async def go() -> None:
        scene = Scene(replace(SMALL, segment_bytes=100_000, index_interval_bytes=50))
        await scene.fill()
        data = bytearray(scene.log.active.offset_index.read_all())
        assert len(data) > 32
        for start in range(0, len(data), 8):
            data[start + 7] ^= 1
        scene.log.active.offset_index._pending[:] = data
        await scene.service.truncate_log(PARTITION, 6)
        assert scene.log.end_offset == 6
        await scene.service.stop()
        assert scene.loaded().end_offset == 6

    asyncio.run(go())


def test_the_index_of_a_segment_that_is_cut_is_cut_on_the_disk_too() -> None:
    async def go() -> None:
        scene = Scene(replace(THREE, index_interval_bytes=10))
        await scene.fill()
        await scene.service.truncate_log(PARTITION, 4)
        left = scene.recording.after(len(scene.recording.changes), Fate.LOST)
        for name, size in (("index", 0), ("timeindex", 0)):
            path = f"/data/orders-0/00000000000000000003.{name}"
            assert left.file_size(path) == size
        await scene.service.stop()

    asyncio.run(go())


# --- Restarts ---


@pytest.mark.parametrize("offset", [0, 3, 10, 5_000])
def test_a_restarted_log_is_empty_and_begins_at_the_offset(offset: int) -> None:
    async def story(scene: Scene) -> None:
        log = scene.log
        await scene.service.restart_log(PARTITION, offset)
        assert scene.on_loop == []
        log.validate()
        assert (log.log_start_offset, log.end_offset, log.synced_offset) == (offset,) * 3
        assert (log.latest_epoch, log.producers.entries, log.high_watermark) == (-1, {}, offset)
        found = scene.loaded()
        assert (found.log_start_offset, found.end_offset) == (offset, offset)
        assert log.append(producer_batch(0), leader_epoch=7).base_offset == offset
        await scene.flush()
        assert scene.loaded().end_offset == offset + 1

    run(story)


def test_a_truncation_below_the_start_restarts_the_log() -> None:
    async def story(scene: Scene) -> None:
        scene.log.advance_start(6)
        await scene.service.truncate_log(PARTITION, 2)
        assert (scene.log.log_start_offset, scene.log.end_offset) == (2, 2)

    run(story)


def test_a_log_that_never_had_a_record_can_be_restarted() -> None:
    async def story(scene: Scene) -> None:
        fresh = TopicPartition("fresh", 0)
        log = scene.manager.create_log(fresh, TOPIC_ID, SMALL)
        await scene.service.restart_log(fresh, 70)
        assert log.topic_id == TOPIC_ID
        assert ("sync", "/data/fresh-0/partition.metadata") in scene.operations
        assert not log.owes_sync
        assert scene.loaded(fresh).end_offset == 70
        assert scene.loaded(fresh).topic_id == TOPIC_ID

    run(story)


def test_segments_that_retention_could_not_remove_do_not_take_new_files_with_them() -> None:
    async def story(scene: Scene) -> None:
        def hook(operation: str, path: str) -> None:
            if operation == "create" and "log-start-offset" in path:
                raise OSError(errno.ENOSPC, "no room")

        scene.disk.hook = hook
        scene.log.settings = replace(THREE, retention_bytes=0)
        while not scene.service._unremoved:
            # Nothing can be deleted until a snapshot of the producers is stored, after the flush.
            await scene.service.run_retention()
        scene.disk.hook = None
        scene.log.settings = THREE
        await scene.service.restart_log(PARTITION, 0)
        scene.log.append(producer_batch(0), leader_epoch=7)
        await scene.flush()
        await scene.service.run_retention()
        assert scene.disk.file_size("/data/orders-0/00000000000000000000.log")
        assert scene.loaded().end_offset == 1

    run(story)


def test_a_log_that_is_half_cut_at_the_stop_makes_the_stop_unclean() -> None:
    disk = MemoryDisk()
    manager, log = new_log(disk)
    log.append(batch(), leader_epoch=0)
    manager.flushers[0].sync_now()
    manager.home_of(PARTITION).unsettled.add(log)
    manager.close()
    assert CLEAN_FILE not in disk.list_directory("/data")
    assert PARTITION not in manager.home_of(PARTITION).recovery_points
