"""A replica's log: the leader's bytes as they are, the state of a recovery, or nothing at all."""

import errno
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import DiskFullError, InvalidReplicaBatchError, StorageError
from penstock.core.limits import SEGMENT_RELATIVE_OFFSET_MAX
from penstock.records.batch import patch_for_append
from penstock.records.control import Marker, build_marker
from penstock.records.crc32c import checksum
from penstock.storage.log.log_settings import FlushMode, LogSettings
from penstock.storage.log.log_types import ReplicaAppend
from penstock.storage.log.partition_log import PartitionLog
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from penstock.testing.recording_disk import Fate, RecordingDisk
from tests.crash.workload import aborted, indexed, remembered, replayed
from tests.storage.logs import (
    PARTITION,
    SMALL,
    batch,
    let_go,
    new_log,
    open_manager,
    read_all,
    sync,
)
from tests.storage.replicas import batches_of, chunks, leader_log, stored
from tests.storage.transactions import transactional_batch


def placed(base_offset: int, epoch: int = 0, count: int = 1) -> bytearray:
    """A batch as a leader stores it."""
    data = bytearray(batch(count).buffer)
    patch_for_append(data, 0, base_offset=base_offset, leader_epoch=epoch)
    return data


def joined(*parts: bytes | bytearray) -> memoryview:
    return memoryview(b"".join(parts))


# --- Equal to the leader ---


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), segment_bytes=st.integers(200, 6_000), has_gaps=st.booleans())
def test_a_replica_has_the_bytes_and_the_state_of_its_leader(
    seed: int, segment_bytes: int, *, has_gaps: bool
) -> None:
    choice = random.Random(seed)
    leader = leader_log(choice, 30)
    batches = batches_of(leader)
    if has_gaps:
        batches = [made for made in batches if choice.random() < 0.8] or batches
    settings_here = LogSettings(
        segment_bytes=segment_bytes,
        segment_ms=choice.choice((200, 1 << 40)),
        index_interval_bytes=choice.choice((0, 100, 4_096)),
        retention_ms=-1,
    )
    disk = MemoryDisk()
    manager, log = new_log(disk, settings_here)
    for chunk in chunks(choice, batches):
        result = log.append_replica(chunk, leader_epoch=leader.latest_epoch, allow_gaps=has_gaps)
        assert result.last_offset + 1 == log.end_offset
        log.validate()
        if choice.random() < 0.3:
            sync(manager)
    sync(manager)
    assert log.durable_offset == log.end_offset
    assert stored(log.segments) == b"".join(batches)
    assert served(log) == b"".join(batches)
    check_state(log)
    if not has_gaps:
        assert remembered(log.producers) == remembered(leader.producers)
        assert log.epochs.entries == leader.epochs.entries
        assert indexed(log) == indexed(leader)
        assert log.first_undecided(log.end_offset) == leader.first_undecided(leader.end_offset)
    let_go(manager)
    again = open_manager(disk, settings_here)
    assert again.problems == []
    loaded = again.logs[PARTITION]
    assert (loaded.end_offset, stored(loaded.segments)) == (log.end_offset, b"".join(batches))
    assert loaded.epochs.entries == log.epochs.entries


def served(log: PartitionLog) -> bytes:
    """Everything that a consumer reads, gaps passed over."""
    offset, data = 0, b""
    while offset < log.end_offset:
        answer = log.read(offset, 700, offset_limit=log.end_offset, at_least_one=True, nowait=True)
        data += bytes(answer.records)
        assert answer.next_offset > offset
        offset = answer.next_offset
    return data


