"""Producer snapshots are stored beside the rounds: never inside one, never before their data."""

import asyncio
import errno
import threading

import pytest

from penstock.core.limits import SNAPSHOT_SLICE_PRODUCERS
from penstock.core.types import TopicPartition
from penstock.storage.log.log_settings import FlushMode, LogSettings
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log.producer_state import ProducerStates
from penstock.storage.log_manager import LogManager
from penstock.storage.service import StorageService
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.logs import (
    PARTITION,
    Clock,
    batch,
    let_go,
    new_log,
    open_manager,
    producer_batch,
    sync,
)

ONE_SEGMENT = LogSettings(segment_bytes=1_000_000, retention_ms=-1)
HOME = "/data/orders-0"


def snapshots(disk: MemoryDisk) -> list[int]:
    return sorted(
        int(name.removesuffix(".snapshot"))
        for name in disk.list_directory(HOME)
        if name.endswith(".snapshot")
    )


def faulty() -> tuple[MemoryDisk, FaultyDisk, LogManager, PartitionLog]:
    memory = MemoryDisk()
    disk = FaultyDisk(memory)
    manager, log = new_log(disk, ONE_SEGMENT)
    log.append(producer_batch(0), leader_epoch=0)
    manager.flushers[0].sync_now()
    return memory, disk, manager, log


def test_a_round_writes_no_snapshot() -> None:
    """Guards a round against work whose size is the number of producers."""
    memory, disk, manager, log = faulty()
    log.roll()
    log.append(producer_batch(1), leader_epoch=0)
    disk.operations.clear()
    flusher = manager.flushers[0]
    flusher.sync_now()
    assert log.durable_offset == 2
    assert not [path for _, path in disk.operations if "snapshot" in path]
    flusher.snapshots.write_ready()
    assert snapshots(memory) == [1]
    stored = ProducerStates.from_bytes(memory.read_file(f"{HOME}/{1:020d}.snapshot"), 1)
    assert stored.summary() == {7: (0, 0, 0)}, "as it was when the segment ended"


def test_a_snapshot_waits_for_the_data_below_it() -> None:
    memory, _, manager, log = faulty()
    log.append(producer_batch(1), leader_epoch=0)
    log.roll()
    flusher = manager.flushers[0]
    flusher.snapshots.write_ready()
    assert snapshots(memory) == []
    flusher.sync_now()
    flusher.snapshots.write_ready()
    assert snapshots(memory) == [2]


@pytest.mark.uncompiled
def test_older_snapshots_go_after_the_names_of_newer_ones_are_synced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.storage.log.log_snapshots.PRODUCER_SNAPSHOT_INTERVAL_BYTES", 1)
    memory, disk, manager, log = faulty()
    for number in range(1, 6):
        log.append(producer_batch(number), leader_epoch=0)
        manager.flushers[0].sync_now()
        manager.checkpoint_recovery_points()
        disk.operations.clear()
        manager.flushers[0].snapshots.write_ready()
    assert snapshots(memory) == [4, 5, 6]
    done = [name for name, path in disk.operations if path.startswith(HOME)]
    assert done == ["create", "write", "write", "sync", "sync_directory", "remove"]


def test_a_table_is_copied_once_until_it_is_stored() -> None:
    """Guards the loop against a client that ends segments faster than snapshots are stored."""
    memory, _, manager, log = faulty()
    log.roll()
    first = log.snapshots.taken
    for number in range(1, 4):
        log.append(producer_batch(number), leader_epoch=0)
        log.roll()
    assert log.snapshots.taken is first
    assert log.snapshots.is_missed
    manager.flushers[0].sync_now()
    manager.flushers[0].snapshots.write_ready()
    assert snapshots(memory) == [1]
    manager.checkpoint_recovery_points()
    manager.flushers[0].snapshots.write_ready()
    assert snapshots(memory) == [1, 4]
    assert not log.snapshots.is_missed


def test_retention_keeps_what_the_last_snapshot_does_not_know() -> None:
    """Guards promise 2: a producer whose batches retention deleted is known after a crash."""
    memory, _, manager, log = faulty()
    log.roll()
    log.settings = LogSettings(retention_ms=1)
    flusher = manager.flushers[0]
    flusher.sync_now()
    assert manager.run_retention(10**12) == 0
    flusher.snapshots.write_ready()
    assert manager.run_retention(10**12) == 1
    sync(manager)
    let_go(manager)
    again = open_manager(memory).get_log(PARTITION)
    assert again is not None
    assert again.append(producer_batch(0), leader_epoch=0).is_duplicate


def test_a_log_without_producers_waits_for_no_snapshot() -> None:
    manager, log = new_log(MemoryDisk(), LogSettings(retention_ms=1))
    log.append(batch(), leader_epoch=0)
    log.roll()
    manager.flushers[0].sync_now()
    assert manager.run_retention(10**12) == 1


def test_a_segment_without_a_snapshot_gets_one_after_a_crash() -> None:
    memory, _, manager, log = faulty()
    log.roll()
    log.append(producer_batch(1), leader_epoch=0)
    manager.flushers[0].sync_now()
    let_go(manager)
    manager = open_manager(memory, ONE_SEGMENT)
    manager.checkpoint_recovery_points()
    manager.flushers[0].snapshots.write_ready()
    assert snapshots(memory) == [2]


