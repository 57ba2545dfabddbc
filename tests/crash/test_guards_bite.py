"""Each safeguard of storage, removed in turn, makes a check fail.

A check that cannot fail proves nothing. Here the product's own code is changed from outside, one
guard at a time, and the enumeration of crash points (or the test of producers) must find a loss.
The unchanged code passes the same check in the first test.
"""

from collections.abc import Callable

import pytest

from penstock.records.batch import BatchHeader
from penstock.storage import flush_work, flusher
from penstock.storage.disk.filesystem import FileSystem, write_fully
from penstock.storage.log import recovery
from penstock.storage.log.log_directory import Flushable, FlushJob
from penstock.storage.log.open_transactions import AbortedTransaction
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log.producer_entry import ProducerBatch
from penstock.storage.log.producer_state import ProducerStates
from penstock.storage.log.transaction_index import TransactionIndex
from penstock.storage.log_manager import LogManager
from penstock.storage.managed_directory import ManagedDirectory
from penstock.testing.memory_disk import MemoryDisk
from penstock.testing.recording_disk import Fate, RecordingDisk
from tests.crash.workload import first_failure, record
from tests.storage.logs import new_log, producer_batch, sync

Patch = Callable[[pytest.MonkeyPatch], None]


def test_with_every_guard_in_place_nothing_fails() -> None:
    assert first_failure(record(steps=5), step=60) == ""


def no_sync(patch: pytest.MonkeyPatch) -> None:
    """Acknowledge before the data is synced."""

    def execute_jobs(filesystem: FileSystem, jobs: list[FlushJob], _sync_files: object) -> None:
        for job in jobs:
            job.files = []
        original(filesystem, jobs)

    original = flush_work.execute_jobs
    patch.setattr(flusher, "execute_jobs", execute_jobs)


def no_directory_sync(patch: pytest.MonkeyPatch) -> None:
    """Count a new segment's data as durable before its name is."""

    def execute_jobs(filesystem: FileSystem, jobs: list[FlushJob], _sync_files: object) -> None:
        for job in jobs:
            job.sync_directory = False
        original(filesystem, jobs)

    original = flush_work.execute_jobs
    patch.setattr(flusher, "execute_jobs", execute_jobs)


def no_parent_sync(patch: pytest.MonkeyPatch) -> None:
    """Count a new log's data as durable before the name of its directory is."""

    def begin_round(self: flusher.Flusher) -> flusher.FlushRound:
        flush_round = original(self)
        for job in flush_round.jobs:
            job.sync_parent = False
        return flush_round

    original = flusher.Flusher.begin_round
    patch.setattr(flusher.Flusher, "begin_round", begin_round)


def no_checksum(patch: pytest.MonkeyPatch) -> None:
    """Believe every batch whose length fits."""
    patch.setattr(recovery, "checksum_matches", lambda *_: True)


def durable_ahead(patch: pytest.MonkeyPatch) -> None:
    """Let the durable offset run ahead of the sync."""

    def begin_round(self: flusher.Flusher) -> flusher.FlushRound:
        flush_round = original(self)
        for job in flush_round.jobs[1:]:
            job.files = []
        return flush_round

    original = flusher.Flusher.begin_round
    patch.setattr(flusher.Flusher, "begin_round", begin_round)


def forget_sealed(patch: pytest.MonkeyPatch) -> None:
    """Sync the active segment only, not the one that was sealed before it."""

    def take(self: PartitionLog, *, sealed_only: bool) -> FlushJob:
        job = original(self, sealed_only=sealed_only)
        job.files = job.files[-1:]
        return job

    original = PartitionLog.take_flush_job
    patch.setattr(PartitionLog, "take_flush_job", take)


def recovery_point_ahead(patch: pytest.MonkeyPatch) -> None:
    """Write the end of the log as its recovery point, not what is synced."""

    def take_moved(self: LogManager) -> list[tuple[ManagedDirectory, list[PartitionLog]]]:
        taken = original(self)
        for directory, logs in taken:
            for log in logs:
                directory.recovery_points[log.topic_partition] = log.end_offset
        return taken

    original = LogManager.take_moved
    patch.setattr(LogManager, "take_moved", take_moved)


def no_rename_sync(patch: pytest.MonkeyPatch) -> None:
    """Replace small files without syncing them first."""

    def replace_file(filesystem: FileSystem, directory: str, name: str, data: bytes) -> None:
        file = filesystem.create_file(f"{directory}/{name}")
        write_fully(file, data, 0)

    patch.setattr("penstock.storage.managed_directory.replace_file", replace_file)


def no_abort_sync(patch: pytest.MonkeyPatch) -> None:
    """Count an abort marker as durable before the index of aborted transactions is."""

    def append(self: TransactionIndex, aborted: AbortedTransaction) -> None:
        original(self, aborted)
        self.is_unsynced = False

    original = TransactionIndex.append
    patch.setattr(TransactionIndex, "append", append)


def believe_aborts(patch: pytest.MonkeyPatch) -> None:
    """Believe what the index of aborted transactions says past the recovery point."""
    patch.setattr(TransactionIndex, "truncate", lambda *_: None)


GUARDS: dict[Patch, tuple[Fate, ...]] = {
    no_abort_sync: (Fate.LOST,),
    believe_aborts: (Fate.SUBSET,),
    no_sync: (Fate.LOST,),
    no_directory_sync: (Fate.LOST,),
    no_parent_sync: (Fate.LOST,),
    no_checksum: (Fate.SUBSET,),
    durable_ahead: (Fate.LOST,),
    forget_sealed: (Fate.LOST,),
    recovery_point_ahead: (Fate.LOST,),
    no_rename_sync: (Fate.SUBSET,),
}
"""Each guard with the fate that finds it soonest."""


@pytest.mark.parametrize("remove", GUARDS, ids=lambda remove: remove.__name__)
@pytest.mark.uncompiled
def test_without_the_guard_a_cut_is_found_that_breaks_a_promise(
    remove: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove(monkeypatch)
    failure = first_failure(record(steps=8), fates=GUARDS[remove])
    assert failure, "the enumeration does not see that the guard is gone"
    print(f"{remove.__name__}: {failure}")


def append_twice() -> int:
    manager, log = new_log(MemoryDisk())
    log.append(producer_batch(0), leader_epoch=0)
    log.append(producer_batch(0), leader_epoch=0)
    sync(manager)
    return log.end_offset


@pytest.mark.uncompiled
def test_without_the_sequence_check_a_repetition_is_stored_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert append_twice() == 1

    def check(_self: ProducerStates, _header: BatchHeader, _guard: int) -> ProducerBatch | None:
        return None

    monkeypatch.setattr(ProducerStates, "check", check)
    assert append_twice() == 2


def test_every_log_in_a_round_is_told() -> None:
    """`Flushable` is what the guards patch; the real log is one."""
    manager, log = new_log(RecordingDisk())
    flushable: Flushable = log
    log.append(producer_batch(0), leader_epoch=0)
    assert manager.flushers[0].sync_now() == [flushable]