def check_state(log: PartitionLog) -> None:
    """The state in memory is that of reading every batch."""
    assert remembered(log.producers) == remembered(replayed(log))
    assert indexed(log) == aborted(log)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_many_batches_at_once_are_indexed_as_one_after_the_other(seed: int) -> None:
    choice = random.Random(seed)
    leader = leader_log(choice, 40)
    here = LogSettings(
        segment_bytes=choice.choice((700, 3_000)),
        segment_ms=choice.choice((300, 1 << 40)),
        index_interval_bytes=choice.choice((0, 150)),
        retention_ms=-1,
    )
    _, together = new_log(MemoryDisk(), here)
    together.append_replica(joined(*batches_of(leader)), leader_epoch=leader.latest_epoch)
    _, alone = new_log(MemoryDisk(), here)
    for made in batches_of(leader):
        alone.append_replica(joined(made), leader_epoch=leader.latest_epoch)
    assert [index_of(together, number) for number in range(len(together.segments))] == [
        index_of(alone, number) for number in range(len(alone.segments))
    ]


def index_of(log: PartitionLog, number: int) -> tuple[int, int, int, bytes, bytes]:
    segment = log.segments[number]
    return (
        segment.base_offset,
        segment.size,
        segment.max_timestamp_ms,
        segment.offset_index.read_all(),
        segment.time_index.read_all(),
    )


def test_the_result_names_the_offsets_the_batches_and_the_bytes() -> None:
    _, log = new_log(MemoryDisk())
    chunk = joined(placed(0, count=3), placed(3, count=2))
    assert log.append_replica(chunk, leader_epoch=0) == ReplicaAppend(0, 4, 2, len(chunk))
    assert log.shared.bytes_waiting == len(chunk)
    assert log.is_dirty


def test_a_chunk_is_one_write_for_each_segment() -> None:
    disk = RecordingDisk()
    _, log = new_log(disk, replace(SMALL, segment_bytes=1 << 20))
    before = len(disk.changes)
    log.append_replica(joined(*(placed(offset) for offset in range(200))), leader_epoch=0)
    writes = [change for change in disk.changes[before:] if change.label.endswith(".log")]
    assert len(writes) == 1


# --- Refused as a whole ---


def wrong_checksum(data: bytearray) -> None:
    data[-1] ^= 1


def wrong_magic(data: bytearray) -> None:
    data[16] = 1


def long_length(data: bytearray) -> None:
    data[8:12] = (len(data)).to_bytes(4, "big")


def short_length(data: bytearray) -> None:
    data[8:12] = (20).to_bytes(4, "big")


def low_offset(data: bytearray) -> None:
    data[:8] = (1).to_bytes(8, "big")


def high_offset(data: bytearray) -> None:
    data[:8] = (3).to_bytes(8, "big")


def low_epoch(data: bytearray) -> None:
    data[12:16] = (3).to_bytes(4, "big")


def high_epoch(data: bytearray) -> None:
    data[12:16] = (6).to_bytes(4, "big")


DAMAGE: list[Callable[[bytearray], None]] = [
    wrong_checksum,
    wrong_magic,
    long_length,
    short_length,
    low_offset,
    high_offset,
    low_epoch,
    high_epoch,
]


def unchanged(log: PartitionLog) -> tuple[object, ...]:
    return (
        log.end_offset,
        stored(log.segments),
        remembered(log.producers),
        log.epochs.entries,
        log.is_dirty,
        log.shared.bytes_waiting,
    )


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("is_first", [True, False])
def test_one_bad_batch_refuses_the_whole_chunk(
    damage: Callable[[bytearray], None], *, is_first: bool
) -> None:
    manager, log = new_log(MemoryDisk())
    log.append_replica(joined(placed(0, 4), placed(1, 4)), leader_epoch=4)
    sync(manager)
    before = unchanged(log)
    bad, good = placed(2, 4), placed(2, 5)
    if not is_first:
        good, bad = placed(2, 4), placed(3, 4)
        if damage is high_offset:
            bad[:8] = (9).to_bytes(8, "big")
    if not (damage is high_offset and not is_first):
        damage(bad)
    chunk = joined(bad, good) if is_first else joined(good, bad)
    with pytest.raises(InvalidReplicaBatchError):
        log.append_replica(chunk, leader_epoch=5)
    assert unchanged(log) == before
    log.validate()


