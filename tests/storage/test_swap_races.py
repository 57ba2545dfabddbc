"""A swap of segments during other work in the same log: reads, flushes, truncation, settings."""

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.core.types import TopicPartition
from penstock.storage.compaction.cleaner import CleaningJob
from penstock.storage.compaction.log_cleaner import LogCleaner, LogView, source_of, view_of
from penstock.storage.disk.checkpoint import CLEANER_FILE, parse_offsets
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log.segment import Segment
from penstock.storage.log.segment_swap import SegmentSwap
from penstock.storage.log_manager import LogManager
from penstock.storage.service import StorageService
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.compacted import (
    COMPACTED,
    all_records,
    append_marker,
    clean,
    compacted_log,
    put,
    put_in_transaction,
    seal,
)
from tests.storage.logs import PARTITION, Clock, open_manager, sync


def opened(disk: FaultyDisk | MemoryDisk) -> tuple[LogManager, PartitionLog]:
    manager = open_manager(disk, COMPACTED)
    return manager, compacted_log(manager)


def swap_of(manager: LogManager, log: PartitionLog) -> SegmentSwap:
    """The first swap of a pass, which is not carried out yet."""
    home = manager.home_of(log.topic_partition)
    view = view_of(log, home)
    job = CleaningJob(source_of(view, home), view.cleanable(10_000), 10_000)
    return next(outcome for outcome in job.steps() if outcome is not None)


def carry_out(swap: SegmentSwap, log: PartitionLog) -> None:
    swap.decide()
    swap.exchange(log)
    swap.finish()


@pytest.mark.uncompiled
def test_a_read_behind_a_gap_does_not_jump_over_what_a_swap_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manager, log = opened(MemoryDisk())
    for number in range(3):
        put(log, (b"%d" % number, b"1"))
        seal(manager, log)
    put(log, (b"d", b"4"))
    sync(manager)
    swap = swap_of(manager, log)
    assert len(swap.old) == 3
    original: Callable[..., int] = Segment.find

    def find(segment: Segment, _offset: int, *, nowait: bool) -> int:
        assert not nowait
        monkeypatch.setattr(Segment, "find", original)
        carry_out(swap, log)
        # As if the offset lay in a gap at the end of this segment.
        return segment.size

    monkeypatch.setattr(Segment, "find", find)
    with pytest.raises(FileNotFoundError):
        # The service repeats it. An answer would be the last batch, and 1 and 2 never be seen.
        log.read(0, 1_000, offset_limit=4, at_least_one=True, nowait=False)
    again = log.read(1, 1_000, offset_limit=4, at_least_one=True, nowait=False)
    assert again.first_offset == 1


def test_a_swap_of_a_segment_whose_flush_found_no_room_leaves_the_directory_alive() -> None:
    disk = FaultyDisk(MemoryDisk())
    manager, log = opened(disk)
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    sync(manager)
    log.roll()
    swap = swap_of(manager, log)
    flusher = manager.flushers[0]
    flush_round = flusher.begin_round()
    disk.fail_next("sync_directory", errno.EMFILE)
    flusher.execute(flush_round)
    assert flush_round.is_full
    carry_out(swap, log)
    flusher.complete_round(flush_round)
    sync(manager)
    assert flusher.directory.failure is None
    assert [seen.value for seen in all_records(log)] == [b"2"]


def test_a_swap_of_a_segment_that_owes_a_flush_leaves_the_directory_alive() -> None:
    manager, log = opened(MemoryDisk())
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    sync(manager)
    log.roll()
    carry_out(swap_of(manager, log), log)
    sync(manager)
    assert manager.flushers[0].directory.failure is None
    assert [seen.value for seen in all_records(log)] == [b"2"]


def test_retention_of_a_segment_whose_flush_found_no_room_leaves_the_directory_alive() -> None:
    disk = FaultyDisk(MemoryDisk())
    manager, log = opened(disk)
    log.settings = replace(COMPACTED, retention_ms=1)
    put(log, (b"a", b"1"))
    sync(manager)
    log.roll()
    flusher = manager.flushers[0]
    flush_round = flusher.begin_round()
    disk.fail_next("sync_directory", errno.EMFILE)
    flusher.execute(flush_round)
    assert flush_round.is_full
    assert manager.run_retention(10**9) == 1
    flusher.complete_round(flush_round)
    sync(manager)
    assert flusher.directory.failure is None


def test_a_log_that_was_cut_and_grew_again_keeps_what_it_has_now() -> None:
    async def go() -> None:
        manager, log = opened(MemoryDisk())
        put(log, (b"a", b"x" * 400))
        put(log, (b"b", b"1"))
        seal(manager, log)
        put(log, (b"a", b"x" * 400))
        seal(manager, log)
        service = start(manager)
        cleaner = LogCleaner(manager, Clock(), service._work, service._file_removal, asyncio.sleep)
        original = cleaner._swap

        async def late(view: LogView, swap: SegmentSwap) -> bool:
            if log.end_offset == 3:
                manager.truncate_log(PARTITION, 1)
                put(log, (b"new", b"new"))
                log.roll()
                sync(manager)
            return await original(view, swap)

        cleaner._swap = late  # type: ignore[method-assign]
        await cleaner.clean_logs()
        assert (b"new", b"new") in [(seen.key, seen.value) for seen in all_records(log)]
        log.validate()
        await service.stop()

    asyncio.run(go())


