"""Too few descriptors or too little memory: work waits or is rejected, and nothing dies."""

import asyncio
import errno

import pytest

from penstock.core.errors import DiskFullError, LogDirectoryOfflineError
from penstock.core.types import TopicPartition
from penstock.storage.flusher import Flusher
from penstock.storage.log.log_settings import FlushMode, LogSettings
from penstock.storage.log_manager import LogManager
from penstock.storage.service import StorageService
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.logs import PARTITION, SMALL, TOPIC_ID, Clock, batch, new_log, open_manager, sync

SHORTAGES = [errno.EMFILE, errno.ENFILE, errno.ENOMEM]
ONE_SEGMENT = LogSettings(retention_ms=-1)


def make_round(flusher: Flusher) -> bool:
    """One round; whether it had to give up for a shortage."""
    flush_round = flusher.begin_round()
    flusher.execute(flush_round)
    flusher.complete_round(flush_round)
    return flush_round.is_full


@pytest.mark.parametrize("number", SHORTAGES)
@pytest.mark.parametrize("operation", ["make_directory", "create"])
def test_a_log_that_cannot_be_opened_is_refused_and_leaves_nothing(
    operation: str, number: int
) -> None:
    disk = FaultyDisk(MemoryDisk())
    manager = open_manager(disk)
    disk.fail_next(operation, number)
    with pytest.raises(DiskFullError):
        manager.create_log(PARTITION, TOPIC_ID, SMALL)
    assert "orders-0" not in disk.list_directory("/data")
    manager.create_log(PARTITION, TOPIC_ID, SMALL).append(batch(), leader_epoch=0)


@pytest.mark.parametrize("number", SHORTAGES)
def test_an_append_that_cannot_open_its_file_is_refused_and_the_log_lives(number: int) -> None:
    disk = FaultyDisk(MemoryDisk())
    manager, log = new_log(disk, ONE_SEGMENT)
    log.append(batch(), leader_epoch=0)
    sync(manager)
    log.active.close()
    disk.failures["open"] = [number, number]
    for _ in range(2):
        with pytest.raises(DiskFullError):
            log.append(batch(), leader_epoch=0)
    assert log.append(batch(), leader_epoch=0).base_offset == 1
    log.validate()


def test_a_roll_that_cannot_open_its_file_is_tried_again() -> None:
    disk = FaultyDisk(MemoryDisk())
    manager, log = new_log(disk, LogSettings(segment_bytes=200, retention_ms=-1))
    log.append(batch(size=100), leader_epoch=0)
    # Both indexes are created when the segment is sealed, then the next segment.
    for successes in range(3):
        numbers = iter([*[0] * successes, errno.EMFILE])

        def hook(operation: str, _path: str, numbers: "object" = numbers) -> None:
            if operation == "create" and next(numbers, 0):  # type: ignore[call-overload]
                raise OSError(errno.EMFILE, "injected")

        disk.hook = hook
        with pytest.raises(DiskFullError):
            log.append(batch(size=100), leader_epoch=0)
        disk.hook = None
        assert log.append(batch(size=100), leader_epoch=0).base_offset == successes + 1
        log.validate()
    sync(manager)
    assert log.durable_offset == 4


def test_a_write_for_which_there_is_no_memory_is_cut_off() -> None:
    disk = FaultyDisk(MemoryDisk())
    _, log = new_log(disk, ONE_SEGMENT)
    log.append(batch(), leader_epoch=0)
    disk.write_bytes_max = 10
    writes = iter([False, True])

    def hook(operation: str, _path: str) -> None:
        if operation == "write" and next(writes, False):
            raise OSError(errno.ENOMEM, "injected")

    disk.hook = hook
    with pytest.raises(DiskFullError):
        log.append(batch(), leader_epoch=0)
    assert disk.file_size("/data/orders-0/00000000000000000000.log") == log.active.size


@pytest.mark.parametrize("operation", ["open", "create", "sync_directory"])
def test_a_round_that_cannot_open_something_is_owed_again(operation: str) -> None:
    disk = FaultyDisk(MemoryDisk())
    manager, log = new_log(disk, ONE_SEGMENT)
    log.append(batch(), leader_epoch=0)
    disk.fail_next(operation, errno.EMFILE)
    flusher = manager.flushers[0]
    assert make_round(flusher)
    assert (log.durable_offset, log.is_dirty) == (0, True)
    assert flusher.directory.dirty == [log]
    log.append(batch(), leader_epoch=0)
    disk.operations.clear()
    assert not make_round(flusher)
    assert log.durable_offset == 2
    synced = [path for name, path in disk.operations if name.startswith("sync")]
    for path in ("00000000000000000000.log", "partition.metadata"):
        assert f"/data/orders-0/{path}" in synced
    assert "/data" in synced
    log.validate()


