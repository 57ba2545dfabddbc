"""Zeros after the last batch: small appends do not change the size of their file, invisibly.

Guarded: a sealed segment and a stopped log end with their last batch; after a crash zeros are no
damage, but durable records that are zero now are; a disk without room for zeros is no error.
"""

import errno
from dataclasses import replace

import pytest

from penstock.core.errors import QuarantinedLogError
from penstock.records.batch import HEADER_BYTES
from penstock.storage.disk.checkpoint import RECOVERY_POINT_FILE, format_offsets
from penstock.storage.disk.filesystem import FileSystem
from penstock.storage.log.log_settings import FlushMode, LogSettings
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log.room import ROOM_STEP_BYTES_MAX, ROOM_STEP_BYTES_MIN, room_end
from penstock.storage.log.segment import segment_name
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from penstock.testing.recording_disk import Fate, RecordingDisk
from tests.storage.logs import (
    PARTITION,
    SMALL,
    batch,
    headers,
    let_go,
    new_log,
    open_manager,
    producer_batch,
    read_all,
    sync,
)

ONE_SEGMENT = LogSettings(index_interval_bytes=200, retention_ms=-1)


def path_of(log: PartitionLog, number: int) -> str:
    segment = log.segments[number]
    return f"{segment.directory}/{segment_name(segment.base_offset)}.log"


def sizes(disk: FileSystem, log: PartitionLog) -> list[tuple[int, int]]:
    """What each segment holds, and how long its file is."""
    return [
        (segment.size, disk.file_size(path_of(log, number)))
        for number, segment in enumerate(log.segments)
    ]


def test_most_small_appends_leave_the_size_of_the_file_as_it_is() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, ONE_SEGMENT)
    seen = []
    for number in range(60):
        log.append(producer_batch(number), leader_epoch=0)
        seen.append(disk.file_size(path_of(log, 0)))
    assert log.active.size > ROOM_STEP_BYTES_MIN
    assert set(seen) == {ROOM_STEP_BYTES_MIN, 2 * ROOM_STEP_BYTES_MIN}
    assert len(headers(read_all(log))) == 60


def test_room_is_a_block_for_a_small_segment_and_more_for_a_large_one() -> None:
    assert room_end(1) == room_end(ROOM_STEP_BYTES_MIN) == ROOM_STEP_BYTES_MIN
    assert room_end(ROOM_STEP_BYTES_MAX - 1) == ROOM_STEP_BYTES_MAX
    assert room_end(ROOM_STEP_BYTES_MAX + 1) == 2 * ROOM_STEP_BYTES_MAX


@pytest.mark.parametrize("mode", [FlushMode.OS, FlushMode.INTERVAL])
def test_there_is_no_room_where_nobody_waits_for_syncs(mode: FlushMode) -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, ONE_SEGMENT, flush_mode=mode)
    log.append(producer_batch(0), leader_epoch=0)
    assert sizes(disk, log) == [(log.active.size, log.active.size)]


def test_a_large_append_gets_no_room() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, ONE_SEGMENT)
    log.append(batch(size=ROOM_STEP_BYTES_MIN), leader_epoch=0)
    assert sizes(disk, log) == [(log.active.size, log.active.size)]


def test_a_sealed_segment_ends_with_its_last_batch() -> None:
    disk = MemoryDisk()
    manager, log = new_log(disk, SMALL)
    while len(log.segments) < 3:
        log.append(batch(), leader_epoch=0)
    *sealed, (active_bytes, file_bytes) = sizes(disk, log)
    assert all(data_bytes == bytes_in_file for data_bytes, bytes_in_file in sealed)
    assert active_bytes < file_bytes
    sync(manager)


def test_a_log_that_was_stopped_ends_with_its_last_batch() -> None:
    disk = MemoryDisk()
    manager, log = new_log(disk, ONE_SEGMENT)
    log.append(producer_batch(0), leader_epoch=0)
    sync(manager)
    manager.close()
    assert disk.file_size(path_of(log, 0)) == log.active.size
    again = open_manager(disk, ONE_SEGMENT).get_log(PARTITION)
    assert again is not None
    assert again.end_offset == 1


@pytest.mark.parametrize("count", [1, 40, 41])
def test_a_power_cut_after_a_clean_stop_may_bring_the_room_back(count: int) -> None:
    disk = MemoryDisk()
    manager, log = new_log(disk, ONE_SEGMENT)
    for number in range(count):
        log.append(producer_batch(number), leader_epoch=0)
    sync(manager)
    manager.close()
    assert room_end(log.active.size) - log.active.size > 0
    disk.open_file(path_of(log, 0)).truncate(room_end(log.active.size))
    manager = open_manager(disk, ONE_SEGMENT)
    again = manager.get_log(PARTITION)
    assert again is not None
    assert not manager.problems
    assert (again.end_offset, again.active.size) == (count, log.active.size)
    again.append(producer_batch(count), leader_epoch=0)
    sync(manager)
    assert len(headers(read_all(again))) == count + 1


def test_room_may_be_shorter_than_the_head_of_a_batch() -> None:
    """Guards `_walk_tail`: nothing is left there that looks like a batch."""
    disk = MemoryDisk()
    manager, log = new_log(disk, ONE_SEGMENT)
    overhead = len(batch(size=1_000).buffer) - 1_000
    log.append(batch(size=ROOM_STEP_BYTES_MIN - overhead - 30), leader_epoch=0)
    sync(manager)
    manager.close()
    assert 0 < ROOM_STEP_BYTES_MIN - log.active.size < HEADER_BYTES
    disk.open_file(path_of(log, 0)).truncate(ROOM_STEP_BYTES_MIN)
    manager = open_manager(disk, ONE_SEGMENT)
    again = manager.get_log(PARTITION)
    assert again is not None
    assert not manager.problems
    assert (again.end_offset, again.active.size) == (1, log.active.size)


