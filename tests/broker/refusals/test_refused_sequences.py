"""The error of a batch whose predecessor was refused; gaps of the producer's own stay gaps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.refusals import refused_sequences
from penstock.broker.refusals.refused_sequences import (
    REFUSED_SEQUENCE_SECONDS,
    RefusedSequences,
)
from penstock.core.errors import (
    InvalidBatchError,
    NotEnoughReplicasError,
    NotLeaderError,
    OutOfOrderSequenceError,
    PenstockError,
)
from penstock.core.types import TopicPartition
from tests.broker.handlers.asker import batch_of

PLACE = TopicPartition("t", 0)
LAST = 0x7FFFFFFF
REFUSAL = NotEnoughReplicasError("1 of 2")


def batch(sequence: int, *, producer_id: int = 7, epoch: int = 0) -> memoryview:
    records = batch_of(b"v", producer_id=producer_id, producer_epoch=epoch, sequence=sequence)
    return memoryview(records)


def gap(expected_sequence: int) -> OutOfOrderSequenceError:
    return OutOfOrderSequenceError("a gap", expected_sequence=expected_sequence)


class Partition:
    """A partition that expects a sequence."""

    def __init__(self) -> None:
        self.refused = RefusedSequences()
        self.now_seconds = 100.0

    def answer(
        self, error: PenstockError, sequence: int, *, epoch: int = 0, producer_id: int = 7
    ) -> PenstockError:
        records = batch(sequence, epoch=epoch, producer_id=producer_id)
        return self.refused.explained(PLACE, records, error, self.now_seconds)


@pytest.fixture
def partition() -> Partition:
    return Partition()


@pytest.mark.parametrize("first", [0, 195, LAST])
def test_batches_behind_a_refused_one(partition: Partition, first: int) -> None:
    following, last = (first + 1) & LAST, (first + 9) & LAST
    assert partition.answer(REFUSAL, first) is REFUSAL
    assert isinstance(partition.answer(gap(first), following), NotEnoughReplicasError)
    assert isinstance(partition.answer(gap(first), last), NotEnoughReplicasError)


def test_all_refused_batches_are_remembered_in_any_order(partition: Partition) -> None:
    for sequence in (30, 10, 20):
        partition.answer(REFUSAL, sequence)
    for expected in (10, 15, 30):
        assert isinstance(partition.answer(gap(expected), 40), NotEnoughReplicasError)
    for expected in (9, 31, -1):
        assert isinstance(partition.answer(gap(expected), 40), OutOfOrderSequenceError)


def test_a_batch_of_the_past_stays_out_of_order(partition: Partition) -> None:
    partition.answer(REFUSAL, 10)
    assert isinstance(partition.answer(gap(10), 9), OutOfOrderSequenceError)


def test_only_this_epoch_producer_and_partition(partition: Partition) -> None:
    partition.answer(REFUSAL, 10)
    assert isinstance(partition.answer(gap(10), 11, producer_id=8), OutOfOrderSequenceError)
    elsewhere = TopicPartition("t", 1)
    found = partition.refused.explained(elsewhere, batch(11), gap(10), 100.0)
    assert isinstance(found, OutOfOrderSequenceError)
    assert isinstance(partition.answer(gap(0), 11, epoch=1), OutOfOrderSequenceError)
    # The producer has raised its epoch: its old sequences mean nothing any more.
    assert isinstance(partition.answer(gap(10), 11), OutOfOrderSequenceError)


def test_it_is_forgotten_after_a_while(partition: Partition) -> None:
    partition.answer(REFUSAL, 10)
    partition.now_seconds += REFUSED_SEQUENCE_SECONDS
    assert isinstance(partition.answer(gap(10), 11), NotEnoughReplicasError)
    partition.now_seconds += 0.001
    assert isinstance(partition.answer(gap(10), 11), OutOfOrderSequenceError)
    assert len(partition.refused) == 0


def test_the_newest_reason_is_answered(partition: Partition) -> None:
    partition.answer(REFUSAL, 10)
    partition.answer(NotLeaderError("elsewhere"), 10)
    found = partition.answer(gap(10), 11)
    assert isinstance(found, NotLeaderError)
    assert found.__traceback__ is None


def test_what_will_not_pass_is_not_remembered(partition: Partition) -> None:
    for error in (InvalidBatchError("bad"), OutOfOrderSequenceError("no")):
        assert partition.answer(error, 10) is error
    partition.answer(REFUSAL, -1, producer_id=-1)
    partition.refused.explained(PLACE, memoryview(b"short"), REFUSAL, 100.0)
    assert len(partition.refused) == 0


def test_the_number_of_producers_is_bounded(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused_sequences, "REFUSED_PRODUCERS_MAX", 3)
    for producer_id in (1, 2, 3, 1, 4):
        partition.answer(REFUSAL, 10, producer_id=producer_id)
    assert len(partition.refused) == 3
    kept = [
        number
        for number in (1, 2, 3, 4)
        if partition.answer(gap(10), 11, producer_id=number).__class__ is NotEnoughReplicasError
    ]
    assert kept == [1, 3, 4]


@given(
    first=st.integers(0, LAST),
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 50)), min_size=1, max_size=30),
)
def test_a_producer_that_retries_in_order_never_sees_a_gap(
    first: int, steps: list[tuple[bool, int]]
) -> None:
    """Batches of any sizes, each refused or not: a batch after a refused one is never a gap."""
    partition = Partition()
    expected = sequence = first
    for is_refused, count in steps:
        if is_refused:
            partition.answer(REFUSAL, sequence)
        elif sequence == expected:
            expected = (expected + count) & LAST
        else:
            assert isinstance(partition.answer(gap(expected), sequence), NotEnoughReplicasError)
        sequence = (sequence + count) & LAST
