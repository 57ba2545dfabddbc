"""A clean close syncs only unsynced data, ends at its deadline, and then leaves no clean marker."""

from uuid import UUID

import pytest

from penstock.core.stopping import StopDeadline
from penstock.core.types import TopicPartition
from penstock.storage import clean_close
from penstock.storage.disk.checkpoint import RECOVERY_POINT_FILE, parse_offsets
from penstock.storage.log.log_settings import FlushMode, LogSettings
from penstock.storage.log_manager import LogManager
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.logs import (
    PARTITION,
    TOPIC_ID,
    Clock,
    batch,
    let_go,
    new_log,
    open_manager,
    producer_batch,
    read_all,
    sync,
)

MARKER = ".kafka_cleanshutdown"
LARGE = LogSettings(segment_bytes=100_000_000, index_interval_bytes=100, retention_ms=-1)
SYNC_SECONDS = 0.5


class SlowDisk(FaultyDisk):
    """A disk whose syncs move a clock."""

    def __init__(self, disk: MemoryDisk, clock: Clock) -> None:
        super().__init__(disk)
        self.hook = self.count
        self.clock = clock
        self.seconds_each = 0.0

    def count(self, operation: str, _path: str) -> None:
        """Let a sync take its time."""
        if operation in ("sync", "sync_directory"):
            self.clock.seconds += self.seconds_each

    def in_logs(self, *names: str) -> list[str]:
        """Paths inside logs' directories that these operations were called with."""
        return [
            path
            for operation, path in self.operations
            if operation in names and path.startswith(("/data/t-", "/data/orders-"))
        ]


def begun(clock: Clock, seconds: float) -> StopDeadline:
    deadline = StopDeadline(clock, seconds)
    deadline.begin()
    return deadline


def filled(disk: FaultyDisk, logs: int, flush_mode: FlushMode, *, size: int = 30) -> LogManager:
    """A manager whose logs have one batch each, which is synced in mode `always`."""
    manager = open_manager(disk, LARGE, flush_mode=flush_mode)
    for number in range(logs):
        partition = TopicPartition("t", number)
        log = manager.create_log(partition, UUID(int=number + 1), LARGE)
        log.append(batch(size=size), leader_epoch=0)
    if flush_mode is FlushMode.ALWAYS:
        sync(manager)
    else:
        manager.flushers[0].take_acknowledged()
    return manager


def test_logs_without_records_cost_a_stop_nothing() -> None:
    """Guards the stop of 5,000 new partitions, which took 21 s of syncs."""
    slow = SlowDisk(MemoryDisk(), Clock())
    manager = open_manager(slow)
    for number in range(20):
        manager.create_log(TopicPartition("t", number), TOPIC_ID, LARGE)
    slow.operations.clear()
    manager.close()
    assert slow.in_logs("sync", "sync_directory", "create", "write") == []
    assert MARKER in slow.list_directory("/data")


def test_the_first_batch_of_a_log_that_a_start_found_empty_syncs_its_names() -> None:
    """Guards what the stop above left out: names that no sync ever covered."""
    disk = MemoryDisk()
    manager, _ = new_log(disk)
    manager.close()
    slow = SlowDisk(disk, Clock())
    manager = open_manager(slow)
    log = manager.get_log(PARTITION)
    assert log is not None
    slow.operations.clear()
    log.append(batch(), leader_epoch=0)
    sync(manager)
    assert ("sync_directory", "/data/orders-0") in slow.operations
    assert ("sync", "/data/orders-0/partition.metadata") in slow.operations
    manager.close()
    assert read_again(disk, PARTITION) != b""


def test_records_that_a_round_synced_are_not_synced_again() -> None:
    slow = SlowDisk(MemoryDisk(), Clock())
    manager = filled(slow, 10, FlushMode.ALWAYS)
    slow.operations.clear()
    manager.close()
    assert slow.in_logs("sync", "sync_directory") == []
    assert MARKER in slow.list_directory("/data")


