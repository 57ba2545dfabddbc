"""Leases over real logs: what is linked, what keeps it, and each of its ends."""

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

import pytest

from penstock.core.errors import StorageBusyError
from penstock.core.lease_limits import LEASES_MAX, LEASES_OF_PRINCIPAL_MAX
from penstock.core.types import TopicPartition
from penstock.storage.leases import lease_book, lease_links
from penstock.storage.leases.lease_files import LeaseFiles
from penstock.storage.leases.lease_rules import (
    LeaseRefusedError,
    LeaseUnavailableError,
    LeaseWish,
    SkippedCode,
)
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.leases.leasing import LOW, OPEN, Scene, run
from tests.storage.logs import PARTITION, SMALL, TOPIC_ID, headers, read_all
from tests.storage.transactions import append_verified, end, transactional_batch

DAY_MS = 86_400_000
Result = TypeVar("Result")


def leased_bytes(scene: Scene, path: str) -> bytes:
    """The data of all leased segments, in order."""
    names = sorted(name for name in scene.disk.list_directory(path) if name.endswith(".log"))
    return b"".join(scene.disk.read_file(f"{path}/{name}") for name in names)


def test_sealed_segments_are_linked_byte_for_byte() -> None:
    scene = Scene(MemoryDisk())
    lease = scene.grant()
    (leased,) = lease.partitions
    bases = [one.base_offset for one in scene.log.segments]
    assert len(bases) > 3
    assert [one.base_offset for one in leased.segments] == bases[:-1]
    assert [one.next_offset for one in leased.segments] == bases[1:]
    assert lease.skipped == ()
    data = leased_bytes(scene, lease.path)
    assert data == read_all(scene.log, limit=bases[-1])
    assert len(data) == sum(one.size_bytes for one in leased.segments) == lease.note.size_bytes
    assert all(one.has_offset_index and not one.has_transaction_index for one in leased.segments)
    assert scene.book.notes() == [lease.note]
    scene.book.validate()


def test_the_active_segment_and_unstable_records_are_not_leased() -> None:
    scene = Scene(MemoryDisk())
    second = scene.log.segments[1].base_offset
    lease = scene.grant(stable=second + 1)
    assert [one.base_offset for one in lease.partitions[0].segments] == [0]
    nothing = scene.grant(begin=scene.log.active.base_offset)
    assert nothing.partitions == ()
    assert nothing.skipped == ((0, SkippedCode.NOTHING_SEALED),)
    assert scene.book.notes() == [lease.note], "a lease without files is not one"


def test_retention_does_not_remove_what_is_leased() -> None:
    scene = Scene(MemoryDisk(), replace(SMALL, retention_bytes=1_000))
    lease = scene.grant()
    before = leased_bytes(scene, lease.path)
    assert scene.manager.run_retention(0) > 2
    assert scene.log.log_start_offset > 0
    assert leased_bytes(scene, lease.path) == before
    used = scene.disk.space("/data").free_bytes
    assert run(scene.book.release(lease.note.lease_id))
    assert scene.disk.space("/data").free_bytes > used, "only now the space is free"
    assert not scene.disk.is_directory("/data/leases")
    assert not run(scene.book.release(lease.note.lease_id))


def test_a_lease_ends_at_its_time() -> None:
    scene = Scene(MemoryDisk())
    lease = scene.grant(seconds=60)
    scene.clock.seconds += 59.999
    scene.clock.ms += DAY_MS  # the wall clock may jump
    run(scene.book.keep())
    scene.clock.ms -= 2 * DAY_MS
    run(scene.book.keep())
    assert scene.book.notes() == [lease.note]
    scene.clock.seconds += 0.001
    assert scene.book.notes() == []
    run(scene.book.keep())
    assert not scene.disk.is_directory("/data/leases")


def test_a_restart_keeps_leases_and_removes_those_whose_time_is_over() -> None:
    scene = Scene(MemoryDisk())
    short, long = scene.grant(seconds=10), scene.grant(seconds=1_000)
    scene.disk.make_directory("/data/leases/" + "f" * 32 + ".partial")
    scene.disk.create_file("/data/leases/" + "f" * 32 + ".partial/0-00.log")
    scene.disk.make_directory("/data/leases/" + "e" * 32)  # without its file
    scene.disk.make_directory("/data/leases/notes")  # of an operator
    scene.manager.unlock()
    again = Scene(scene.disk, is_new=False)
    again.clock.seconds += 10
    assert again.book.notes() == [long.note]
    run(again.book.keep())
    assert sorted(again.disk.list_directory("/data/leases")) == sorted(
        [long.note.lease_id, "notes"]
    )
    assert short.note.lease_id not in again.disk.list_directory("/data/leases")
    assert leased_bytes(again, long.path) == read_all(again.log, limit=again.log.active.base_offset)


