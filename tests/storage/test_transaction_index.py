"""The index of aborted transactions: its bytes, its life with the segment, and crashes."""

import errno

import pytest

from penstock.core.errors import StorageError
from penstock.storage.disk.open_files import OpenFiles
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log.open_transactions import AbortedTransaction
from penstock.storage.log.transaction_index import TransactionIndex, sound_bytes
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.logs import PARTITION, batch, let_go, new_log, open_manager, sync
from tests.storage.transactions import append_verified, end, transactional_batch

ROOMY = LogSettings(segment_bytes=100_000, retention_ms=-1)
SEGMENTED = LogSettings(segment_bytes=300, retention_ms=-1)
FILE = "/data/orders-0/00000000000000000000.txnindex"


def index_of(disk: MemoryDisk, entries: int = 0) -> TransactionIndex:
    index = TransactionIndex(disk, OpenFiles(10), "/00000000000000000000")
    index.begin_empty()
    for number in range(entries):
        index.append(AbortedTransaction(number, number * 10, number * 10 + 5, number * 10 + 6))
    return index


def test_kafkas_bytes() -> None:
    disk = MemoryDisk()
    index = index_of(disk)
    index.append(AbortedTransaction(1, 2, 3, 4))
    index.finish()
    expected = b"\x00\x00" + b"".join(number.to_bytes(8, "big") for number in (1, 2, 3, 4))
    assert disk.read_file("/00000000000000000000.txnindex") == expected
    assert len(expected) == 34


@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize("offset", [0, 5, 6, 1_234, 2_995, 2_996])
def test_a_search_begins_in_the_right_block(offset: int, is_written: bool) -> None:
    index = index_of(MemoryDisk(), 300)
    if is_written:
        index.finish()
        index.append(AbortedTransaction(300, 3_000, 3_005, 3_006))
    found = [entry.last_offset for entry in index.from_offset(offset, nowait=True)]
    last = 301 if is_written else 300
    assert found == [at * 10 + 5 for at in range(last) if at * 10 + 5 >= offset]


def test_an_unknown_version_is_not_guessed_at() -> None:
    disk = MemoryDisk()
    index = index_of(disk)
    index.append(AbortedTransaction(1, 2, 3, 4))
    index.finish().write_at(b"\x00\x01", 0)
    with pytest.raises(StorageError, match="version 1"):
        index.entries()


@pytest.mark.parametrize(("limit", "kept"), [(0, 0), (5, 0), (6, 1), (15, 1), (16, 2), (1_000, 3)])
def test_what_lies_past_a_cut_goes(limit: int, kept: int) -> None:
    index = index_of(MemoryDisk(), 3)
    index.truncate(limit)
    assert len(index.entries()) == kept


def test_zeros_and_garbage_end_what_is_sound() -> None:
    index = index_of(MemoryDisk(), 2)
    data = b"".join(
        b"\x00\x00" + b"".join(value.to_bytes(8, "big") for value in entry)
        for entry in index.entries()
    )
    assert sound_bytes(data + bytes(34), 1_000) == len(data)
    assert sound_bytes(data + data[:34], 1_000) == len(data)
    assert sound_bytes(data[:34] + b"\xff" * 34, 1_000) == 34


def test_a_log_without_aborts_has_no_file() -> None:
    disk = MemoryDisk()
    manager, log = new_log(disk, ROOMY)
    append_verified(log, transactional_batch(7, 0))
    end(log, 7, commits=True)
    sync(manager)
    manager.close()
    assert not any(name.endswith(".txnindex") for name in disk.list_directory("/data/orders-0"))


def test_an_abort_is_in_the_file_when_its_marker_is_durable() -> None:
    disk = MemoryDisk()
    manager, log = new_log(disk, ROOMY)
    append_verified(log, transactional_batch(7, 0))
    append_verified(log, transactional_batch(8, 0))
    end(log, 7, commits=False)
    sync(manager)
    assert len(disk.read_file(FILE)) == 34
    # The other one is open still, so nothing past its first record is decided.
    assert log.aborted_transactions(0, 10, nowait=True) == [AbortedTransaction(7, 0, 2, 1)]
    end(log, 8, commits=False)
    assert len(log.aborted_transactions(0, 10, nowait=True)) == 2
    manager.close()
    assert len(disk.read_file(FILE)) == 68
    again = open_manager(disk, ROOMY).get_log(PARTITION)
    assert again is not None
    with pytest.raises(BlockingIOError):
        # How long the file is has to be found out, and not by the loop.
        again.aborted_transactions(3, 4, nowait=True)
    for nowait in (False, True):
        assert again.aborted_transactions(3, 4, nowait=nowait) == [AbortedTransaction(8, 1, 3, 4)]


