"""The cleaner beside everything else: which log comes next, readers, retention, bad disks."""

import asyncio
import errno
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.core.types import TopicPartition
from penstock.records.batch import read_header
from penstock.storage.compaction import log_cleaner
from penstock.storage.compaction.log_cleaner import LogCleaner, LogView
from penstock.storage.disk.checkpoint import LOG_START_FILE, parse_offsets
from penstock.storage.disk.filesystem import FileSystem
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log.segment_swap import SegmentSwap
from penstock.storage.log_manager import LogManager
from penstock.storage.service import StorageService
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.compacted import COMPACTED, all_records, clean, compacted_log, put
from tests.storage.logs import PARTITION, Clock, let_go, open_manager, sync

OTHER = TopicPartition("other", 1)
LOG = "/data/orders-0/00000000000000000000.log"


def filled(
    disk: FileSystem, partition: TopicPartition = PARTITION, manager: LogManager | None = None
) -> tuple[LogManager, PartitionLog]:
    """A log with ten segments of two keys."""
    manager = manager or open_manager(disk, COMPACTED)
    log = compacted_log(manager, partition=partition)
    fill(manager, log)
    return manager, log


def fill(manager: LogManager, log: PartitionLog) -> None:
    for number in range(20):
        put(log, (b"a", b"%d" % number), (b"b", b"x" * 100), timestamp_ms=1_000 + number)
        if number % 2:
            log.roll()
    sync(manager)


def start(manager: LogManager, clock: Clock) -> StorageService:
    service = StorageService(
        manager, clock, on_durable=lambda _logs: None, on_failure=lambda _path, _error: None
    )
    service.start(asyncio.get_running_loop())
    return service