def test_a_deleted_topic_takes_its_leases_along() -> None:
    scene = Scene(MemoryDisk())
    scene.grant()
    run(scene.book.break_all([TopicPartition("users", 0)]))
    assert len(scene.book.notes()) == 1
    run(scene.book.break_all([PARTITION]))
    assert scene.book.notes() == []
    assert not scene.disk.is_directory("/data/leases")


def test_a_low_disk_ends_the_oldest_lease_that_keeps_space() -> None:
    scene = Scene(MemoryDisk(), replace(SMALL, retention_bytes=2_000))
    head = scene.grant(begin=scene.log.segments[-2].base_offset)
    scene.clock.ms += 1
    scene.grant()
    scene.clock.ms += 1
    newer = scene.grant()
    scene.manager.run_retention(0)
    scene.guard.sample(LOW)
    with pytest.raises(LeaseUnavailableError, match="disk is low"):
        scene.grant()
    run(scene.book.keep())
    kept = [one.lease_id for one in scene.book.notes()]
    assert kept == [head.note.lease_id, newer.note.lease_id]
    run(scene.book.keep())
    assert [one.lease_id for one in scene.book.notes()] == [head.note.lease_id]
    run(scene.book.keep())
    assert scene.book.notes() == [head.note], "the log has its files: it keeps nothing"
    scene.guard.sample(OPEN)
    scene.grant()


def test_there_are_never_more_leases_than_the_limit() -> None:
    scene = Scene(MemoryDisk(), batches=15)

    async def many() -> list[object]:
        wishes = [scene.wish()]
        return list(
            await asyncio.gather(
                *(
                    scene.book.grant(wishes, 60, f"User:{number % 11}")
                    for number in range(LEASES_MAX + 5)
                ),
                return_exceptions=True,
            )
        )

    refused = [one for one in run(many()) if isinstance(one, LeaseUnavailableError)]
    assert len(refused) == 5
    assert len(scene.book.notes()) == LEASES_MAX


def test_one_principal_does_not_take_all_leases() -> None:
    scene = Scene(MemoryDisk(), batches=15)
    for _ in range(LEASES_OF_PRINCIPAL_MAX):
        scene.grant()
    with pytest.raises(LeaseUnavailableError, match="the principal has 20 leases"):
        scene.grant()
    assert run(scene.book.grant([scene.wish()], 60, "User:b")).partitions


def test_a_lease_counts_until_its_files_are_gone() -> None:
    disk = FaultyDisk(MemoryDisk())
    scene = Scene(disk, batches=15)
    for _ in range(LEASES_OF_PRINCIPAL_MAX):
        scene.grant(seconds=1)
    scene.clock.seconds += 1
    assert scene.book.notes() == []
    with pytest.raises(LeaseUnavailableError, match="the principal has 20 leases"):
        scene.grant()
    run(scene.book.keep())
    assert scene.grant().partitions


def test_segments_beyond_the_limit_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(MemoryDisk())
    monkeypatch.setattr(lease_book, "LEASE_SEGMENTS_MAX", 2)
    lease = scene.grant()
    bases = [one.base_offset for one in scene.log.segments]
    assert [one.base_offset for one in lease.partitions[0].segments] == bases[:2]
    assert lease.note.ends == ((0, bases[2]),)
    assert lease.skipped == ((0, SkippedCode.TOO_MANY),)
    other = TopicPartition(PARTITION.topic, 5)
    wishes = [scene.wish(), LeaseWish(other, 0, 10, lambda: 10)]
    skipped = run(scene.book.grant(wishes, 60, "User:a")).skipped
    assert skipped == ((0, SkippedCode.TOO_MANY), (5, SkippedCode.TOO_MANY))