def test_a_search_looks_only_at_segments_that_have_aborts() -> None:
    manager, log = new_log(MemoryDisk(), SEGMENTED)
    append_verified(log, transactional_batch(7, 0))
    end(log, 7, commits=False)
    while len(log.segments) < 30:
        log.append(batch(size=100), leader_epoch=0)
    sync(manager)
    found = [AbortedTransaction(7, 0, 1, 2)]
    assert log.aborted_transactions(0, 9, nowait=True) == found
    assert log.aborting == (log.segments, [log.segments[0], log.active])
    append_verified(log, transactional_batch(8, 0))
    first_offset = log.end_offset - 1
    end(log, 8, commits=False)
    assert len(log.aborted_transactions(0, log.end_offset, nowait=True)) == 2
    log.roll()
    found.append(AbortedTransaction(8, first_offset, first_offset + 1, first_offset + 2))
    assert log.aborted_transactions(0, log.end_offset, nowait=True) == found
    manager.truncate_log(PARTITION, first_offset + 1)
    assert log.aborted_transactions(0, log.end_offset, nowait=True) == found[:1]


def test_records_and_marker_in_different_segments() -> None:
    manager, log = new_log(MemoryDisk(), SEGMENTED)
    append_verified(log, transactional_batch(7, 0))
    for _ in range(6):
        log.append(batch(size=100), leader_epoch=0)
    end(log, 7, commits=False)
    sync(manager)
    assert len(log.segments) > 2
    assert log.segments[0].transactions.size == 0
    assert [entry.producer_id for entry in log.aborted_transactions(0, 1, nowait=True)] == [7]
    assert log.aborted_transactions(log.end_offset, 99, nowait=True) == []


def test_the_index_goes_with_its_segment() -> None:
    disk = MemoryDisk()
    settings = LogSettings(segment_bytes=300, retention_ms=-1, retention_bytes=400)
    manager, log = new_log(disk, settings)
    append_verified(log, transactional_batch(7, 0))
    end(log, 7, commits=False)
    sync(manager)
    assert FILE.rpartition("/")[2] in disk.list_directory("/data/orders-0")
    for _ in range(8):
        log.append(batch(size=100), leader_epoch=0)
    sync(manager)
    manager.run_retention(0)
    assert not any(name.endswith(".txnindex") for name in disk.list_directory("/data/orders-0"))
    assert log.aborted_transactions(log.log_start_offset, 99, nowait=True) == []


def test_a_truncation_opens_a_transaction_again() -> None:
    manager, log = new_log(MemoryDisk(), ROOMY)
    append_verified(log, transactional_batch(7, 0))
    end(log, 7, commits=False)
    sync(manager)
    assert log.first_undecided(log.durable_offset) == 2
    manager.truncate_log(PARTITION, 1)
    assert log.aborted_transactions(0, 10, nowait=True) == []
    assert log.first_undecided(log.durable_offset) == 0
    end(log, 7, commits=True)
    sync(manager)
    assert log.aborted_transactions(0, 10, nowait=True) == []


def test_a_killed_process_leaves_what_can_be_found_again() -> None:
    disk = MemoryDisk()
    manager, log = new_log(disk, ROOMY)
    append_verified(log, transactional_batch(7, 0))
    end(log, 7, commits=False, coordinator_epoch=3)
    append_verified(log, transactional_batch(7, 1))
    let_go(manager)
    again = open_manager(disk, ROOMY).get_log(PARTITION)
    assert again is not None
    assert again.aborted_transactions(0, 9, nowait=True) == [AbortedTransaction(7, 0, 1, 2)]
    entry = again.producers.entries[7]
    assert (entry.coordinator_epoch, entry.open_offset) == (3, 2)
    assert again.first_undecided(again.durable_offset) == 2


def test_a_stale_entry_past_the_recovery_point_is_not_believed() -> None:
    disk = MemoryDisk()
    manager, log = new_log(disk, ROOMY)
    log.append(batch(), leader_epoch=0)
    sync(manager)
    let_go(manager)
    stale = TransactionIndex(disk, OpenFiles(10), FILE.removesuffix(".txnindex"))
    stale.begin_empty()
    stale.append(AbortedTransaction(7, 0, 5, 6))
    stale.finish()
    again = open_manager(disk, ROOMY).get_log(PARTITION)
    assert again is not None
    assert again.aborted_transactions(0, 9, nowait=True) == []
    assert disk.read_file(FILE) == b""


def test_a_full_disk_keeps_the_marker_waiting_and_loses_nothing() -> None:
    disk = FaultyDisk(MemoryDisk())
    manager, log = new_log(disk, ROOMY)
    append_verified(log, transactional_batch(7, 0))
    sync(manager)
    end(log, 7, commits=False)
    disk.fail_next("create", errno.ENOSPC)
    sync(manager)
    assert log.durable_offset == 1
    sync(manager)
    assert log.durable_offset == 2
    assert len(disk.read_file(FILE)) == 34
    assert log.aborted_transactions(0, 9, nowait=True) == [AbortedTransaction(7, 0, 1, 2)]