def test_records_that_no_round_synced_are_synced() -> None:
    slow = SlowDisk(MemoryDisk(), Clock())
    manager = filled(slow, 10, FlushMode.OS)
    slow.operations.clear()
    manager.close()
    synced = slow.in_logs("sync")
    for number in range(10):
        assert f"/data/t-{number}/00000000000000000000.log" in synced
    assert MARKER in slow.list_directory("/data")


def test_at_the_deadline_no_marker_is_written_and_nothing_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Guards SIGTERM on a busy disk: the close ends at its deadline, not after the last log."""
    disk = MemoryDisk()
    clock = Clock()
    slow = SlowDisk(disk, clock)
    manager = filled(slow, 200, FlushMode.OS)
    slow.seconds_each = SYNC_SECONDS
    slow.operations.clear()
    manager.close(begun(clock, 3.0))
    synced = sum(path.endswith(".log") for path in slow.in_logs("sync"))
    assert synced == 64, "one slice was begun before the deadline"
    assert MARKER not in disk.list_directory("/data")
    assert "136 of 200 logs not synced" in caplog.text
    points = parse_offsets(disk.read_file(f"/data/{RECOVERY_POINT_FILE}"))
    assert sum(points.values()) == 64, "the points say what is synced, and no more"
    assert all(read_again(disk, TopicPartition("t", number)) for number in (0, 63, 64, 199))


def test_a_large_index_is_synced_and_without_it_there_is_no_marker() -> None:
    """Guards the marker: a start trusts a large index, so it must be on the disk."""
    for is_late in (False, True):
        clock = Clock()
        slow = SlowDisk(MemoryDisk(), clock)
        manager, log = new_log(slow, LARGE)
        for _ in range(600):
            log.append(batch(size=90), leader_epoch=0)
        sync(manager)
        slow.operations.clear()
        manager.close(begun(clock, 0.0 if is_late else 1.0))
        synced = "/data/orders-0/00000000000000000000.index" in slow.in_logs("sync")
        assert (synced, MARKER in slow.list_directory("/data")) == (not is_late, not is_late)


def test_small_logs_get_a_second_and_the_stop_is_clean_without_the_rest() -> None:
    """Guards the stop of 10,000 partitions with data: three new files each took seconds."""
    disk = MemoryDisk()
    clock = Clock()
    slow = SlowDisk(disk, clock)
    manager = filled(slow, 200, FlushMode.ALWAYS)

    def create(operation: str, _path: str) -> None:
        if operation == "create":
            clock.seconds += 0.01

    slow.hook = create
    slow.operations.clear()
    manager.close(begun(clock, 4.0))
    written = sum(path.endswith(".snapshot") for path in slow.in_logs("create"))
    assert 0 < written < 200
    assert clean_close._SMALL_LOGS_SECONDS <= clock.seconds < 4.0
    assert MARKER in disk.list_directory("/data")
    assert all(read_again(disk, TopicPartition("t", number)) for number in (0, 199))


def test_a_snapshot_that_a_stop_did_not_sync_is_synced_before_segments_go() -> None:
    """Guards producers: after the segments are removed, the snapshot alone remembers them."""
    disk = MemoryDisk()
    settings = LogSettings(segment_bytes=500, index_interval_bytes=100, retention_ms=-1)
    manager, log = new_log(disk, settings)
    for sequence in range(12):
        log.append(producer_batch(sequence), leader_epoch=0)
    sync(manager)
    manager.close()
    small = LogSettings(
        segment_bytes=500, index_interval_bytes=100, retention_ms=-1, retention_bytes=300
    )
    watched = FaultyDisk(disk)
    manager = open_manager(watched, small)
    watched.operations.clear()
    assert manager.run_retention(0) > 0
    snapshot = watched.operations.index(("sync", "/data/orders-0/00000000000000000012.snapshot"))
    removed = watched.operations.index(("remove", "/data/orders-0/00000000000000000000.log"))
    assert snapshot < removed
    let_go(manager)


def read_again(disk: MemoryDisk, partition: TopicPartition) -> bytes:
    """What the next start serves of a partition."""
    manager = open_manager(disk, LARGE)
    log = manager.get_log(partition)
    assert log is not None
    log.validate()
    found = read_all(log)
    let_go(manager)
    return found
