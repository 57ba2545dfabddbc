"""Open files: those with unsynced writes stay open, or an error of the writeback would be lost.

Linux reports a failed writeback once, to descriptors that are open. A file that is closed between
its write and its sync may never hear of it: the inode leaves memory, and with it the error.
"""

import errno

from penstock.core.clock import SystemClock
from penstock.core.types import TopicPartition
from penstock.storage.disk.open_files import OpenFiles
from penstock.storage.log.log_settings import FlushMode, LogSettings
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log_manager import LogManager
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.logs import TOPIC_ID, batch

SETTINGS = LogSettings(retention_ms=-1)
FILES_MAX = 2


def crowded(
    mode: FlushMode = FlushMode.ALWAYS, count: int = 6
) -> tuple[FaultyDisk, LogManager, list[PartitionLog]]:
    """Logs that share a table of open files that is too small for them."""
    disk = FaultyDisk(MemoryDisk())
    manager = LogManager(disk, ["/data"], SystemClock(), flush_mode=mode, files_open_max=FILES_MAX)
    manager.start(lambda _topic: SETTINGS)
    logs = [
        manager.create_log(TopicPartition("many", number), TOPIC_ID, SETTINGS)
        for number in range(count)
    ]
    for log in logs:
        log.append(batch(), leader_epoch=0)
    while manager.flushers[0].directory.dirty:
        manager.flushers[0].sync_now()
    return disk, manager, logs


def opened(disk: FaultyDisk) -> list[str]:
    return [path for name, path in disk.operations if name == "open" and path.endswith(".log")]


def test_a_file_with_unsynced_writes_stays_open_until_its_sync() -> None:
    disk, manager, logs = crowded()
    for log in logs:
        log.append(batch(), leader_epoch=0)
    disk.operations.clear()
    while manager.flushers[0].directory.dirty:
        manager.flushers[0].sync_now()
    assert opened(disk) == []
    assert [log.durable_offset for log in logs] == [2] * len(logs)


def test_after_their_sync_files_give_way_again() -> None:
    _, manager, logs = crowded()
    for log in logs:
        log.append(batch(), leader_epoch=0)
    while manager.flushers[0].directory.dirty:
        manager.flushers[0].sync_now()
    logs[0].active.release_file()
    logs[0].active.file()
    assert sum(log.active._file is not None for log in logs) <= FILES_MAX


def test_a_round_that_found_no_room_keeps_its_files() -> None:
    disk, manager, logs = crowded()
    first = logs[0]
    first.append(batch(), leader_epoch=1)
    flush_round = manager.flushers[0].begin_round()
    first.active.release_file()
    disk.fail_next("create", errno.ENOSPC)
    manager.flushers[0].execute(flush_round)
    manager.flushers[0].complete_round(flush_round)
    del flush_round
    disk.operations.clear()
    while manager.flushers[0].directory.dirty:
        manager.flushers[0].sync_now()
    assert opened(disk) == []
    assert first.durable_offset == 2


def test_modes_that_acknowledge_first_keep_to_the_bound() -> None:
    _, _, logs = crowded(FlushMode.OS)
    for log in logs:
        log.append(batch(), leader_epoch=0)
    assert sum(log.active._file is not None for log in logs) <= FILES_MAX


class Holder:
    """Something unsynced that counts how often it is looked at."""

    was_used = False
    looks = 0

    @property
    def is_dirty(self) -> bool:
        Holder.looks += 1
        return True

    def release_file(self) -> None:
        raise AssertionError("it has unsynced writes")


def test_looking_for_a_file_to_close_is_bounded() -> None:
    """Guards the loop against one request that writes to thousands of partitions."""
    table = OpenFiles(files_max=10)
    Holder.looks = 0
    holders = [Holder() for _ in range(1_000)]
    for holder in holders:
        table.opened(holder)
    assert len(table) == 1_000
    assert Holder.looks <= 64 * 1_000
