"""One log: append, roll, read, repetitions, full and broken disks, truncation, search by time."""

import errno

import pytest

from penstock.core.errors import (
    CorruptBatchError,
    DiskFullError,
    LogDirectoryOfflineError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
)
from penstock.records.batch import checksum_matches, iterate_headers
from penstock.storage.log.leader_epochs import EpochEnd
from penstock.storage.log.log_settings import FlushMode, LogSettings
from penstock.storage.log.log_types import TimestampAndOffset
from penstock.storage.log.partition_log import PartitionLog
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.logs import (
    PARTITION,
    SMALL,
    batch,
    headers,
    new_log,
    open_manager,
    producer_batch,
    read_all,
    sync,
)

ONE_SEGMENT = LogSettings(index_interval_bytes=200, retention_ms=-1)


def filled(count: int = 40, settings: LogSettings = SMALL) -> PartitionLog:
    manager, log = new_log(MemoryDisk(), settings)
    for number in range(count):
        log.append(batch(2, timestamp_ms=1_000 + number * 10), leader_epoch=number // 20)
        log.validate()
    sync(manager)
    return log


def test_offsets_and_epochs_are_assigned() -> None:
    manager, log = new_log(MemoryDisk())
    first = log.append(batch(3), leader_epoch=5)
    assert (first.base_offset, first.last_offset) == (0, 2)
    info = log.append(batch(2), leader_epoch=5)
    assert (info.base_offset, info.last_offset, info.is_duplicate) == (3, 4, False)
    assert info.log_append_time_ms == -1
    assert log.end_offset == 5
    assert log.durable_offset == 0
    sync(manager)
    assert log.durable_offset == log.synced_offset == 5
    found = headers(read_all(log))
    assert [(header.base_offset, header.leader_epoch) for header in found] == [(0, 5), (3, 5)]


def test_what_is_read_is_what_was_appended() -> None:
    log = filled()
    assert len(log.segments) > 3
    data = read_all(log)
    offset = 0
    for position, header in iterate_headers(data):
        assert header.base_offset == offset
        assert checksum_matches(data, position, header)
        offset = header.next_offset
    assert offset == log.end_offset == 80
    assert read_all(log, nowait=False) == data


@pytest.mark.parametrize("settings", [SMALL, ONE_SEGMENT])
def test_every_offset_can_be_read_with_every_limit(settings: LogSettings) -> None:
    log = filled(20, settings)
    for limit in range(log.end_offset + 2):
        for offset in range(log.end_offset + 1):
            answer = log.read(offset, 500, offset_limit=limit, at_least_one=True, nowait=True)
            found = headers(bytes(answer.records))
            if found:
                assert found[0].base_offset <= offset <= found[0].last_offset
                assert found[-1].last_offset < limit
                assert answer.next_offset == found[-1].next_offset
            else:
                assert offset >= limit or offset + 1 == limit, "half a batch is not shown"


def test_bytes_are_limited_and_batches_whole() -> None:
    log = filled(20, ONE_SEGMENT)
    size = headers(read_all(log))[0].size_bytes
    for bytes_max in range(0, 3 * size + 2, 7):
        answer = log.read(0, bytes_max, offset_limit=99, at_least_one=False, nowait=True)
        assert len(answer.records) == bytes_max // size * size
        forced = log.read(0, bytes_max, offset_limit=99, at_least_one=True, nowait=True)
        assert len(forced.records) == max(1, bytes_max // size) * size


def test_a_large_read_of_tiny_batches_uses_the_index() -> None:
    log = filled(400, ONE_SEGMENT)
    answer = log.read(0, 20_000, offset_limit=9_999, at_least_one=True, nowait=True)
    found = headers(bytes(answer.records))
    assert 19_000 < len(answer.records) <= 20_000
    assert found[-1].next_offset == answer.next_offset


def test_offsets_outside_are_errors() -> None:
    log = filled(2)
    with pytest.raises(OffsetOutOfRangeError):
        log.read(-1, 100, offset_limit=9, at_least_one=True, nowait=True)
    with pytest.raises(OffsetOutOfRangeError):
        log.read(5, 100, offset_limit=9, at_least_one=True, nowait=True)
    at_end = log.read(4, 100, offset_limit=9, at_least_one=True, nowait=True)
    assert (bytes(at_end.records), at_end.next_offset) == (b"", 4)


def test_a_reader_at_the_end_goes_on_in_the_next_segment() -> None:
    manager, log = new_log(MemoryDisk())
    offset = 0
    for _ in range(60):
        log.append(batch(1, size=60), leader_epoch=0)
        sync(manager)
        answer = log.read(
            offset, 9_999, offset_limit=log.durable_offset, at_least_one=True, nowait=True
        )
        assert headers(bytes(answer.records))[0].base_offset == offset
        offset = answer.next_offset
    assert offset == 60
    assert len(log.segments) > 3


def test_a_repetition_is_answered_with_the_original() -> None:
    manager, log = new_log(MemoryDisk())
    first = log.append(producer_batch(0, 2), leader_epoch=0)
    log.append(producer_batch(2, 1), leader_epoch=0)
    again = log.append(producer_batch(0, 2), leader_epoch=0)
    assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset)
    assert again.is_duplicate
    assert again.log_append_time_ms == 1_001
    assert log.durable_offset <= again.last_offset, "the caller must still wait"
    with pytest.raises(OutOfOrderSequenceError):
        log.append(producer_batch(9), leader_epoch=0)
    assert log.end_offset == 3
    sync(manager)


@pytest.mark.parametrize("room", [0, 1, 40, 90])
def test_a_full_disk_keeps_nothing_of_the_batch_and_the_log_lives(room: int) -> None:
    disk = FaultyDisk(MemoryDisk())
    manager, log = new_log(disk, ONE_SEGMENT)
    log.append(producer_batch(0), leader_epoch=0)
    sync(manager)
    size = log.active.size
    disk.bytes_left = room
    with pytest.raises(DiskFullError):
        log.append(producer_batch(1), leader_epoch=3)
    log.validate()
    assert disk.file_size("/data/orders-0/00000000000000000000.log") == size
    assert (log.end_offset, log.latest_epoch) == (1, 0)
    assert headers(read_all(log))[-1].last_offset == 0
    disk.bytes_left = None
    assert log.append(producer_batch(1), leader_epoch=3).base_offset == 1
    sync(manager)
    assert log.durable_offset == 2


def test_a_full_disk_while_rolling() -> None:
    disk = FaultyDisk(MemoryDisk())
    manager, log = new_log(disk)
    while log.active.size < 900:
        log.append(batch(), leader_epoch=0)
    before = log.end_offset
    disk.fail_next("create", errno.ENOSPC)
    with pytest.raises(DiskFullError):
        log.append(batch(5), leader_epoch=0)
    log.validate()
    assert (log.end_offset, len(log.segments)) == (before, 1)
    log.append(batch(5), leader_epoch=0)
    assert len(log.segments) == 2
    sync(manager)
    assert headers(read_all(log))[-1].next_offset == log.end_offset


def test_short_writes_are_finished() -> None:
    disk = FaultyDisk(MemoryDisk())
    _, log = new_log(disk)
    disk.write_bytes_max = 10
    log.append(batch(3), leader_epoch=0)
    data = read_all(log)
    assert checksum_matches(data, 0, headers(data)[0])


def test_a_write_error_takes_the_directory_out_of_service() -> None:
    disk = FaultyDisk(MemoryDisk())
    _, log = new_log(disk)
    disk.fail_next("write", errno.EIO)
    for _ in range(2):
        with pytest.raises(LogDirectoryOfflineError):
            log.append(batch(), leader_epoch=0)
    assert log.end_offset == 0


def test_it_rolls_by_size_time_index_and_distance() -> None:
    settings = LogSettings(segment_ms=100, retention_ms=-1)
    _, log = new_log(MemoryDisk(), settings)
    log.append(batch(timestamp_ms=1_000), leader_epoch=0)
    log.append(batch(timestamp_ms=1_100), leader_epoch=0)
    assert len(log.segments) == 1
    log.append(batch(timestamp_ms=1_101), leader_epoch=0)
    assert len(log.segments) == 2
    log.settings = LogSettings(index_interval_bytes=1, index_bytes_max=800)
    for number in range(200):
        log.append(batch(timestamp_ms=2_000 + number), leader_epoch=0)
    assert len(log.segments) == 4
    log.end_offset = log.active.base_offset + 2**31
    log.append(batch(timestamp_ms=3_000), leader_epoch=0)
    assert len(log.segments) == 5


def test_settings_are_replaceable() -> None:
    _, log = new_log(MemoryDisk(), ONE_SEGMENT)
    for _ in range(5):
        log.append(batch(), leader_epoch=0)
    log.settings = SMALL
    for _ in range(20):
        log.append(batch(), leader_epoch=0)
    assert len(log.segments) > 1


def test_epochs_follow_appends() -> None:
    log = filled(40)
    assert log.latest_epoch == 1
    assert log.end_offset_for_epoch(0) == EpochEnd(0, 40)
    assert log.end_offset_for_epoch(1) == EpochEnd(1, 80)
    assert log.end_offset_for_epoch(2) == EpochEnd(-1, -1)


@pytest.mark.parametrize("settings", [SMALL, ONE_SEGMENT])
@pytest.mark.parametrize("codec", [0, 1, 4])
def test_search_by_time_is_exact(settings: LogSettings, codec: int) -> None:
    manager, log = new_log(MemoryDisk(), settings)
    for number in range(30):
        log.append(batch(5, timestamp_ms=1_000 + number * 10, codec=codec), leader_epoch=2)
    sync(manager)
    assert log.offset_for_timestamp(0) == TimestampAndOffset(1_000, 0, 2)
    assert log.offset_for_timestamp(1_013) == TimestampAndOffset(1_013, 8, 2)
    assert log.offset_for_timestamp(1_015) == TimestampAndOffset(1_020, 10, 2)
    assert log.offset_for_timestamp(1_294) == TimestampAndOffset(1_294, 149, 2)
    assert log.offset_for_timestamp(1_295) is None
    assert log.max_timestamp() == TimestampAndOffset(1_294, 149, 2)


def test_search_by_time_with_timestamps_out_of_order() -> None:
    _, log = new_log(MemoryDisk())
    times = [500, 900, 100, 900, 300, 50] * 6
    for timestamp_ms in times:
        log.append(batch(1, timestamp_ms=timestamp_ms, size=60), leader_epoch=0)
    for target in (0, 100, 501, 900):
        expected = next(number for number, value in enumerate(times) if value >= target)
        found = log.offset_for_timestamp(target)
        assert found is not None
        assert found.offset == expected
    assert log.offset_for_timestamp(901) is None
    highest = log.max_timestamp()
    assert highest is not None
    assert (highest.timestamp_ms, highest.offset) == (900, 1)


def test_an_empty_log_has_no_times() -> None:
    _, log = new_log(MemoryDisk())
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp() is None


@pytest.mark.parametrize("offset", [79, 78, 40, 13, 12, 0])
def test_truncation(offset: int) -> None:
    disk = MemoryDisk()
    manager, log = new_log(disk)
    for number in range(40):
        made = producer_batch(number * 2, 2)
        log.append(made, leader_epoch=number // 20)
    sync(manager)
    manager.truncate_log(PARTITION, offset)
    log.validate()
    kept = offset - offset % 2
    assert log.end_offset == kept, "a truncation inside a batch keeps the batches before it"
    assert headers(read_all(log))[-1].next_offset == kept if kept else not read_all(log)
    sync(manager)
    log.append(producer_batch(kept, 2), leader_epoch=9)
    sync(manager)
    log.validate()
    assert log.end_offset_for_epoch(9) == EpochEnd(9, kept + 2)


def test_retention_moves_the_start_and_removes_files() -> None:
    disk = MemoryDisk()
    manager, log = new_log(disk)
    for number in range(40):
        log.append(batch(2, timestamp_ms=1_000 + number), leader_epoch=0)
    sync(manager)
    log.settings = LogSettings(segment_bytes=1_000, retention_bytes=2_000, retention_ms=-1)
    assert manager.run_retention(0) > 0
    log.validate()
    assert log.log_start_offset == log.segments[0].base_offset > 0
    names = disk.list_directory("/data/orders-0")
    assert "00000000000000000000.log" not in names
    assert headers(read_all(log))[0].base_offset == log.log_start_offset
    with pytest.raises(OffsetOutOfRangeError):
        log.read(0, 100, offset_limit=99, at_least_one=True, nowait=True)


def test_retention_by_time_empties_the_log() -> None:
    manager, log = new_log(MemoryDisk(), LogSettings(segment_bytes=1_000, retention_ms=10))
    for _ in range(20):
        log.append(batch(timestamp_ms=1_000), leader_epoch=0)
    sync(manager)
    manager.run_retention(5_000)
    assert log.segments[0].size > 0, "the last one stays until its successor is durable"
    sync(manager)
    manager.run_retention(5_000)
    sync(manager)
    log.validate()
    assert log.log_start_offset == log.end_offset == 20
    assert log.append(batch(), leader_epoch=0).base_offset == 20


def test_nothing_unsynced_is_deleted() -> None:
    manager, log = new_log(MemoryDisk(), LogSettings(segment_bytes=300, retention_bytes=0))
    for _ in range(20):
        log.append(batch(), leader_epoch=0)
    assert manager.run_retention(0) == 0
    sync(manager)
    assert manager.run_retention(0) > 0


def test_the_start_moves_forward_only_and_not_beyond_what_is_durable() -> None:
    log = filled(10)
    log.advance_start(7)
    log.advance_start(3)
    assert log.log_start_offset == 7
    with pytest.raises(OffsetOutOfRangeError):
        log.advance_start(21)
    answer = log.read(7, 999, offset_limit=99, at_least_one=True, nowait=True)
    assert answer.first_offset == 6


def test_cold_data_raises_instead_of_waiting() -> None:
    disk = FaultyDisk(MemoryDisk())
    manager, log = new_log(disk)
    for _ in range(40):
        log.append(batch(), leader_epoch=0)
    sync(manager)
    disk.is_cold = True
    with pytest.raises(BlockingIOError):
        log.read(3, 999, offset_limit=40, at_least_one=True, nowait=True)
    answer = log.read(3, 999, offset_limit=40, at_least_one=True, nowait=False)
    assert answer.first_offset == 3


def test_a_wrong_index_is_rebuilt() -> None:
    disk = MemoryDisk()
    manager, log = new_log(disk)
    for _ in range(60):
        log.append(batch(), leader_epoch=0)
    manager.close()
    path = "/data/orders-0/00000000000000000000.index"
    good = disk.read_file(path)
    disk.open_file(path).write_at(bytes(7) + b"\x77", 8)
    log_again = open_manager(disk).get_log(PARTITION)
    assert log_again is not None
    assert headers(read_all(log_again, nowait=False))[-1].next_offset == 60
    found = log_again.read(4, 99, offset_limit=60, at_least_one=True, nowait=False)
    assert found.first_offset == 4
    assert disk.read_file(path) == good


def test_a_batch_that_is_not_the_one_asked_for_is_not_served() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, ONE_SEGMENT)
    for _ in range(3):
        log.append(batch(), leader_epoch=0)
    disk.open_file("/data/orders-0/00000000000000000000.log").write_at(b"\x00" * 7 + b"\x02", 0)
    with pytest.raises(CorruptBatchError):
        log.read(0, 999, offset_limit=3, at_least_one=True, nowait=False)
    with pytest.raises(BlockingIOError, match="damage"):
        log.read(0, 999, offset_limit=3, at_least_one=True, nowait=True)


@pytest.mark.uncompiled
def test_periodic_snapshots_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.storage.log.log_snapshots.PRODUCER_SNAPSHOT_INTERVAL_BYTES", 100)
    disk = MemoryDisk()
    manager, log = new_log(disk, ONE_SEGMENT)
    for number in range(20):
        log.append(producer_batch(number), leader_epoch=0)
        sync(manager)
        manager.checkpoint_recovery_points()
        sync(manager)
        manager.flushers[0].snapshots.write_ready()
    names = [name for name in disk.list_directory("/data/orders-0") if "snapshot" in name]
    assert len(names) == 3


@pytest.mark.parametrize("mode", [FlushMode.OS, FlushMode.INTERVAL])
def test_modes_that_sync_later_are_durable_at_once(mode: FlushMode) -> None:
    manager, log = new_log(MemoryDisk(), SMALL, flush_mode=mode)
    log.append(batch(3), leader_epoch=0)
    assert log.durable_offset == 3
    assert log.synced_offset == 0
    flusher = manager.flushers[0]
    assert flusher.take_acknowledged() == [log]
    flush_round = flusher.begin_owed_round()
    assert flush_round is not None
    flusher.execute(flush_round)
    flusher.complete_round(flush_round)
    assert log.synced_offset == (0 if mode is FlushMode.OS else 3)