@pytest.mark.parametrize("operation", ["create", "write"])
def test_no_room_for_a_snapshot_is_owed_again(operation: str) -> None:
    memory, disk, manager, log = faulty()
    log.roll()
    flusher = manager.flushers[0]
    flusher.sync_now()
    disk.fail_next(operation, errno.ENOSPC)
    flusher.snapshots.write_ready()
    assert flusher.directory.failure is None
    assert log.snapshots.stored_offset == 0
    flusher.snapshots.write_ready()
    assert log.snapshots.stored_offset == 1
    assert snapshots(memory) == [1]


@pytest.mark.parametrize("operation", ["write", "sync", "sync_directory"])
def test_a_failed_snapshot_is_final(operation: str) -> None:
    _, disk, manager, log = faulty()
    log.roll()
    flusher = manager.flushers[0]
    flusher.sync_now()
    disk.fail_next(operation, errno.EIO)
    flusher.snapshots.write_ready()
    assert flusher.directory.failure is not None
    assert log.snapshots.stored_offset == 0


def test_a_snapshot_past_the_end_is_durably_gone() -> None:
    """A log that grows again must not meet a snapshot of batches that a crash took."""
    memory = MemoryDisk()
    manager, log = new_log(memory, ONE_SEGMENT, flush_mode=FlushMode.OS)
    log.append(producer_batch(0), leader_epoch=0)
    sync(manager)
    file = memory.create_file(f"{HOME}/{99:020d}.snapshot")
    file.write_at(log.producers.to_bytes(), 0)
    let_go(manager)
    disk = FaultyDisk(memory)
    open_manager(disk, ONE_SEGMENT)
    gone = disk.operations.index(("remove", f"{HOME}/{99:020d}.snapshot"))
    assert ("sync_directory", HOME) in disk.operations[gone:]


class HeldWriter:
    """A service whose snapshot thread stands still before it creates a file."""

    def __init__(self) -> None:
        self.disk = FaultyDisk(MemoryDisk())
        self.manager, self.log = new_log(self.disk, ONE_SEGMENT)
        self.is_held, self.go_on = threading.Event(), threading.Event()
        self.moved = asyncio.Event()
        self.service = StorageService(
            self.manager,
            Clock(),
            on_durable=lambda _logs: self.moved.set(),
            on_failure=lambda _path, _error: None,
        )
        self.disk.hook = self.hold
        self.service.start(asyncio.get_running_loop())

    def hold(self, operation: str, path: str) -> None:
        if operation == "create" and path.endswith(".snapshot"):
            self.is_held.set()
            assert self.go_on.wait(5)

    async def durable(self, sequence: int) -> None:
        self.moved.clear()
        self.log.append(producer_batch(sequence), leader_epoch=0)
        self.service.schedule_flush()
        await asyncio.wait_for(self.moved.wait(), 5)


def test_appends_are_durable_while_a_snapshot_is_being_stored() -> None:
    async def go() -> None:
        held = HeldWriter()
        await held.durable(0)
        held.log.roll()
        await held.durable(1)
        assert await asyncio.to_thread(held.is_held.wait, 5)
        await held.durable(2)
        assert held.log.durable_offset == 3
        held.go_on.set()
        await held.service.stop()

    asyncio.run(go())


def test_a_deletion_waits_for_the_snapshot_of_its_log() -> None:
    """Guards a new log of the same name against a file of the old one."""

    async def go() -> None:
        held = HeldWriter()
        await held.durable(0)
        held.log.roll()
        await held.durable(1)
        assert await asyncio.to_thread(held.is_held.wait, 5)
        async with asyncio.TaskGroup() as group:
            group.create_task(held.service.delete_logs([PARTITION]))
            for _ in range(5):
                await asyncio.sleep(0)
            assert PARTITION in held.manager.logs
            held.go_on.set()
        assert PARTITION not in held.manager.logs
        await held.service.stop()

    asyncio.run(go())


def test_packing_is_cut_into_slices_and_can_be_abandoned() -> None:
    _, _, manager, log = faulty()
    for number in range(3 * SNAPSHOT_SLICE_PRODUCERS):
        log.append(producer_batch(0, producer_id=100 + number), leader_epoch=0)
    log.roll()
    sync_only = manager.flushers[0]
    sync_only.sync_now()
    job = sync_only.snapshots.begin()
    assert job is not None
    sizes = [len(part) for part in job.snapshot.producers.parts(SNAPSHOT_SLICE_PRODUCERS)]
    assert len(sizes) == 4
    assert max(sizes) == sizes[0]
    sync_only.snapshots.abandon()
    sync_only.snapshots.execute(job)
    assert not job.is_stored
    assert sync_only.snapshots.complete(job), "it is owed again"
    sync_only.snapshots.write_ready()
    assert log.snapshots.stored_offset == log.end_offset
    assert manager.get_log(TopicPartition("orders", 0)) is log
