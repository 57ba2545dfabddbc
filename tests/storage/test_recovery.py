"""Loading a log after a stop, a crash and damage: torn tails are cut, durable data never."""

import zlib
from dataclasses import replace

import pytest

from penstock.core.errors import QuarantinedLogError
from penstock.core.types import TopicPartition
from penstock.records.batch import HEADER
from penstock.storage.disk.checkpoint import RECOVERY_POINT_FILE, format_offsets
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log.segment import segment_name
from penstock.storage.log_manager import LogManager
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from penstock.testing.recording_disk import Fate, RecordingDisk
from tests.storage.logs import (
    PARTITION,
    SMALL,
    TOPIC_ID,
    batch,
    headers,
    let_go,
    new_log,
    open_manager,
    producer_batch,
    read_all,
    sync,
)

LOG = "/data/orders-0/00000000000000000000.log"
ONE_SEGMENT = LogSettings(index_interval_bytes=200, retention_ms=-1)


def crashed(count: int = 30, settings: LogSettings = ONE_SEGMENT) -> MemoryDisk:
    """A disk after kill -9: everything written is there, no point was checkpointed."""
    disk = MemoryDisk()
    manager, log = new_log(disk, settings)
    for number in range(count):
        log.append(producer_batch(number), leader_epoch=number // 10)
    sync(manager)
    # Without the room behind it, so that tests can count batches by the size of the file.
    active = log.active
    disk.open_file(f"{active.directory}/{segment_name(active.base_offset)}.log").truncate(
        active.size
    )
    let_go(manager)
    return disk


def reopened(
    disk: MemoryDisk | FaultyDisk, settings: LogSettings = ONE_SEGMENT
) -> tuple[LogManager, PartitionLog]:
    manager = open_manager(disk, settings)
    log = manager.get_log(PARTITION)
    assert log is not None
    log.validate()
    return manager, log


def set_recovery_point(disk: MemoryDisk, offset: int) -> None:
    data = format_offsets({PARTITION: offset})
    disk.create_file(f"/data/{RECOVERY_POINT_FILE}").write_at(data, 0)


def test_after_kill_nothing_is_lost() -> None:
    manager, log = reopened(crashed())
    assert log.end_offset == log.durable_offset == 30
    assert log.latest_epoch == 2
    assert log.producers.entries[7].batches[-1].last_sequence == 29
    assert not manager.problems


@pytest.mark.parametrize("cut", [1, 30, 60, 61, 97])
def test_a_torn_tail_is_cut(cut: int) -> None:
    disk = crashed()
    file = disk.open_file(LOG)
    size = file.size() // 30
    file.truncate(file.size() - cut)
    manager, log = reopened(disk)
    assert log.end_offset == 29
    assert disk.file_size(LOG) == 29 * size
    assert manager.problems[0].is_served
    assert log.producers.entries[7].batches[-1].last_sequence == 28


@pytest.mark.parametrize("tail", [b"\0" * 500, b"\xff" * 500, b"garbage", HEADER.pack(*range(13))])
def test_a_tail_of_garbage_is_cut(tail: bytes) -> None:
    disk = crashed()
    disk.open_file(LOG).write_at(tail, disk.file_size(LOG))
    _, log = reopened(disk)
    assert log.end_offset == 30
    assert len(headers(read_all(log))) == 30


def flip(disk: MemoryDisk, path: str, position: int) -> None:
    data = disk.find(path).data
    data[position] ^= 0x40


@pytest.mark.parametrize("field", [1, 9, 12, 16, 20, 21, 30, 59, 65])
def test_any_damage_above_the_recovery_point_ends_the_log(field: int) -> None:
    disk = crashed()
    size = disk.file_size(LOG) // 30
    flip(disk, LOG, 20 * size + field)
    _, log = reopened(disk)
    # A leader epoch that is too high shows only in the batch after it.
    expected = 21 if field == 12 else 20
    assert log.end_offset == expected
    assert log.append(producer_batch(expected), leader_epoch=5).base_offset == expected


@pytest.mark.parametrize("field", [1, 9, 12, 16, 20, 21, 30, 59, 65])
def test_damage_below_the_recovery_point_is_never_cut(field: int) -> None:
    disk = crashed()
    size = disk.file_size(LOG) // 30
    flip(disk, LOG, 20 * size + field)
    set_recovery_point(disk, 22)
    before = disk.read_file(LOG)
    manager = open_manager(disk, ONE_SEGMENT)
    with pytest.raises(QuarantinedLogError, match="recovery point"):
        manager.get_log(PARTITION)
    assert [problem.is_served for problem in manager.problems] == [False]
    assert disk.read_file(LOG) == before
    manager.close()
    again = open_manager(disk, ONE_SEGMENT)
    with pytest.raises(QuarantinedLogError):
        again.get_log(PARTITION)


def test_a_log_shorter_than_its_recovery_point_is_quarantined() -> None:
    disk = crashed()
    disk.open_file(LOG).truncate(disk.file_size(LOG) // 2)
    set_recovery_point(disk, 30)
    with pytest.raises(QuarantinedLogError):
        open_manager(disk, ONE_SEGMENT).get_log(PARTITION)


def test_a_missing_segment_below_the_recovery_point_is_quarantined() -> None:
    disk = crashed(60, SMALL)
    set_recovery_point(disk, 60)
    for name in disk.list_directory("/data/orders-0"):
        if name.endswith(".log"):
            disk.remove_file(f"/data/orders-0/{name}")
    with pytest.raises(QuarantinedLogError, match="no segment"):
        open_manager(disk, SMALL).get_log(PARTITION)


def test_segments_behind_a_torn_one_go() -> None:
    disk = crashed(60, SMALL)
    segments = sorted(n for n in disk.list_directory("/data/orders-0") if n.endswith(".log"))
    assert len(segments) > 3
    second = f"/data/orders-0/{segments[1]}"
    disk.open_file(second).truncate(disk.file_size(second) - 5)
    _, log = reopened(disk, SMALL)
    assert len(log.segments) == 2
    assert log.end_offset == int(segments[2].removesuffix(".log")) - 1
    left = [n for n in disk.list_directory("/data/orders-0") if n.endswith(".log")]
    assert sorted(left) == segments[:2]


def test_only_what_is_past_the_recovery_point_is_read() -> None:
    disk = crashed(3_000)
    set_recovery_point(disk, 2_990)
    watched = FaultyDisk(disk)
    read_bytes = 0

    def count(operation: str, path: str) -> None:
        nonlocal read_bytes
        if operation == "read" and path.endswith(".log"):
            read_bytes += 1

    watched.hook = count
    # A clean stop leaves a snapshot, which saves the replay of the records below it.
    manager, _ = reopened(disk)
    manager.close()
    disk.remove_file("/data/.kafka_cleanshutdown")
    flip(disk, LOG, 40)
    _, log = reopened(watched, ONE_SEGMENT)
    assert log.end_offset == 3_000, "damage far below is not looked for at a start"
    assert read_bytes < 12


def test_a_torn_index_is_rebuilt() -> None:
    disk = crashed(300)
    manager, _ = reopened(disk)
    manager.close()
    good = {
        suffix: disk.read_file(f"/data/orders-0/00000000000000000000.{suffix}")
        for suffix in ("index", "timeindex")
    }
    disk.remove_file("/data/.kafka_cleanshutdown")
    disk.open_file("/data/orders-0/00000000000000000000.index").write_at(bytes(40), 16)
    manager, log = reopened(disk)
    assert log.read(250, 9, offset_limit=300, at_least_one=True, nowait=True).first_offset == 250
    manager.close()
    for suffix, data in good.items():
        assert disk.read_file(f"/data/orders-0/00000000000000000000.{suffix}") == data


@pytest.mark.parametrize("clean", [True, False])
def test_missing_indexes_are_made(clean: bool) -> None:
    disk = crashed(100)
    manager, _ = reopened(disk)
    manager.close()
    if not clean:
        disk.remove_file("/data/.kafka_cleanshutdown")
    for suffix in ("index", "timeindex"):
        disk.remove_file(f"/data/orders-0/00000000000000000000.{suffix}")
    _, log = reopened(disk)
    assert log.end_offset == 100
    assert log.read(50, 9, offset_limit=100, at_least_one=True, nowait=True).first_offset == 50


def test_sealed_segments_get_their_whole_index_back() -> None:
    disk = crashed(60, SMALL)
    path = "/data/orders-0/00000000000000000000.index"
    good = disk.read_file(path)
    assert good
    disk.open_file(path).truncate(10_000)
    reopened(disk, SMALL)
    assert disk.read_file(path) == good


def test_indexes_without_data_are_removed() -> None:
    disk = crashed()
    disk.create_file("/data/orders-0/00000000000000000099.index").write_at(b"12345678", 0)
    reopened(disk)
    assert "00000000000000000099.index" not in disk.list_directory("/data/orders-0")


def test_a_clean_start_reads_no_data() -> None:
    disk = crashed(500)
    manager, _ = reopened(disk)
    manager.close()
    watched = FaultyDisk(disk)
    reads: list[str] = []
    watched.hook = lambda name, path: reads.append(path) if name == "read" else None
    _, log = reopened(watched)
    assert log.end_offset == 500
    assert sum(path.endswith(".log") for path in reads) <= 3


def test_half_a_batch_after_a_clean_stop_is_quarantined() -> None:
    disk = crashed()
    manager, _ = reopened(disk)
    manager.close()
    disk.open_file(LOG).truncate(disk.file_size(LOG) - 3)
    with pytest.raises(QuarantinedLogError):
        open_manager(disk, ONE_SEGMENT).get_log(PARTITION)


def test_a_corrupt_snapshot_is_replaced_by_a_replay() -> None:
    disk = crashed(60, SMALL)
    manager, log = reopened(disk, SMALL)
    expected = log.producers.summary()
    manager.close()
    newest = max(n for n in disk.list_directory("/data/orders-0") if n.endswith(".snapshot"))
    flip(disk, f"/data/orders-0/{newest}", 12)
    _, log = reopened(disk, SMALL)
    assert log.producers.summary() == expected


def test_an_unreadable_recovery_checkpoint_means_verify_everything() -> None:
    disk = crashed()
    disk.create_file(f"/data/{RECOVERY_POINT_FILE}").write_at(b"rubbish", 0)
    manager, log = reopened(disk)
    assert log.end_offset == 30
    assert "verified" in manager.problems[0].message


def test_an_interrupted_compaction_of_the_last_segment_is_no_compaction() -> None:
    disk = crashed()
    disk.create_file("/data/orders-0/00000000000000000000.log.swap")
    with pytest.raises(QuarantinedLogError, match="compaction"):
        open_manager(disk, ONE_SEGMENT).get_log(PARTITION)
    assert disk.file_size(LOG)


def test_a_damaged_segment_of_an_interrupted_compaction_replaces_nothing() -> None:
    disk = crashed(settings=SMALL)
    data = bytearray(disk.read_file(LOG))
    data[100] ^= 1
    for damaged in (data, data[:-1], data[:30]):
        disk.create_file(f"{LOG}.swap").write_at(damaged[:200], 0)
        before = sorted(disk.list_directory("/data/orders-0"))
        manager = open_manager(disk, SMALL)
        with pytest.raises(QuarantinedLogError, match="interrupted compaction"):
            manager.get_log(PARTITION)
        let_go(manager)
        assert sorted(disk.list_directory("/data/orders-0")) == before


def test_an_interrupted_compaction_of_kafka_is_finished() -> None:
    disk = crashed(settings=SMALL)
    segments = sorted(
        name for name in disk.list_directory("/data/orders-0") if name.endswith(".log")
    )
    last = headers(disk.read_file(LOG))[-1]
    data = disk.read_file(LOG)[-last.size_bytes :]
    disk.create_file(f"{LOG}.swap").write_at(data, 0)
    for name in (f"{segments[1]}.deleted", "00000000000000000900.log.cleaned"):
        disk.create_file(f"/data/orders-0/{name}")
    manager = open_manager(disk, replace(SMALL, is_compacted=True))
    assert manager.problems == []
    log = manager.get_log(PARTITION)
    assert log is not None
    assert log.end_offset == 30
    answer = log.read(0, 1, offset_limit=30, at_least_one=True, nowait=False)
    assert headers(bytes(answer.records)) == [last]
    names = disk.list_directory("/data/orders-0")
    assert not [name for name in names if name.endswith((".swap", ".cleaned", ".deleted"))]


def test_old_message_formats_are_not_taken_for_damage() -> None:
    disk = crashed(2)
    body = b"\x01\x00" + bytes(8) + b"\xff\xff\xff\xff\x00\x00\x00\x30" + b"v" * 48
    crc = zlib.crc32(body).to_bytes(4, "big")
    message = (2).to_bytes(8, "big") + (len(body) + 4).to_bytes(4, "big") + crc + body
    disk.open_file(LOG).write_at(message, disk.file_size(LOG))
    with pytest.raises(QuarantinedLogError, match="v0 or v1"):
        open_manager(disk, ONE_SEGMENT).get_log(PARTITION)


def test_gaps_are_allowed_in_a_compacted_log_only() -> None:
    disk = crashed(3)
    made = batch()
    size = disk.file_size(LOG)
    made.buffer[:8] = (10).to_bytes(8, "big")
    made.buffer[12:16] = (0).to_bytes(4, "big")
    disk.open_file(LOG).write_at(made.buffer, size)
    compacted = LogSettings(index_interval_bytes=200, is_compacted=True)
    _, log = reopened(RecordingDisk(disk).after(0, Fate.KEPT), compacted)
    assert log.end_offset == 11
    answer = log.read(5, 999, offset_limit=11, at_least_one=True, nowait=True)
    assert answer.first_offset == 10
    _, strict = reopened(disk)
    assert strict.end_offset == 3


def test_other_partitions_are_served_beside_a_damaged_one() -> None:
    disk = crashed()
    manager, _ = reopened(disk)
    other = TopicPartition("other", 1)
    manager.create_log(other, TOPIC_ID, ONE_SEGMENT).append(batch(), leader_epoch=0)
    sync(manager)
    let_go(manager)
    flip(disk, LOG, 40)
    set_recovery_point(disk, 30)
    manager = open_manager(disk, ONE_SEGMENT)
    log = manager.get_log(other)
    assert log is not None
    assert log.end_offset == 1
