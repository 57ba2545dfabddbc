"""Group commit: which thread syncs, in which order, and the effect of a failure."""

import errno
import threading

import pytest

from penstock.core.errors import LogDirectoryOfflineError
from penstock.core.limits import SYNC_ON_LOOP_BYTES_MAX
from penstock.core.types import TopicPartition
from penstock.storage.flusher import Flusher, FlushRound, SyncPath, choose_path
from penstock.storage.log.log_settings import FlushMode
from penstock.storage.log.partition_log import PartitionLog
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.logs import SMALL, TOPIC_ID, Clock, batch, new_log, open_manager


@pytest.mark.parametrize(
    ("jobs", "appends", "size", "under_way", "mean_seconds", "path"),
    [
        (0, 0, 100, False, 0.0, SyncPath.NOBODY),
        (1, 1, 100, False, 0.0, SyncPath.CALLER),
        (1, 1, 100, False, 0.0009, SyncPath.CALLER),
        (1, 1, 100, False, 0.001, SyncPath.THREAD),
        (1, 1, SYNC_ON_LOOP_BYTES_MAX, False, 0.0, SyncPath.CALLER),
        (1, 1, SYNC_ON_LOOP_BYTES_MAX + 1, False, 0.0, SyncPath.THREAD),
        (1, 2, 100, False, 0.0, SyncPath.THREAD),
        (2, 2, 100, False, 0.0, SyncPath.THREAD),
        (1, 1, 100, True, 0.0, SyncPath.NOBODY),
        (5, 9, 100, True, 0.0, SyncPath.NOBODY),
    ],
)
def test_who_syncs(
    jobs: int, appends: int, size: int, under_way: bool, mean_seconds: float, path: SyncPath
) -> None:
    chosen = choose_path(
        jobs=jobs,
        appends_waiting=appends,
        bytes_waiting=size,
        is_round_under_way=under_way,
        mean_seconds=mean_seconds,
    )
    assert chosen is path


def faulty() -> tuple[FaultyDisk, Flusher, PartitionLog]:
    disk = FaultyDisk(MemoryDisk())
    manager, log = new_log(disk)
    disk.operations.clear()
    return disk, manager.flushers[0], log


def test_the_order_of_a_new_logs_first_round() -> None:
    disk, flusher, log = faulty()
    log.append(batch(), leader_epoch=3)
    disk.operations.clear()
    flusher.sync_now()
    base = "/data/orders-0"
    done = [entry for entry in disk.operations if entry[0] not in ("open", "create", "write")]
    assert done == [
        ("sync", f"{base}/leader-epoch-checkpoint.tmp"),
        ("rename", f"{base}/leader-epoch-checkpoint"),
        ("sync", f"{base}/partition.metadata"),
        ("sync", f"{base}/00000000000000000000.log"),
        ("sync_directory", base),
        ("sync_directory", "/data"),
    ]
    assert log.durable_offset == 1


def test_a_second_round_is_one_sync() -> None:
    disk, flusher, log = faulty()
    log.append(batch(), leader_epoch=3)
    flusher.sync_now()
    disk.operations.clear()
    log.append(batch(), leader_epoch=3)
    log.append(batch(), leader_epoch=3)
    assert flusher.sync_now() == [log]
    assert [entry for entry in disk.operations if entry[0] != "write"] == [
        ("sync", "/data/orders-0/00000000000000000000.log")
    ]


def test_a_rolled_segment_is_synced_before_the_new_one_counts() -> None:
    disk, flusher, log = faulty()
    while len(log.segments) < 2:
        log.append(batch(), leader_epoch=0)
    disk.operations.clear()
    flusher.sync_now()
    synced = [path for name, path in disk.operations if name == "sync"]
    first, second = (f"/data/orders-0/{s.base_offset:020d}.log" for s in log.segments)
    assert synced.index(first) < synced.index(second)
    assert ("sync_directory", "/data/orders-0") in disk.operations
    assert any(path.endswith(".timeindex") for path in synced)


@pytest.mark.parametrize("operation", ["sync", "sync_directory", "rename"])
def test_a_failed_sync_is_final(operation: str) -> None:
    disk, flusher, log = faulty()
    log.append(batch(), leader_epoch=0)
    disk.fail_next(operation, errno.EIO)
    with pytest.raises(LogDirectoryOfflineError):
        flusher.sync_now()
    assert log.durable_offset == 0
    with pytest.raises(LogDirectoryOfflineError):
        log.append(batch(), leader_epoch=0)
    assert log.durable_offset == 0
    assert not flusher.directory.dirty, "nothing is tried again"


def test_a_file_that_cannot_be_opened_for_its_sync_is_a_failed_sync() -> None:
    disk, flusher, log = faulty()
    log.append(batch(), leader_epoch=0)
    log.active.release_file()
    disk.fail_next("open", errno.EIO)
    with pytest.raises(LogDirectoryOfflineError):
        flusher.sync_now()
    assert log.durable_offset == 0


