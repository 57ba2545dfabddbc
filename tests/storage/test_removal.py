"""Files that go: segments, deleted logs, damaged logs, and names that are used again meanwhile."""

import asyncio
import errno
import threading
from uuid import UUID

import pytest

from penstock.core.errors import QuarantinedLogError
from penstock.core.types import TopicPartition
from penstock.storage.disk.checkpoint import RECOVERY_POINT_FILE, parse_offsets
from penstock.storage.disk.filesystem import FileSystem
from penstock.storage.log.log_settings import LogSettings
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
    let_go,
    new_log,
    open_manager,
    read_all,
    sync,
)

SHORT_LIVED = LogSettings(segment_bytes=200, index_interval_bytes=100, retention_ms=1_000)
LATER_MS = 1_000_000_000
LOG = "/data/orders-0/00000000000000000000.log"


def filled(disk: FileSystem) -> tuple[LogManager, PartitionLog]:
    """A log of ten segments, all but the last too old to stay."""
    manager, log = new_log(disk, SHORT_LIVED)
    for _ in range(10):
        log.append(batch(size=100), leader_epoch=0)
    sync(manager)
    return manager, log


def start_service(manager: LogManager, clock: Clock) -> StorageService:
    service = StorageService(
        manager, clock, on_durable=lambda _logs: None, on_failure=lambda _path, _error: None
    )
    service.start(asyncio.get_running_loop())
    return service


def test_retention_leaves_the_files_of_a_log_that_was_made_anew() -> None:
    disk = FaultyDisk(MemoryDisk())
    manager, log = filled(disk)
    detached = manager.detach_old_segments([log], LATER_MS)
    disk.bytes_left = 0
    waiting = manager.remove_segments(detached)
    assert waiting
    disk.bytes_left = None
    manager.delete_log(PARTITION)
    manager.purge_deleted()
    again = manager.create_log(PARTITION, UUID(int=1), SHORT_LIVED)
    again.append(batch(timestamp_ms=LATER_MS), leader_epoch=0)
    sync(manager)
    assert manager.remove_segments(waiting) == []
    assert LOG.rpartition("/")[2] in disk.list_directory("/data/orders-0")
    let_go(manager)
    loaded = open_manager(disk, SHORT_LIVED).get_log(PARTITION)
    assert loaded is not None
    assert loaded.end_offset == 1


def test_what_waits_to_be_removed_goes_with_its_log() -> None:
    async def go() -> None:
        disk, clock = FaultyDisk(MemoryDisk()), Clock()
        clock.ms = LATER_MS
        manager, _ = filled(disk)
        service = start_service(manager, clock)
        disk.bytes_left = 0
        await service.run_retention()
        assert service._unremoved
        await service.delete_logs([PARTITION])
        assert service._unremoved == []
        disk.bytes_left = None
        await service.stop()

    asyncio.run(go())


def test_a_deletion_waits_until_segments_are_removed() -> None:
    async def go() -> None:
        disk, clock = FaultyDisk(MemoryDisk()), Clock()
        clock.ms = LATER_MS
        manager, log = filled(disk)
        service = start_service(manager, clock)
        loop = asyncio.get_running_loop()
        removing, may_go_on = asyncio.Event(), threading.Event()

        def hook(operation: str, path: str) -> None:
            if (operation, path) == ("remove", LOG):
                loop.call_soon_threadsafe(removing.set)
                assert may_go_on.wait(5)

        disk.hook = hook
        retention = loop.create_task(service.run_retention())
        await asyncio.wait_for(removing.wait(), 5)
        deletion = loop.create_task(service.delete_logs([PARTITION]))
        for _ in range(5):
            await asyncio.sleep(0)
        assert manager.get_log(PARTITION) is log, "its files are being removed by their paths"
        may_go_on.set()
        await retention
        await deletion
        assert manager.get_log(PARTITION) is None
        await service.stop()

    asyncio.run(go())


def test_deleting_renames_on_a_worker() -> None:
    async def go() -> None:
        disk = FaultyDisk(MemoryDisk())
        manager, log = new_log(disk)
        log.append(batch(), leader_epoch=0)
        sync(manager)
        manager.checkpoint_recovery_points()
        service = start_service(manager, Clock())
        threads: set[int] = set()
        disk.hook = lambda _operation, _path: threads.add(threading.get_ident())
        await service.delete_logs([PARTITION])
        assert threads
        assert threading.get_ident() not in threads
        disk.hook = None
        assert parse_offsets(disk.read_file(f"/data/{RECOVERY_POINT_FILE}")) == {}
        await service.stop()

    asyncio.run(go())