def test_an_incomplete_batch_at_the_end_refuses_the_chunk() -> None:
    _, log = new_log(MemoryDisk())
    for size in (1, 60, 80):
        with pytest.raises(InvalidReplicaBatchError):
            log.append_replica(joined(placed(0), placed(1)[:size]), leader_epoch=0)
    with pytest.raises(InvalidReplicaBatchError, match="no batch"):
        log.append_replica(memoryview(b""), leader_epoch=0)
    assert log.end_offset == 0


def test_an_epoch_below_the_last_one_of_the_log_is_refused() -> None:
    _, log = new_log(MemoryDisk())
    log.append_replica(joined(placed(0, 7)), leader_epoch=7)
    with pytest.raises(InvalidReplicaBatchError, match="leader epoch 6"):
        log.append_replica(joined(placed(1, 6)), leader_epoch=8)
    assert log.end_offset == 1


def test_a_marker_that_cannot_be_read_is_refused() -> None:
    _, log = new_log(MemoryDisk())
    first = bytearray(transactional_batch(9, 0).buffer)
    patch_for_append(first, 0, base_offset=0, leader_epoch=0)
    marker = build_marker(
        Marker(is_commit=False, coordinator_epoch=0),
        producer_id=9,
        producer_epoch=0,
        timestamp_ms=1,
        base_offset=1,
        leader_epoch=0,
    )
    log.append_replica(joined(first, marker), leader_epoch=0)
    assert [entry.first_offset for entry in indexed(log)] == [0]
    data = bytearray(batch(2).buffer)
    patch_for_append(data, 0, base_offset=2, leader_epoch=0)
    data[21:23] = (0x30).to_bytes(2, "big")
    with pytest.raises(InvalidReplicaBatchError):
        log.append_replica(joined(data), leader_epoch=0)
    assert log.end_offset == 2


def test_a_closed_log_and_an_overloaded_disk_refuse() -> None:
    _, log = new_log(MemoryDisk())
    log.shared.bytes_waiting = log.shared.bytes_waiting_max + 1
    with pytest.raises(DiskFullError):
        log.append_replica(joined(placed(0)), leader_epoch=0)
    log.close(StorageError("closed"))
    with pytest.raises(StorageError, match="closed"):
        log.append_replica(joined(placed(0)), leader_epoch=0)


# --- Gaps ---


@pytest.mark.parametrize("flush_mode", [FlushMode.ALWAYS, FlushMode.INTERVAL])
def test_the_first_gap_is_noted_before_it_counts_as_durable(flush_mode: FlushMode) -> None:
    disk = RecordingDisk()
    manager, log = new_log(disk, flush_mode=flush_mode)
    log.append_replica(joined(placed(0), placed(5), placed(9)), leader_epoch=0, allow_gaps=True)
    if flush_mode is FlushMode.ALWAYS:
        sync(manager)
    assert log.durable_offset == 10
    fate = Fate.LOST if flush_mode is FlushMode.ALWAYS else Fate.KEPT
    again = open_manager(disk.after(len(disk.changes), fate), flush_mode=flush_mode)
    found = again.logs[PARTITION]
    assert again.problems == []
    assert found.end_offset == 10
    assert len(read_all(found)) == 3 * len(placed(0))


def test_without_the_note_the_gap_is_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = RecordingDisk()
    manager, log = new_log(disk)
    home = manager.home_of(PARTITION)
    monkeypatch.setattr(home, "write_cleaned_offsets", lambda: None)
    log.append_replica(joined(placed(0), placed(5)), leader_epoch=0, allow_gaps=True)
    sync(manager)
    again = open_manager(disk.after(len(disk.changes), Fate.LOST))
    assert again.logs[PARTITION].end_offset == 1


def test_a_full_disk_for_the_note_delays_the_round() -> None:
    recording = RecordingDisk()
    disk = FaultyDisk(recording)
    manager, log = new_log(disk)
    log.append_replica(joined(placed(3)), leader_epoch=0, allow_gaps=True)
    is_full = True

    def hook(_operation: str, path: str) -> None:
        if is_full and "cleaner-offset" in path:
            raise OSError(errno.ENOSPC, "no room")

    disk.hook = hook
    assert manager.flushers[0].sync_now() == []
    assert log.durable_offset == 0
    is_full = False
    assert manager.flushers[0].sync_now() == [log]
    assert log.durable_offset == 4
    again = open_manager(recording.after(len(recording.changes), Fate.LOST))
    assert again.logs[PARTITION].end_offset == 4


