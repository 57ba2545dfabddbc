"""High watermarks: nothing uncommitted is deleted, and a start finds them again as a hint."""

import asyncio
from dataclasses import replace

import pytest

from penstock.core.errors import OffsetOutOfRangeError
from penstock.core.types import TopicPartition
from penstock.storage.compaction.log_cleaner import view_of
from penstock.storage.disk.checkpoint import parse_offsets
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log_manager import LogManager
from penstock.storage.service import StorageService
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
    sync,
)

FILE = "replication-offset-checkpoint"
OTHER = TopicPartition("other", 0)


def filled(disk: MemoryDisk, count: int = 40) -> tuple[LogManager, PartitionLog]:
    manager, log = new_log(disk, replace(SMALL, retention_bytes=0))
    for _ in range(count):
        log.append(batch(), leader_epoch=0)
    sync(manager)
    return manager, log


def checkpoint(manager: LogManager) -> None:
    """The duty of the service, without its threads."""

    async def go() -> None:
        service = StorageService(
            manager, Clock(), on_durable=lambda _logs: None, on_failure=lambda _path, _error: None
        )
        service.start(asyncio.get_running_loop())
        await service.checkpoint()
        await service._pool.stop(1.0)  # type: ignore[union-attr]

    asyncio.run(go())


def test_retention_stops_at_the_high_watermark() -> None:
    manager, log = filled(MemoryDisk())
    log.is_replicated = True
    log.high_watermark = 20
    manager.run_retention(0)
    assert 10 < log.log_start_offset <= 20
    log.is_replicated = False
    manager.run_retention(0)
    assert log.log_start_offset > 20


def test_the_start_moves_up_to_the_high_watermark_only() -> None:
    _, log = filled(MemoryDisk())
    log.is_replicated = True
    log.high_watermark = 20
    with pytest.raises(OffsetOutOfRangeError):
        log.advance_start(21)
    log.advance_start(20)
    log.is_replicated = False
    log.advance_start(21)


def test_unsynced_records_are_not_deleted_however_high_the_watermark() -> None:
    _, log = filled(MemoryDisk())
    log.append(batch(), leader_epoch=0)
    log.is_replicated = True
    log.high_watermark = 41
    assert log.deletion_limit == 40
    with pytest.raises(OffsetOutOfRangeError):
        log.advance_start(41)


def test_compaction_stops_at_the_high_watermark() -> None:
    manager, log = filled(MemoryDisk())
    home = manager.home_of(PARTITION)
    assert view_of(log, home).offset_limit == 40
    log.is_replicated = True
    log.high_watermark = 20
    assert view_of(log, home).offset_limit == 20


def test_a_broker_without_replicas_writes_no_file() -> None:
    disk = MemoryDisk()
    manager, _ = filled(disk)
    checkpoint(manager)
    manager.close()
    assert FILE not in disk.list_directory("/data")


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_finds_the_high_watermark(*, clean: bool) -> None:
    disk = MemoryDisk()
    manager, log = filled(disk)
    other = manager.create_log(OTHER, TOPIC_ID, SMALL)
    log.is_replicated = True
    log.high_watermark = 25
    if clean:
        manager.close()
    else:
        checkpoint(manager)
        let_go(manager)
    assert parse_offsets(disk.read_file(f"/data/{FILE}")) == {PARTITION: 25}
    again = open_manager(disk)
    assert again.logs[PARTITION].high_watermark == 25
    assert again.logs[OTHER].high_watermark == other.log_start_offset
    # Before replication sets a role, a checkpoint forgets nothing.
    checkpoint(again)
    assert parse_offsets(disk.read_file(f"/data/{FILE}")) == {PARTITION: 25}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"0\n1\norders 0 4000\n", 40),
        (b"0\n1\norders 0 1\n", 5),
        (b"0\n0\n", 5),
        (b"not a checkpoint", 5),
    ],
)
def test_a_wrong_file_costs_nothing(text: bytes, expected: int) -> None:
    disk = MemoryDisk()
    manager, log = filled(disk)
    log.advance_start(5)
    manager.close()
    disk.create_file(f"/data/{FILE}").write_at(text, 0)
    again = open_manager(disk)
    assert again.problems == []
    assert again.logs[PARTITION].high_watermark == expected


def test_a_deleted_log_and_a_truncated_one_are_followed_by_the_file() -> None:
    disk = MemoryDisk()
    manager, log = filled(disk)
    other = manager.create_log(OTHER, TOPIC_ID, SMALL)
    other.append(batch(3), leader_epoch=0)
    sync(manager)
    log.is_replicated = other.is_replicated = True
    log.high_watermark, other.high_watermark = 25, 3
    checkpoint(manager)
    manager.truncate_log(PARTITION, 12)
    assert log.high_watermark == 12
    assert parse_offsets(disk.read_file(f"/data/{FILE}")) == {PARTITION: 12, OTHER: 3}
    manager.delete_log(OTHER)
    assert parse_offsets(disk.read_file(f"/data/{FILE}")) == {PARTITION: 12}