def test_a_failed_sync_is_final_whatever_its_number() -> None:
    disk = FaultyDisk(MemoryDisk())
    manager, log = new_log(disk, ONE_SEGMENT)
    log.append(batch(), leader_epoch=0)
    sync(manager)
    log.append(batch(), leader_epoch=0)
    disk.fail_next("sync", errno.ENOMEM)
    with pytest.raises(LogDirectoryOfflineError):
        sync(manager)


def test_an_owed_round_that_cannot_open_something_is_owed_again() -> None:
    disk = FaultyDisk(MemoryDisk())
    manager, log = new_log(disk, ONE_SEGMENT, flush_mode=FlushMode.INTERVAL)
    log.append(batch(), leader_epoch=0)
    flusher = manager.flushers[0]
    disk.fail_next("open", errno.EMFILE)
    assert flusher.begin_owed_round() is None
    flush_round = flusher.begin_owed_round()
    assert flush_round is not None
    flusher.execute(flush_round)
    flusher.complete_round(flush_round)
    assert log.synced_offset == 1


def small_manager(disk: FaultyDisk, files_open_max: int) -> LogManager:
    manager = LogManager(disk, ["/data"], Clock(), files_open_max=files_open_max)
    manager.start(lambda _topic: SMALL)
    return manager


def test_a_round_and_a_stop_hold_a_bounded_number_of_files() -> None:
    async def go() -> None:
        disk = FaultyDisk(MemoryDisk())
        manager = small_manager(disk, 8)
        service = StorageService(
            manager, Clock(), on_durable=lambda _logs: None, on_failure=lambda _path, _error: None
        )
        service.start(asyncio.get_running_loop())
        logs = [
            manager.create_log(TopicPartition("t", number), TOPIC_ID, SMALL) for number in range(20)
        ]
        for log in logs:
            log.append(batch(), leader_epoch=0)
        flush_round = manager.flushers[0].begin_round()
        assert sum(len(job.files) for job in flush_round.jobs) <= 8
        manager.flushers[0].execute(flush_round)
        manager.flushers[0].complete_round(flush_round)
        assert 0 < sum(log.durable_offset for log in logs) < 20
        await service.stop()
        assert [log.durable_offset for log in logs] == [1] * 20

    asyncio.run(go())


def test_a_shortage_is_retried_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.storage.group_commit.FULL_RETRY_SECONDS", 0.001)

    async def go() -> None:
        disk = FaultyDisk(MemoryDisk())
        manager, log = new_log(disk, ONE_SEGMENT)
        moved = asyncio.Event()
        service = StorageService(
            manager,
            Clock(),
            on_durable=lambda _logs: moved.set(),
            on_failure=lambda _path, _error: moved.set(),
        )
        service.start(asyncio.get_running_loop())
        disk.failures["open"] = [errno.EMFILE]
        log.append(batch(), leader_epoch=0)
        service.schedule_flush()
        await asyncio.wait_for(moved.wait(), 5)
        assert log.durable_offset == 1
        await service.checkpoint()
        disk.failures["create"] = [errno.EMFILE]
        log.append(batch(), leader_epoch=0)
        sync(manager)
        await service.checkpoint()
        assert manager.flushers[0].directory.failure is None
        await service.stop()

    asyncio.run(go())


def test_retention_and_deletion_wait_for_descriptors() -> None:
    disk = FaultyDisk(MemoryDisk())
    settings = LogSettings(segment_bytes=200, retention_bytes=300)
    manager, log = new_log(disk, settings)
    for _ in range(5):
        log.append(batch(size=100), leader_epoch=0)
    sync(manager)
    detached = manager.detach_old_segments([log], 0)
    disk.fail_next("create", errno.EMFILE)
    waiting = manager.remove_segments(detached)
    assert waiting
    assert manager.remove_segments(waiting) == []
    disk.failures = {"create": [errno.EMFILE], "sync_directory": [errno.EMFILE]}
    manager.delete_log(PARTITION)
    assert manager.flushers[0].directory.failure is None