def test_a_batch_far_behind_a_gap_begins_a_segment_of_its_own() -> None:
    far = SEGMENT_RELATIVE_OFFSET_MAX + 10
    disk = MemoryDisk()
    manager, log = new_log(disk, replace(SMALL, is_compacted=True))
    log.append_replica(joined(placed(far), placed(far + 1)), leader_epoch=0)
    log.append_replica(joined(placed(3 * far)), leader_epoch=0)
    log.validate()
    assert [segment.base_offset for segment in log.segments] == [0, far, 3 * far]
    assert log.read(
        0, 1_000, offset_limit=log.end_offset, at_least_one=True, nowait=True
    ).first_offset == (far)
    sync(manager)
    manager.close()
    again = open_manager(disk, replace(SMALL, is_compacted=True)).logs[PARTITION]
    assert again.end_offset == 3 * far + 1


def test_a_far_batch_without_room_for_its_segment_changes_nothing() -> None:
    disk = FaultyDisk(MemoryDisk())
    _, log = new_log(disk, replace(SMALL, is_compacted=True))
    disk.fail_next("create", errno.ENOSPC)
    far = joined(placed(SEGMENT_RELATIVE_OFFSET_MAX + 10))
    with pytest.raises(DiskFullError):
        log.append_replica(far, leader_epoch=0)
    assert log.end_offset == 0
    log.validate()


def test_offsets_never_go_back_in_a_log_with_gaps() -> None:
    _, log = new_log(MemoryDisk(), replace(SMALL, is_compacted=True))
    log.append_replica(joined(placed(4, count=3)), leader_epoch=0)
    for base_offset in (0, 6):
        with pytest.raises(InvalidReplicaBatchError, match="do not follow"):
            log.append_replica(joined(placed(base_offset)), leader_epoch=0)
    backwards = placed(9)
    backwards[23:27] = (-2).to_bytes(4, "big", signed=True)
    backwards[17:21] = checksum(memoryview(backwards)[21:]).to_bytes(4, "big")
    with pytest.raises(InvalidReplicaBatchError, match="do not follow"):
        log.append_replica(joined(backwards), leader_epoch=0)
    assert log.end_offset == 7


# --- Lack of room ---


def test_batches_of_earlier_segments_stay_when_a_later_write_finds_no_room() -> None:
    disk = FaultyDisk(MemoryDisk())
    manager, log = new_log(disk, replace(SMALL, segment_bytes=300))
    chunk = joined(*(placed(offset) for offset in range(9)))
    allowed = 1

    def hook(operation: str, path: str) -> None:
        nonlocal allowed
        if operation == "create" and path.endswith(".log"):
            allowed -= 1
            if allowed < 0:
                raise OSError(errno.ENOSPC, "no room")

    disk.hook = hook
    with pytest.raises(DiskFullError):
        log.append_replica(chunk, leader_epoch=0)
    log.validate()
    assert 0 < log.end_offset < 9
    disk.hook = None
    size = len(placed(0))
    log.append_replica(chunk[log.end_offset * size :], leader_epoch=0)
    sync(manager)
    assert stored(log.segments) == bytes(chunk)
    check_state(log)


def test_a_failed_write_leaves_nothing() -> None:
    disk = FaultyDisk(MemoryDisk())
    _, log = new_log(disk)

    def hook(operation: str, path: str) -> None:
        if operation == "write" and path.endswith(".log"):
            raise OSError(errno.ENOSPC, "no room")

    disk.hook = hook
    before = unchanged(log)
    with pytest.raises(DiskFullError):
        log.append_replica(joined(placed(0, 3)), leader_epoch=3)
    assert unchanged(log) == before
    disk.hook = None
    log.append_replica(joined(placed(0, 3)), leader_epoch=3)
    assert log.end_offset == 1