class Taken(list[str]):
    """A queue as a worker sees it when another one is faster: not empty, then empty."""

    def __len__(self) -> int:
        return 1


def test_two_workers_may_purge_at_once() -> None:
    manager, log = new_log(MemoryDisk())
    log.append(batch(), leader_epoch=0)
    manager._directories[0].doomed = Taken()
    manager.purge_deleted()
    assert manager.get_log(PARTITION) is log
    assert log.append(batch(), leader_epoch=0).base_offset == 1


def test_a_full_disk_does_not_stop_a_deletion_and_the_name_is_clean_later() -> None:
    disk = FaultyDisk(MemoryDisk())
    manager, log = new_log(disk)
    for _ in range(20):
        log.append(batch(), leader_epoch=0)
    sync(manager)
    manager.checkpoint_recovery_points()
    disk.bytes_left = 0
    manager.delete_log(PARTITION)
    disk.bytes_left = None
    manager.create_log(PARTITION, UUID(int=1), SMALL).append(batch(), leader_epoch=0)
    sync(manager)
    let_go(manager)
    again = open_manager(disk).get_log(PARTITION)
    assert again is not None, "an old recovery point would look like damage"
    assert again.end_offset == 1


def damaged() -> tuple[MemoryDisk, LogManager]:
    """A manager whose only log has a flipped bit below its recovery point."""
    disk = MemoryDisk()
    manager, log = new_log(disk)
    for _ in range(5):
        log.append(batch(), leader_epoch=0)
    sync(manager)
    manager.checkpoint_recovery_points()
    let_go(manager)
    disk.find(LOG).data[150] ^= 0xFF
    manager = open_manager(disk)
    with pytest.raises(QuarantinedLogError):
        manager.get_log(PARTITION)
    return disk, manager


def test_deleting_a_damaged_log_frees_its_name_and_keeps_its_files() -> None:
    disk, manager = damaged()
    manager.delete_logs([PARTITION])
    assert manager.get_log(PARTITION) is None
    manager.create_log(PARTITION, UUID(int=1), SMALL).append(batch(), leader_epoch=0)
    sync(manager)
    manager.purge_deleted()
    assert "orders-0.0123456789abcdef-stray" in disk.list_directory("/data")
    assert manager.problems == []
    manager.close()
    assert ".kafka_cleanshutdown" in disk.list_directory("/data")
    again = open_manager(disk).get_log(PARTITION)
    assert again is not None
    assert again.end_offset == 1


def test_a_damaged_log_can_be_a_stray() -> None:
    disk, manager = damaged()
    assert manager.damaged_logs() == {PARTITION: TOPIC_ID}
    manager.set_aside([PARTITION])
    assert manager.damaged_logs() == {}
    assert "orders-0" not in disk.list_directory("/data")


def test_a_damaged_log_that_somebody_took_away_can_be_deleted() -> None:
    disk, manager = damaged()
    disk.rename("/data/orders-0", "/data/taken")
    manager.delete_logs([PARTITION])
    manager.create_log(PARTITION, UUID(int=1), SMALL)
    assert manager.flushers[0].directory.failure is None


def test_a_directory_in_the_way_costs_one_partition() -> None:
    disk = MemoryDisk()
    manager = open_manager(disk)
    disk.make_directory("/data/orders-0")
    disk.create_file("/data/orders-0/precious")
    with pytest.raises(QuarantinedLogError):
        manager.create_log(PARTITION, TOPIC_ID, SMALL)
    with pytest.raises(QuarantinedLogError):
        manager.get_log(PARTITION)
    assert disk.list_directory("/data/orders-0") == ["precious"]
    other = manager.create_log(TopicPartition("other", 0), TOPIC_ID, SMALL)
    other.append(batch(), leader_epoch=0)
    sync(manager)
    assert len(read_all(other)) > 0


def test_a_broken_rename_takes_the_directory_offline() -> None:
    disk = FaultyDisk(MemoryDisk())
    manager, _ = new_log(disk)
    disk.fail_next("rename", errno.EIO)
    with pytest.raises(Exception, match="offline"):
        manager.delete_log(PARTITION)
    assert manager.flushers[0].directory.failure is not None