def start(manager: LogManager) -> StorageService:
    service = StorageService(
        manager, Clock(), on_durable=lambda _logs: None, on_failure=lambda _path, _error: None
    )
    service.start(asyncio.get_running_loop())
    return service


def filled(disk: FaultyDisk | MemoryDisk) -> tuple[LogManager, PartitionLog]:
    manager, log = opened(disk)
    for number in range(4):
        put(log, (b"a", b"%d" % number), (b"b", b"x" * 400))
        seal(manager, log)
    return manager, log


def test_a_topic_that_is_not_compacted_any_more_ends_its_pass() -> None:
    async def go() -> None:
        manager, log = filled(MemoryDisk())
        service = start(manager)
        cleaner = LogCleaner(manager, Clock(), service._work, service._file_removal, asyncio.sleep)
        original = cleaner._swap

        async def late(view: LogView, swap: SegmentSwap) -> bool:
            log.settings = replace(COMPACTED, compacts=False)
            return await original(view, swap)

        cleaner._swap = late  # type: ignore[method-assign]
        await cleaner.clean_logs()
        assert len(all_records(log)) == 8
        assert not [name for name in names(manager) if name.endswith((".cleaned", ".swap"))]
        await service.stop()

    asyncio.run(go())


def names(manager: LogManager, partition: TopicPartition = PARTITION) -> list[str]:
    home = manager.home_of(partition)
    return list(home.shared.filesystem.list_directory(f"{home.path}/orders-0"))


def test_no_gap_is_made_before_the_disk_knows_that_there_may_be_some() -> None:
    async def go() -> None:
        disk = FaultyDisk(MemoryDisk())
        manager, log = filled(disk)
        service = start(manager)
        path = f"/data/{CLEANER_FILE}"
        failures = 1
        gaps: list[bool] = []

        def hook(operation: str, touched: str) -> None:
            nonlocal failures
            if operation == "create" and touched.startswith(path) and failures:
                failures -= 1
                raise OSError(errno.ENOSPC, "no room")
            if operation == "rename" and touched.endswith(".log.swap"):
                gaps.append(CLEANER_FILE in disk.list_directory("/data"))

        disk.hook = hook
        await service.clean_logs()
        assert failures == 0
        await service.clean_logs()
        assert gaps
        assert all(gaps)
        assert parse_offsets(disk.read_file(path)) == {PARTITION: 8}
        disk.hook = None
        assert [seen.value for seen in all_records(log)] == [b"3", b"x" * 400]
        await service.stop()

    asyncio.run(go())


def test_a_cleaned_segment_that_becomes_the_last_notes_aborts_under_its_own_name() -> None:
    disk = MemoryDisk()
    manager, log = opened(disk)
    put(log, (b"a", b"1"))
    put(log, (b"b", b"1"))
    seal(manager, log)
    put(log, (b"c", b"1"))
    clean(manager, log)
    sync(manager)
    manager.truncate_log(PARTITION, 1)
    put_in_transaction(log, 7, 0, [(b"x", b"aborted")])
    append_marker(log, 7, is_commit=False)
    sync(manager)
    assert "00000000000000000000.txnindex" in names(manager)
    again = open_manager(MemoryDisk(disk.root), COMPACTED).get_log(PARTITION)
    assert again is not None
    assert [seen.value for seen in all_records(again)] == [b"1"]


def test_a_segment_of_which_only_an_empty_batch_is_left_grows_old() -> None:
    manager, log = opened(MemoryDisk())
    put(log, (b"a", b"x" * 500), timestamp_ms=1_000)
    seal(manager, log)
    put(log, (b"a", b"y" * 500), timestamp_ms=2_000)
    seal(manager, log)
    put(log, (b"b", b"z"), timestamp_ms=10**9)
    clean(manager, log)
    assert len(log.segments) == 3
    log.settings = replace(COMPACTED, retention_ms=100_000)
    assert manager.run_retention(10**9) == 2
    assert log.log_start_offset == 2


def test_an_index_that_cannot_be_read_sets_the_log_aside_and_not_the_directory() -> None:
    async def go() -> None:
        disk = FaultyDisk(MemoryDisk())
        manager, log = opened(disk)
        put_in_transaction(log, 7, 0, [(b"a", b"1")])
        append_marker(log, 7, is_commit=False)
        seal(manager, log)
        for segment in log.segments:
            segment.close()

        def hook(operation: str, path: str) -> None:
            if operation.startswith(("read", "open")) and path.endswith(".txnindex"):
                raise OSError(errno.EIO, "cannot be read")

        disk.hook = hook
        service = start(manager)
        await service.clean_logs()
        disk.hook = None
        assert manager.home_of(PARTITION).shared.failure is None
        assert ["not compacted" in problem.message for problem in manager.problems] == [True]
        await service.stop()

    asyncio.run(go())
