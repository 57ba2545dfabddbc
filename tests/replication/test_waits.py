"""Parked requests: each is woken by exactly the event that satisfies it, once, and none is lost."""

import pytest

from penstock.core.errors import RequestTimedOutError, StorageError, TooManyWaitersError
from penstock.core.types import TopicPartition
from penstock.replication.waits import CommitWait, FetchWait, PartitionWaits, WaitTable

A = TopicPartition("a", 0)
B = TopicPartition("b", 0)


class Calls:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def test_a_commit_waits_for_all_its_partitions() -> None:
    table, calls = WaitTable(), Calls()
    a, b = PartitionWaits(A), PartitionWaits(B)
    table.park_commit(CommitWait(calls), [(a, 5), (b, 7)], 10.0)
    table.committed(a, 4, 100, 100)
    table.committed(a, 5, 100, 100)
    assert calls.count == 0
    table.committed(b, 9, 100, 100)
    assert calls.count == 1
    assert len(table) == 0
    table.validate()


def test_a_failed_partition_fails_its_part_and_waits_for_the_rest() -> None:
    table, calls = WaitTable(), Calls()
    a, b = PartitionWaits(A), PartitionWaits(B)
    wait = CommitWait(calls)
    table.park_commit(wait, [(a, 5), (b, 7)], 10.0)
    error = StorageError("gone")
    table.failed(a, error)
    assert calls.count == 0
    table.committed(b, 7, 1, 1)
    assert calls.count == 1
    assert wait.errors == {A: error}


def test_a_commit_that_is_parked_after_its_partition_failed_does_not_wait_for_it() -> None:
    """Guards `WaitTable.park_commit`: a produce in slices waited until its time was up."""
    table, calls = WaitTable(), Calls()
    a, b = PartitionWaits(A), PartitionWaits(B)
    error = StorageError("gone")
    table.failed(a, error)
    both, only = CommitWait(calls), CommitWait(calls)
    table.park_commit(both, [(a, 5), (b, 7)], 10.0)
    assert calls.count == 0
    table.park_commit(only, [(a, 5)], 10.0)
    assert calls.count == 1
    table.committed(b, 7, 1, 1)
    assert calls.count == 2
    assert both.errors == only.errors == {A: error}
    assert len(table) == 0
    table.validate()


def test_a_commit_times_out_with_the_partitions_that_are_missing() -> None:
    table, calls = WaitTable(), Calls()
    a, b = PartitionWaits(A), PartitionWaits(B)
    wait = CommitWait(calls)
    table.park_commit(wait, [(a, 5), (b, 7)], 10.0)
    table.committed(a, 5, 1, 1)
    table.expire(9.9)
    assert calls.count == 0
    table.expire(10.02)
    assert calls.count == 1
    assert list(wait.errors) == [B]
    assert isinstance(wait.errors[B], RequestTimedOutError)
    table.committed(b, 7, 1, 1)
    assert calls.count == 1


def test_a_fetch_is_woken_when_enough_bytes_came_over_its_partitions() -> None:
    table, calls = WaitTable(), Calls()
    a, b = PartitionWaits(A), PartitionWaits(B)
    table.park_fetch(FetchWait(100, calls), (a, b), 10.0)
    table.committed(a, 1, 60, 60)
    assert calls.count == 0
    table.committed(b, 1, 40, 40)
    assert calls.count == 1
    assert not a.fetches
    assert not b.fetches


def test_a_fetch_ends_at_its_deadline() -> None:
    table, calls = WaitTable(), Calls()
    a = PartitionWaits(A)
    table.park_fetch(FetchWait(100, calls), (a,), 10.0)
    assert table.next_deadline() == pytest.approx(10.0)
    table.expire(10.0)
    assert calls.count == 1
    assert not a.fetches
    assert table.next_deadline() is None


def test_a_fetch_looks_again_when_its_partition_fails() -> None:
    table, calls = WaitTable(), Calls()
    a = PartitionWaits(A)
    table.park_fetch(FetchWait(100, calls), (a,), 10.0)
    table.failed(a, StorageError("gone"))
    assert calls.count == 1


def test_a_cancelled_wait_is_never_called() -> None:
    table, calls = WaitTable(), Calls()
    a = PartitionWaits(A)
    fetch, commit = FetchWait(1, calls), CommitWait(calls)
    table.park_fetch(fetch, (a,), 10.0)
    table.park_commit(commit, [(a, 1)], 10.0)
    table.cancel(fetch)
    table.cancel(commit)
    table.committed(a, 5, 500, 500)
    table.expire(11.0)
    assert calls.count == 0
    assert len(table) == 0


def test_the_table_is_bounded() -> None:
    table = WaitTable(parked_max=1)
    a = PartitionWaits(A)
    table.park_fetch(FetchWait(1, Calls()), (a,), 10.0)
    with pytest.raises(TooManyWaitersError):
        table.park_fetch(FetchWait(1, Calls()), (a,), 10.0)
    with pytest.raises(TooManyWaitersError):
        table.park_commit(CommitWait(Calls()), [(a, 1)], 10.0)
    table.validate()


def test_the_partitions_that_are_waited_for_are_bounded() -> None:
    table, calls = WaitTable(partitions_max=3), Calls()
    a, b = PartitionWaits(A), PartitionWaits(B)
    first = FetchWait(1, calls)
    table.park_fetch(first, (a, b), 10.0)
    with pytest.raises(TooManyWaitersError):
        table.park_fetch(FetchWait(1, calls), (a, b), 10.0)
    table.park_fetch(FetchWait(1, calls), (b,), 10.0)
    table.validate()
    table.cancel(first)
    table.park_fetch(FetchWait(1, calls), (a, b), 10.0)
    table.committed(b, 1, 1, 1)
    assert calls.count == 2
    assert not a.fetches
    table.validate()