def test_after_a_failed_sync_reads_go_on() -> None:
    disk, flusher, log = faulty()
    log.append(batch(), leader_epoch=0)
    flusher.sync_now()
    log.append(batch(), leader_epoch=0)
    disk.fail_next("sync", errno.EIO)
    with pytest.raises(LogDirectoryOfflineError):
        flusher.sync_now()
    answer = log.read(0, 999, offset_limit=log.durable_offset, at_least_one=True, nowait=True)
    assert answer.next_offset == 1


def test_an_append_that_failed_makes_the_round_under_way_fail_too() -> None:
    disk, flusher, log = faulty()
    log.append(batch(), leader_epoch=0)
    flush_round = flusher.begin_round()
    disk.fail_next("write", errno.EIO)
    with pytest.raises(LogDirectoryOfflineError):
        log.append(batch(), leader_epoch=0)
    flusher.execute(flush_round)
    with pytest.raises(LogDirectoryOfflineError):
        flusher.complete_round(flush_round)


def test_no_room_for_the_epochs_is_not_the_end() -> None:
    disk, flusher, log = faulty()
    log.append(batch(), leader_epoch=0)
    disk.fail_next("write", errno.ENOSPC)
    assert flusher.sync_now() == []
    assert log.durable_offset == 0
    assert flusher.directory.failure is None
    log.append(batch(), leader_epoch=0)
    assert flusher.sync_now() == [log]
    assert log.durable_offset == 2
    assert disk.read_file("/data/orders-0/leader-epoch-checkpoint") == b"0\n1\n0 0\n"


def test_what_comes_during_a_round_shares_the_next() -> None:
    _, flusher, log = faulty()
    log.append(batch(), leader_epoch=0)
    first = flusher.begin_round()
    assert flusher.path() is SyncPath.NOBODY
    for _ in range(3):
        log.append(batch(), leader_epoch=0)
    flusher.execute(first)
    flusher.complete_round(first)
    assert log.durable_offset == 1
    assert flusher.path() is SyncPath.THREAD
    flusher.sync_now()
    assert log.durable_offset == 4


def test_slow_syncs_move_to_the_thread() -> None:
    disk = FaultyDisk(MemoryDisk())
    clock = Clock()
    manager, log = new_log(disk)
    flusher = manager.flushers[0]
    flusher._clock = clock

    def slow(operation: str, _path: str) -> None:
        clock.seconds += 0.01 if operation == "sync" else 0.0

    disk.hook = slow
    log.append(batch(), leader_epoch=0)
    assert flusher.path() is SyncPath.CALLER
    flusher.sync_now()
    log.append(batch(), leader_epoch=0)
    assert flusher.path() is SyncPath.THREAD
    disk.hook = None
    for _ in range(30):
        log.append(batch(), leader_epoch=0)
        flusher.sync_now()
    log.append(batch(), leader_epoch=0)
    assert flusher.path() is SyncPath.CALLER


def test_the_thread_reports_once_for_each_round() -> None:
    _, flusher, log = faulty()
    reports: list[FlushRound] = []
    done = threading.Event()

    def report(flush_round: FlushRound) -> None:
        reports.append(flush_round)
        done.set()

    flusher.start(report)
    for _ in range(3):
        log.append(batch(), leader_epoch=0)
    flusher.submit(flusher.begin_round())
    assert done.wait(5)
    assert flusher.is_round_under_way
    assert flusher.complete_round(reports[0]) == [log]
    flusher.stop()
    assert len(reports) == 1
    assert log.durable_offset == 3


def test_mode_os_syncs_sealed_segments_only() -> None:
    disk = FaultyDisk(MemoryDisk())
    manager, log = new_log(disk, flush_mode=FlushMode.OS)
    flusher = manager.flushers[0]
    while len(log.segments) < 3:
        log.append(batch(), leader_epoch=0)
    assert flusher.take_acknowledged() == [log]
    assert log.owes_sealed
    flush_round = flusher.begin_owed_round()
    assert flush_round is not None
    disk.operations.clear()
    flusher.execute(flush_round)
    flusher.complete_round(flush_round)
    active = f"/data/orders-0/{log.active.base_offset:020d}.log"
    assert ("sync", active) not in disk.operations
    assert log.synced_offset == log.active.base_offset
    assert log.durable_offset == log.end_offset
    assert flusher.begin_owed_round() is None


def test_many_logs_share_a_round() -> None:
    disk = FaultyDisk(MemoryDisk())
    manager = open_manager(disk)
    logs = [
        manager.create_log(TopicPartition("many", number), TOPIC_ID, SMALL) for number in range(5)
    ]
    for log in logs:
        log.append(batch(), leader_epoch=0)
    disk.operations.clear()
    assert manager.flushers[0].sync_now() == logs
    assert disk.operations.count(("sync_directory", "/data")) == 1