@pytest.mark.parametrize(
    ("file_bytes", "last"),
    [
        pytest.param(1_000, b"", id="not up to the end of a block"),
        pytest.param(ROOM_STEP_BYTES_MAX + 3 * ROOM_STEP_BYTES_MIN, b"", id="too many"),
        pytest.param(ROOM_STEP_BYTES_MIN, b"x", id="not only zeros"),
    ],
)
def test_other_bytes_behind_the_last_batch_are_damage(file_bytes: int, last: bytes) -> None:
    """Guards `find_room`: after a clean stop such a tail may have been records."""
    disk = MemoryDisk()
    manager, log = new_log(disk, ONE_SEGMENT)
    for number in range(3):
        log.append(producer_batch(number), leader_epoch=0)
    sync(manager)
    manager.close()
    file = disk.open_file(path_of(log, 0))
    file.truncate(file_bytes)
    file.write_at(last, file_bytes - len(last))
    with pytest.raises(QuarantinedLogError):
        open_manager(disk, ONE_SEGMENT).get_log(PARTITION)
    assert disk.file_size(path_of(log, 0)) == file_bytes


def test_zeros_in_the_middle_of_a_compacted_log_are_damage() -> None:
    """Guards `_forgive_room`: such a log may have gaps, and a lost batch must not become one."""
    disk = MemoryDisk()
    manager, log = new_log(disk, replace(SMALL, is_compacted=True))
    while len(log.segments) < 2:
        log.append(batch(), leader_epoch=0)
    let_go(manager)
    first_bytes = log.segments[0].size
    file = disk.open_file(path_of(log, 0))
    file.truncate(first_bytes - len(batch().buffer))
    file.truncate(ROOM_STEP_BYTES_MIN)
    manager = open_manager(disk, replace(SMALL, is_compacted=True))
    again = manager.get_log(PARTITION)
    assert again is not None
    assert again.end_offset == log.segments[1].base_offset - 1
    assert manager.problems


def test_after_a_crash_room_is_no_damage_and_is_used_again() -> None:
    disk = MemoryDisk()
    manager, log = new_log(disk, ONE_SEGMENT)
    for number in range(3):
        log.append(producer_batch(number), leader_epoch=0)
    sync(manager)
    let_go(manager)
    manager = open_manager(disk, ONE_SEGMENT)
    again = manager.get_log(PARTITION)
    assert again is not None
    assert not manager.problems
    assert (again.end_offset, again.active.size) == (3, log.active.size)
    again.append(producer_batch(3), leader_epoch=0)
    assert disk.file_size(path_of(again, 0)) == ROOM_STEP_BYTES_MIN
    sync(manager)
    manager.close()
    assert disk.file_size(path_of(again, 0)) == again.active.size


def test_a_crash_before_the_end_of_a_sealed_segment_was_synced() -> None:
    disk = MemoryDisk()
    manager, log = new_log(disk, SMALL)
    while len(log.segments) < 2:
        log.append(batch(), leader_epoch=0)
    sync(manager)
    let_go(manager)
    # As if the cut of the sealed one had been lost, and the recovery point were the next's start.
    disk.open_file(path_of(log, 0)).truncate(ROOM_STEP_BYTES_MIN)
    points = format_offsets({PARTITION: log.segments[1].base_offset})
    disk.create_file(f"/data/{RECOVERY_POINT_FILE}").write_at(points, 0)
    disk.open_file(path_of(log, 1)).truncate(0)
    recording = RecordingDisk(disk)
    manager = open_manager(recording, SMALL)
    again = manager.get_log(PARTITION)
    assert again is not None
    assert not manager.problems
    assert again.end_offset == log.segments[1].base_offset
    assert len(headers(read_all(again))) == again.end_offset
    # The cut is durable: after a clean stop a sealed segment is not read again.
    lost = recording.after(len(recording.changes), Fate.LOST)
    assert lost.file_size(path_of(again, 0)) == log.segments[0].size


def test_zeros_where_durable_records_were_are_damage() -> None:
    disk = MemoryDisk()
    manager, log = new_log(disk, ONE_SEGMENT)
    for number in range(10):
        log.append(producer_batch(number), leader_epoch=0)
    sync(manager)
    let_go(manager)
    kept = 4 * (log.active.size // 10)
    file = disk.open_file(path_of(log, 0))
    file.write_at(bytes(log.active.size - kept), kept)
    disk.create_file(f"/data/{RECOVERY_POINT_FILE}").write_at(format_offsets({PARTITION: 10}), 0)
    before = disk.read_file(path_of(log, 0))
    with pytest.raises(QuarantinedLogError, match="recovery point"):
        open_manager(disk, ONE_SEGMENT).get_log(PARTITION)
    assert disk.read_file(path_of(log, 0)) == before


def test_a_disk_without_room_for_zeros_takes_the_append() -> None:
    disk = FaultyDisk(MemoryDisk())
    manager, log = new_log(disk, ONE_SEGMENT)
    disk.fail_next("write", errno.ENOSPC)
    log.append(producer_batch(0), leader_epoch=0)
    assert sizes(disk, log) == [(log.active.size, log.active.size)]
    sync(manager)
    assert log.durable_offset == 1