def run(scenario: Callable[[], object]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


def latest(log: PartitionLog) -> list[tuple[bytes | None, bytes | None]]:
    return [(seen.key, seen.value) for seen in all_records(log)]


CLEAN = [(b"a", b"19"), (b"b", b"x" * 100)]


def test_a_due_log_is_cleaned_and_stays_so_after_a_restart() -> None:
    async def go() -> None:
        disk = MemoryDisk()
        manager, log = filled(disk)
        service = start(manager, Clock())
        await service.clean_logs()
        assert latest(log) == CLEAN
        assert manager.home_of(PARTITION).cleaned_offsets == {PARTITION: 40}
        await service.stop()
        again = open_manager(disk, COMPACTED)
        assert again.problems == []
        loaded = again.get_log(PARTITION)
        assert loaded is not None
        assert latest(loaded) == CLEAN

    run(go)


def test_a_log_with_too_little_dirt_waits() -> None:
    async def go() -> None:
        manager, log = filled(MemoryDisk())
        log.settings = replace(COMPACTED, dirty_ratio_min=1.0)
        service = start(manager, Clock())
        await service.clean_logs()
        assert len(latest(log)) == 40
        log.settings = replace(COMPACTED, dirty_ratio_min=1.0, compaction_lag_ms_max=1_000)
        await service.clean_logs()
        assert latest(log) == CLEAN, "it is older than the longest lag"
        await service.stop()

    run(go)


def test_the_dirtiest_log_comes_first() -> None:
    async def go() -> None:
        disk, order = MemoryDisk(), []
        manager, log = filled(disk)
        clean(manager, log)
        fill(manager, log)
        _, other = filled(disk, OTHER, manager)
        service = start(manager, Clock())
        cleaner = LogCleaner(manager, Clock(), service._work, asyncio.Lock(), asyncio.sleep)
        original = cleaner._clean

        async def noted(view: object, cleanable: object) -> bool:
            order.append(view.log)  # type: ignore[attr-defined]
            return await original(view, cleanable)  # type: ignore[arg-type]

        cleaner._clean = noted  # type: ignore[method-assign]
        assert await cleaner.clean_logs() == 2
        assert order == [other, log]
        await service.stop()

    run(go)


def test_a_reader_that_holds_an_old_segment_goes_on() -> None:
    async def go() -> None:
        manager, log = filled(MemoryDisk())
        service = start(manager, Clock())
        old = log.segments[0]
        before = bytes(old.read(0, old.size, nowait=False))
        held = old.file()
        await service.clean_logs()
        buffer = bytearray(len(before))
        assert held.read_into(buffer, 0) == len(before)
        assert bytes(buffer) == before
        with pytest.raises(FileNotFoundError, match="another file now"):
            old.file()
        await service.stop()

    run(go)


def test_a_cold_read_that_meets_a_swap_is_repeated() -> None:
    async def go() -> None:
        disk = FaultyDisk(MemoryDisk())
        manager, log = filled(disk)
        service = start(manager, Clock())
        loop = asyncio.get_running_loop()
        for segment in log.segments:
            segment.close()
        reading, may_go_on = asyncio.Event(), threading.Event()

        def hook(operation: str, path: str) -> None:
            if (operation, path) == ("open", LOG) and not reading.is_set():
                loop.call_soon_threadsafe(reading.set)
                assert may_go_on.wait(5)

        disk.hook = hook
        read = loop.create_task(
            service.read_cold(log, 0, 10_000, offset_limit=40, at_least_one=True)
        )
        await asyncio.wait_for(reading.wait(), 5)
        disk.hook = None
        await service.clean_logs()
        may_go_on.set()
        answer = await read
        assert read_header(answer.records).size_bytes <= len(answer.records)
        assert answer.first_offset == all_records(log)[0].offset or answer.first_offset > 0
        await service.stop()

    run(go)


def test_retention_that_comes_in_between_ends_the_pass() -> None:
    async def go() -> None:
        manager, log = filled(MemoryDisk())
        service = start(manager, Clock())
        cleaner = LogCleaner(manager, Clock(), service._work, service._file_removal, asyncio.sleep)
        original = cleaner._swap

        async def late(view: LogView, swap: SegmentSwap) -> bool:
            log.advance_start(20)
            log.segments = [entry for entry in log.segments if entry.base_offset >= 20]
            return await original(view, swap)

        cleaner._swap = late  # type: ignore[method-assign]
        await cleaner.clean_logs()
        names = manager.home_of(PARTITION).shared.filesystem.list_directory("/data/orders-0")
        assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
        assert manager.problems == []
        await service.stop()

    run(go)


def test_a_deleted_log_is_not_cleaned_any_more() -> None:
    async def go() -> None:
        manager, log = filled(MemoryDisk())
        service = start(manager, Clock())
        cleaner = LogCleaner(manager, Clock(), service._work, service._file_removal, asyncio.sleep)
        original = cleaner._swap

        async def late(view: LogView, swap: SegmentSwap) -> bool:
            await service.delete_logs([PARTITION])
            return await original(view, swap)

        cleaner._swap = late  # type: ignore[method-assign]
        await cleaner.clean_logs()
        assert log.problem is not None
        assert manager.problems == []
        await service.stop()

    run(go)


def test_a_damaged_log_is_set_aside_and_the_others_go_on() -> None:
    async def go() -> None:
        disk = MemoryDisk()
        manager, log = filled(disk)
        _, other = filled(disk, OTHER, manager)
        disk.find(LOG).data[100] ^= 1
        service = start(manager, Clock())
        await service.clean_logs()
        await service.clean_logs()
        assert latest(other) == CLEAN
        (problem,) = manager.problems
        assert problem.topic_partition == PARTITION
        assert problem.is_served
        assert "not compacted" in problem.message
        assert len(log.segments) == 11
        await service.stop()

    run(go)


def test_a_full_disk_leaves_the_log_as_it_is_until_there_is_room() -> None:
    async def go() -> None:
        disk = FaultyDisk(MemoryDisk())
        manager, log = filled(disk)
        service = start(manager, Clock())
        disk.bytes_left = 300
        await service.clean_logs()
        assert len(latest(log)) > 2
        assert latest(log)[-2:] == CLEAN
        assert manager.problems == []
        disk.bytes_left = None
        await service.clean_logs()
        assert latest(log) == CLEAN
        await service.stop()

    run(go)


def test_a_dead_disk_is_not_cleaned() -> None:
    async def go() -> None:
        manager, log = filled(MemoryDisk())
        manager.home_of(PARTITION).shared.fail(OSError(errno.EIO, "broken"))
        service = start(manager, Clock())
        await service.clean_logs()
        assert len(latest(log)) == 40
        await service.stop()

    run(go)


def test_a_failed_sync_takes_the_directory_out_of_service() -> None:
    async def go() -> None:
        disk = FaultyDisk(MemoryDisk())
        manager, log = filled(disk)
        service = start(manager, Clock())

        def hook(operation: str, path: str) -> None:
            if operation == "sync" and path.endswith(".cleaned"):
                raise OSError(errno.EIO, "broken")

        disk.hook = hook
        await service.clean_logs()
        assert manager.home_of(PARTITION).shared.failure is not None
        assert len(latest(log)) == 40
        disk.hook = None
        await service.stop()

    run(go)


def test_a_swap_that_lacks_a_descriptor_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        disk = FaultyDisk(MemoryDisk())
        manager, log = filled(disk)
        service = start(manager, Clock())
        failures = 5

        def hook(operation: str, path: str) -> None:
            nonlocal failures
            if operation == "sync_directory" and path == "/data/orders-0" and failures:
                failures -= 1
                raise OSError(errno.EMFILE, "no descriptor")

        disk.hook = hook
        await service.clean_logs()
        assert failures == 0
        assert latest(log) == CLEAN
        disk.hook = None
        await service.stop()
        loaded = open_manager(disk, COMPACTED).get_log(PARTITION)
        assert loaded is not None
        assert latest(loaded) == CLEAN

    monkeypatch.setattr(log_cleaner, "_RETRY_SECONDS", 0.0)
    run(go)


def test_retention_by_time_and_size_goes_on_in_a_compacted_log() -> None:
    disk = MemoryDisk()
    manager, log = filled(disk)
    clean(manager, log)
    fill(manager, log)
    size = sum(segment.size for segment in log.segments)
    log.settings = replace(COMPACTED, retention_bytes=size // 2)
    assert manager.run_retention(0) > 0
    assert log.log_start_offset > 0
    assert sum(segment.size for segment in log.segments) < size
    log.settings = replace(COMPACTED, retention_ms=1_000)
    manager.run_retention(10**9)
    sync(manager)
    manager.run_retention(10**9)
    assert log.log_start_offset == log.end_offset
    assert all_records(log) == []


def test_an_advanced_start_is_durable_and_its_segments_go() -> None:
    async def go() -> None:
        disk = MemoryDisk()
        manager, log = filled(disk)
        service = start(manager, Clock())
        outcomes = await service.advance_starts([(log, 13), (log, 41)])
        assert outcomes[0] is None
        assert outcomes[1] is not None
        assert log.log_start_offset == 13
        assert parse_offsets(disk.read_file(f"/data/{LOG_START_FILE}")) == {PARTITION: 13}
        assert log.segments[0].base_offset == 12
        assert LOG.rpartition("/")[2] not in disk.list_directory("/data/orders-0")
        let_go(manager)
        loaded = open_manager(disk, COMPACTED).get_log(PARTITION)
        assert loaded is not None
        assert loaded.log_start_offset == 13
        await service.stop()

    run(go)


def test_starts_that_are_advanced_together_share_a_write() -> None:
    async def go() -> None:
        disk, renames = FaultyDisk(MemoryDisk()), []
        manager, log = filled(disk)
        service = start(manager, Clock())

        def hook(operation: str, path: str) -> None:
            if operation == "rename" and LOG_START_FILE in path:
                renames.append(path)

        disk.hook = hook
        await asyncio.gather(
            *[service._log_starts.advance([(log, offset)]) for offset in range(1, 20)]
        )
        assert log.log_start_offset == 19
        assert len(renames) == 2, "one for the first, one for all who came meanwhile"
        disk.hook = None
        await service.stop()

    run(go)


def test_a_start_that_found_no_room_is_told() -> None:
    async def go() -> None:
        disk = FaultyDisk(MemoryDisk())
        manager, log = filled(disk)
        service = start(manager, Clock())
        disk.bytes_left = 0
        (outcome,) = await service._log_starts.advance([(log, 5)])
        assert "no room" in str(outcome)
        disk.bytes_left = None
        assert await service._log_starts.advance([(log, 5)]) == [None]
        assert parse_offsets(disk.read_file(f"/data/{LOG_START_FILE}")) == {PARTITION: 5}
        await service.stop()

    run(go)
