"""Transactions through the replica manager: the last stable offset, markers, wake-ups."""

import pytest

from penstock.core.errors import (
    FencedTransactionCoordinatorError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    PenstockError,
)
from penstock.records.validation import ValidatedBatch
from penstock.replication.manager import TransactionEnd
from penstock.replication.read_result import PartitionRead
from penstock.replication.verification import begin_verification, confirm_verification
from penstock.replication.waits import FetchWait
from tests.replication.replicas import Node
from tests.storage.logs import Batch, batch, headers
from tests.storage.transactions import transactional_batch

NOW_MS = 5_000
SECOND_MS = 1_000


class Bank:
    """A node, and producers that write transactions to its one partition."""

    def __init__(self) -> None:
        self.node = Node()
        self.partition = self.node.partition
        self.results: list[PenstockError | None] = []

    def write(self, made: Batch) -> None:
        header = made.header
        guard = begin_verification(
            self.partition,
            (header.producer_id, header.producer_epoch),
            header.base_sequence,
            NOW_MS,
            adds=True,
        )
        validated = ValidatedBatch(header, made.buffer, made.max_timestamp_ms, 0)
        self.node.replicas.append(self.partition, validated, guard)

    def end(self, producer_id: int, *, commits: bool = True, epoch: int = 0) -> None:
        end = TransactionEnd(producer_id, epoch, 0, commits)
        self.node.replicas.append_marker(self.partition, end, NOW_MS).then(self.results.append)

    def read(self, offset: int = 0, *, committed: bool = True) -> PartitionRead:
        return self.node.replicas.read(
            self.partition,
            offset,
            100_000,
            current_leader_epoch=-1,
            last_fetched_epoch=-1,
            at_least_one=True,
            reads_committed=committed,
        )

    def wait(self, bytes_missing: int = 1, *, committed: bool = True) -> list[str]:
        woken: list[str] = []
        wait = FetchWait(bytes_missing, lambda: woken.append("woken"), reads_committed=committed)
        assert self.node.replicas.wait_bytes(wait, [self.partition], 60 * SECOND_MS)
        return woken


@pytest.fixture
def bank() -> Bank:
    return Bank()


def test_a_marker_decides_when_it_is_on_the_disk(bank: Bank) -> None:
    bank.write(transactional_batch(7, 0, 2))
    bank.node.sync()
    assert bank.partition.last_stable_offset == 0
    bank.end(7)
    assert bank.results == []
    assert bank.partition.last_stable_offset == 0
    bank.node.sync()
    assert bank.results == [None]
    assert bank.partition.last_stable_offset == 3


def test_what_is_not_committed_is_not_stable(bank: Bank) -> None:
    bank.node.append(batch(2))
    assert bank.partition.last_stable_offset == 0
    bank.write(transactional_batch(7, 0))
    bank.node.sync()
    assert bank.partition.last_stable_offset == 2


def test_a_reader_of_committed_records_is_told_what_to_leave_out(bank: Bank) -> None:
    bank.write(transactional_batch(7, 0))
    bank.end(7, commits=False)
    bank.node.append(batch())
    bank.write(transactional_batch(8, 0))
    bank.node.sync()
    found = bank.read()
    assert [header.base_offset for header in headers(bytes(found.records))] == [0, 1, 2]
    assert [(entry.producer_id, entry.first_offset) for entry in found.aborted] == [(7, 0)]
    assert (found.last_stable_offset, found.high_watermark) == (3, 4)
    everything = bank.read(committed=False)
    assert len(headers(bytes(everything.records))) == 4
    assert everything.aborted == ()
    assert bank.read(3).records == b""


def test_readers_of_committed_records_are_woken_by_decisions_only(bank: Bank) -> None:
    waiting, other = bank.wait(500), bank.wait(500, committed=False)
    bank.write(transactional_batch(7, 0, size=1_000))
    bank.node.sync()
    assert (waiting, other) == ([], ["woken"])
    bank.end(7)
    bank.node.sync()
    assert waiting == ["woken"]


def test_a_reader_behind_an_open_transaction_is_not_woken_by_others(bank: Bank) -> None:
    bank.write(transactional_batch(7, 0))
    bank.node.sync()
    waiting = bank.wait()
    bank.node.append(batch(size=1_000))
    bank.write(transactional_batch(8, 0))
    bank.end(8)
    bank.node.sync()
    assert waiting == []
    bank.end(7, commits=False)
    bank.node.sync()
    assert waiting == ["woken"]


def test_nothing_is_verified_twice(bank: Bank) -> None:
    partition = bank.partition
    guard = begin_verification(partition, (7, 0), 0, NOW_MS, adds=False)
    assert guard == begin_verification(partition, (7, 0), 0, NOW_MS, adds=False) > 0
    bank.write(transactional_batch(7, 0))
    assert begin_verification(partition, (7, 0), 1, NOW_MS, adds=False) == 0
    assert begin_verification(partition, (7, 1), 0, NOW_MS, adds=False) > guard


def test_a_coordinators_batch_needs_a_confirmed_verification(bank: Bank) -> None:
    partition = bank.partition
    made = transactional_batch(7, -1)
    guard = begin_verification(partition, (7, 0), -1, NOW_MS, adds=True)
    with pytest.raises(InvalidTransactionStateError):
        bank.node.append(made)
    confirm_verification(partition, 7, guard + 1)
    with pytest.raises(InvalidTransactionStateError):
        bank.node.append(made)
    confirm_verification(partition, 7, guard)
    bank.node.append(made)
    bank.node.append(transactional_batch(7, -1))
    bank.node.sync()
    assert bank.partition.last_stable_offset == 0


def test_a_marker_takes_a_confirmed_verification_away(bank: Bank) -> None:
    partition = bank.partition
    guard = begin_verification(partition, (7, 0), -1, NOW_MS, adds=True)
    confirm_verification(partition, 7, guard)
    bank.end(7, commits=False)
    with pytest.raises(InvalidTransactionStateError):
        bank.node.append(transactional_batch(7, -1))


def test_a_refused_marker_leaves_nothing(bank: Bank) -> None:
    replicas, partition = bank.node.replicas, bank.partition
    seen: list[str] = []
    for end, error in (
        (TransactionEnd(7, 1, 5, commits=True), None),
        (TransactionEnd(7, 0, 5, commits=True), InvalidProducerEpochError),
        (TransactionEnd(7, 1, 4, commits=True), FencedTransactionCoordinatorError),
    ):
        before, results = partition.log.end_offset, len(bank.results)
        answer = replicas.append_marker(
            partition, end, NOW_MS, on_appended=lambda: seen.append("appended")
        )
        answer.then(bank.results.append)
        bank.node.sync()
        assert len(bank.results) == results + 1
        assert isinstance(bank.results[-1], error) if error else bank.results[-1] is None
        assert partition.log.end_offset == before + (0 if error else 1)
    assert seen == ["appended"]


def test_a_dead_disk_is_told_to_who_waits_for_a_marker(bank: Bank) -> None:
    bank.end(7)
    error = PenstockError("dead")
    bank.node.replicas.on_failure([bank.partition.log], error)
    assert bank.results == [error]
