"""Offsets that are missing: allowed in a compacted log, damage in any other."""

import asyncio

import pytest

from penstock.core.errors import CorruptBatchError, QuarantinedLogError
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log_manager import LogManager
from penstock.storage.service import StorageService
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.logs import (
    PARTITION,
    Clock,
    batch,
    headers,
    let_go,
    new_log,
    open_manager,
    read_all,
    sync,
)

STRICT = LogSettings(segment_bytes=300, index_interval_bytes=100, retention_ms=-1)
COMPACTED = LogSettings(
    segment_bytes=300, index_interval_bytes=100, retention_ms=-1, is_compacted=True
)
FOLDER = "/data/orders-0"


def written(*, is_clean: bool) -> MemoryDisk:
    """Segments at 0, 3, 6 and 9 with three batches each, but the last with one."""
    disk = MemoryDisk()
    manager, log = new_log(disk, STRICT)
    for _ in range(10):
        log.append(batch(), leader_epoch=0)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9]
    sync(manager)
    if is_clean:
        manager.close()
    else:
        manager.checkpoint_recovery_points()
        let_go(manager)
    return disk


def cut_out(disk: MemoryDisk, base_offset: int, *numbers: int) -> None:
    """Remove batches of a segment and its indexes, as a cleaner does."""
    data = disk.find(f"{FOLDER}/{base_offset:020d}.log").data
    size = len(data) // 3
    for number in sorted(numbers, reverse=True):
        del data[number * size : (number + 1) * size]
    for suffix in ("index", "timeindex"):
        disk.remove_file(f"{FOLDER}/{base_offset:020d}.{suffix}")


def opened(disk: MemoryDisk, settings: LogSettings) -> tuple[LogManager, PartitionLog]:
    manager = open_manager(disk, settings)
    log = manager.get_log(PARTITION)
    assert log is not None
    return manager, log


@pytest.mark.parametrize("nowait", [True, False])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_compacted_log_is_served_across_its_gaps(is_clean: bool, nowait: bool) -> None:
    disk = written(is_clean=is_clean)
    cut_out(disk, 0, 1)
    cut_out(disk, 3, 1, 2)
    cut_out(disk, 6, 0, 1, 2)
    manager, log = opened(disk, COMPACTED)
    assert manager.problems == []
    assert log.end_offset == 10
    expected = {0: 0, 1: 2, 2: 2, 3: 3, 4: 9, 5: 9, 6: 9, 8: 9, 9: 9}
    for bytes_max in (1, 10_000):
        for offset, first_offset in expected.items():
            found = log.read(offset, bytes_max, offset_limit=10, at_least_one=True, nowait=nowait)
            assert found.first_offset == first_offset
    assert [header.base_offset for header in headers(read_all_compacted(log))] == [0, 2, 3, 9]


def read_all_compacted(log: PartitionLog) -> bytes:
    """All batches, each read from the offset after the one before it, as a client asks."""
    data, offset = b"", 0
    while offset < log.end_offset:
        found = log.read(offset, 1, offset_limit=log.end_offset, at_least_one=True, nowait=True)
        data += bytes(found.records)
        offset = headers(bytes(found.records))[-1].next_offset
    return data


def test_a_limit_inside_a_gap_shows_nothing_behind_it() -> None:
    disk = written(is_clean=True)
    cut_out(disk, 3, 1, 2)
    _, log = opened(disk, COMPACTED)
    found = log.read(4, 999, offset_limit=5, at_least_one=True, nowait=True)
    assert (bytes(found.records), found.next_offset) == (b"", 4)
    found = log.read(4, 999, offset_limit=7, at_least_one=True, nowait=True)
    assert (found.first_offset, found.next_offset) == (6, 7)


def test_a_compacted_log_goes_on() -> None:
    disk = written(is_clean=False)
    cut_out(disk, 3, 2)
    manager, log = opened(disk, COMPACTED)
    assert log.append(batch(), leader_epoch=0).base_offset == 10
    sync(manager)
    assert headers(read_all(log))[-1].base_offset == 10


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("offset", [3, 4, 5])
def test_a_missing_segment_is_damage_in_any_other_log(offset: int, is_clean: bool) -> None:
    disk = written(is_clean=is_clean)
    disk.remove_file(f"{FOLDER}/{3:020d}.log")
    _, log = opened(disk, STRICT)
    with pytest.raises(CorruptBatchError, match="ends before"):
        log.read(offset, 999, offset_limit=10, at_least_one=True, nowait=False)
    with pytest.raises(BlockingIOError, match="damage"):
        log.read(offset, 999, offset_limit=10, at_least_one=True, nowait=True)
    assert log.read(6, 999, offset_limit=10, at_least_one=True, nowait=True).first_offset == 6


def test_a_consumer_that_comes_to_a_missing_segment_is_told() -> None:
    async def go() -> None:
        disk = written(is_clean=True)
        disk.remove_file(f"{FOLDER}/{3:020d}.log")
        manager, log = opened(disk, STRICT)
        service = StorageService(
            manager, Clock(), on_durable=lambda _logs: None, on_failure=lambda _path, _error: None
        )
        service.start(asyncio.get_running_loop())
        with pytest.raises(QuarantinedLogError):
            await service.read_cold(log, 3, 999, offset_limit=10, at_least_one=True)
        with pytest.raises(QuarantinedLogError):
            log.read(0, 999, offset_limit=10, at_least_one=True, nowait=True)
        await service.stop()

    asyncio.run(go())


def test_the_lost_end_of_a_segment_is_not_a_gap() -> None:
    """After a crash: a later segment survived, and of the one before it only synced batches."""
    disk = MemoryDisk()
    manager, log = new_log(disk, COMPACTED)
    for _ in range(2):
        log.append(batch(), leader_epoch=0)
    sync(manager)
    synced_bytes = log.active.size
    for _ in range(3):
        log.append(batch(), leader_epoch=0)
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    let_go(manager)
    del disk.find(f"{FOLDER}/{0:020d}.log").data[synced_bytes:]
    again, found = opened(disk, COMPACTED)
    assert found.end_offset == 2
    assert all(problem.is_served for problem in again.problems)


@pytest.mark.parametrize("position", [7, 72, 1_000])
def test_an_index_that_is_older_than_its_segment_is_rebuilt_after_a_clean_stop(
    position: int,
) -> None:
    disk = MemoryDisk()
    settings = LogSettings(index_interval_bytes=100, retention_ms=-1)
    manager, log = new_log(disk, settings)
    for _ in range(10):
        log.append(batch(), leader_epoch=0)
    sync(manager)
    manager.close()
    index = disk.find(f"{FOLDER}/{0:020d}.index").data
    index[-8:] = (9).to_bytes(4, "big") + position.to_bytes(4, "big")
    again, found = opened(disk, settings)
    assert again.problems == []
    assert found.end_offset == 10
    assert len(headers(read_all(found))) == 10