def test_a_log_of_another_topic_with_the_name_is_skipped() -> None:
    scene = Scene(MemoryDisk())
    for topic_id, count in ((TOPIC_ID, 1), (UUID(int=7), 0)):
        wish = scene.wish()._replace(topic_id=topic_id)
        lease = run(scene.book.grant([wish], 60, "User:a"))
        assert len(lease.partitions) == count
    assert lease.skipped == ((0, SkippedCode.OTHER_TOPIC),)


# --- A name is gone before bytes change ---


def test_a_cut_ends_a_lease_whose_time_is_over() -> None:
    scene = Scene(MemoryDisk())
    lease = scene.grant(seconds=1)
    scene.clock.seconds += 1
    run(scene.book.break_all([PARTITION]))
    assert not scene.disk.is_directory(lease.path)


def test_a_cut_waits_for_a_release_under_way() -> None:
    scene = Scene(MemoryDisk())
    lease = scene.grant()

    async def race() -> None:
        gate = asyncio.Event()

        async def slow(call: Callable[[], Result]) -> Result:
            if not gate.is_set():
                await gate.wait()
            return call()

        scene.book._work = slow  # a release that waits for a thread
        async with asyncio.TaskGroup() as group:
            group.create_task(scene.book.release(lease.note.lease_id))
            await asyncio.sleep(0)
            assert scene.book.notes() == []
            cut = group.create_task(scene.book.break_all([PARTITION]))
            for _ in range(5):
                await asyncio.sleep(0)
            assert not cut.done()
            gate.set()
            await cut
            assert not scene.disk.is_directory(lease.path)

    run(race())
    assert not scene.disk.is_directory("/data/leases")


@pytest.mark.parametrize("operation", ["rename", "sync_directory"])
def test_a_cut_fails_while_the_name_of_a_lease_stays(operation: str) -> None:
    disk = FaultyDisk(MemoryDisk())
    scene = Scene(disk)
    scene.grant()
    disk.fail_next(operation, errno.EIO)
    disk.fail_next(operation, errno.EIO)
    for _ in range(2):
        with pytest.raises(StorageBusyError, match="cannot be ended"):
            run(scene.book.break_all([PARTITION]))
        assert scene.book.notes() == [], "nobody may use it any more"
    run(scene.book.break_all([PARTITION]))
    assert not disk.is_directory("/data/leases")


def test_a_release_that_fails_is_repeated() -> None:
    disk = FaultyDisk(MemoryDisk())
    scene = Scene(disk)
    lease = scene.grant()
    disk.fail_next("rename", errno.EIO)
    with pytest.raises(StorageBusyError):
        run(scene.book.release(lease.note.lease_id))
    run(scene.book.keep())
    assert not disk.is_directory("/data/leases")


# --- The disk is low ---


def test_each_data_directory_ends_its_own_leases() -> None:
    """A lease of the topic in another directory does not hide the bytes that this one keeps."""
    scene = Scene(MemoryDisk(), replace(SMALL, retention_bytes=2_000))
    scene.grant()
    scene.disk.make_directory("/other")
    elsewhere = LeaseFiles(scene.disk, "/other")
    note = scene.book.notes()[0]._replace(lease_id="e" * 32)
    scene.book._leases[note.lease_id] = lease_book._Held(note, elsewhere, 1e9)
    scene.manager.run_retention(0)
    scene.guard.sample(LOW)
    run(scene.book.keep())
    assert [one.lease_id for one in scene.book.notes()] == [note.lease_id]


def test_a_file_of_the_same_name_is_another_file() -> None:
    """An older lease has the segment from before its compaction."""
    scene = Scene(MemoryDisk())
    old = scene.grant()
    files = scene.book._leases[old.note.lease_id].files
    name = next(one for one in scene.names(old) if one.endswith(".log"))
    path = f"{scene.log.directory}/{name.partition('-')[2]}"
    data = scene.disk.read_file(path)
    scene.disk.remove_file(path)
    scene.disk.create_file(path).write_at(data, 0)
    new = scene.grant()
    ids = [old.note.lease_id, new.note.lease_id]
    assert files.held_bytes(new.note.lease_id, ids) == 0, "the log has all its files"
    assert files.held_bytes(old.note.lease_id, ids) == len(data)
    # A lease that ended meanwhile has no files, and hides none.
    assert files.held_bytes(old.note.lease_id, [*ids, "f" * 32]) == len(data)


@pytest.mark.parametrize("operation", ["link", "create", "write", "sync", "rename"])
def test_a_failed_grant_leaves_nothing(operation: str) -> None:
    disk = FaultyDisk(MemoryDisk())
    scene = Scene(disk)
    disk.fail_next(operation, errno.ENOSPC)
    with pytest.raises(LeaseUnavailableError, match="cannot be linked"):
        scene.grant()
    assert scene.book.notes() == []
    assert not disk.is_directory("/data/leases")
    assert scene.grant().partitions


def test_a_removal_that_fails_is_repeated() -> None:
    disk = FaultyDisk(MemoryDisk())
    scene = Scene(disk)
    lease = scene.grant()
    disk.fail_next("remove", errno.EIO)
    assert run(scene.book.release(lease.note.lease_id))
    assert not disk.is_directory(lease.path), "its name is gone at once"
    assert disk.is_directory("/data/leases")
    run(scene.book.keep())
    assert not disk.is_directory("/data/leases")


def test_aborted_transactions_that_end_behind_the_lease_are_named() -> None:
    """The marker is in the active segment: no linked index has it."""
    scene = Scene(MemoryDisk(), batches=0)
    log = scene.log
    append_verified(log, transactional_batch(7, 0, 2))
    append_verified(log, transactional_batch(8, 0, 2))
    end(log, 8, commits=False)
    while len(log.segments) < 3:
        scene.append(1)
    append_verified(log, transactional_batch(7, 2, 2))
    end(log, 7, commits=False)
    scene.append(1)
    lease = scene.grant()
    (leased,) = lease.partitions
    assert [(one.producer_id, one.first_offset) for one in leased.aborted] == [(7, 0)]
    assert leased.aborted[0].last_offset >= leased.segments[-1].next_offset
    assert leased.segments[0].has_transaction_index
    assert "0-00000000000000000000.txnindex" in scene.names(lease)


def test_too_many_aborted_transactions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(MemoryDisk(), batches=0)
    append_verified(scene.log, transactional_batch(7, 0, 2))
    while len(scene.log.segments) < 3:
        scene.append(1)
    end(scene.log, 7, commits=False)
    scene.append(1)
    monkeypatch.setattr(lease_links, "LEASE_ABORTED_MAX", 0)
    with pytest.raises(LeaseRefusedError, match="aborted transactions"):
        scene.grant()
    assert not scene.disk.is_directory("/data/leases")


def test_an_open_transaction_bounds_the_lease() -> None:
    """The last stable offset, as the log decides it: undecided records are never leased."""
    scene = Scene(MemoryDisk(), batches=30)
    append_verified(scene.log, transactional_batch(7, 0, 2))
    first_undecided = scene.log.end_offset - 2
    scene.append(30)
    stable = scene.log.first_undecided(scene.log.end_offset)
    assert stable == first_undecided
    (leased,) = scene.grant(stable=stable).partitions
    assert leased.segments[-1].next_offset <= first_undecided


def test_epochs_of_the_leased_offsets_are_named() -> None:
    scene = Scene(MemoryDisk(), batches=20)
    scene.append(40, leader_epoch=3)
    first = scene.grant(end=1).partitions[0]
    assert [one.epoch for one in first.epochs] == [0]
    assert [one.epoch for one in scene.grant().partitions[0].epochs] == [0, 3]


def test_other_partitions_are_skipped_with_a_reason() -> None:
    scene = Scene(MemoryDisk())
    other = TopicPartition(PARTITION.topic, 5)
    wishes = [scene.wish(), LeaseWish(other, 0, 10, lambda: 10)]
    lease = run(scene.book.grant(wishes, 60, "User:a"))
    assert lease.skipped == ((5, SkippedCode.NOT_SERVED),)
    with pytest.raises(LeaseRefusedError, match="no log of topic"):
        run(scene.book.grant([LeaseWish(other, 0, 10, lambda: 10)], 60, "User:a"))


def test_a_grant_waits_for_compaction_no_longer_than_its_limit() -> None:
    scene = Scene(MemoryDisk())
    scene.log.is_swapping = True
    with pytest.raises(LeaseUnavailableError, match="compaction"):
        scene.grant()
    scene.log.is_swapping = False
    data = leased_bytes(scene, scene.grant().path)
    assert len(headers(data)) == scene.log.active.base_offset
