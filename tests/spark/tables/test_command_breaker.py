"""The circuit breaker of a command against all batches that its table got, over failed attempts."""

from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.types import TopicPartition
from penstock.spark.tables.commit.circuit_breaker import CircuitBreaker
from penstock.spark.tables.commit.command_breaker import CommandBreaker
from penstock.spark.tables.commit.note import BatchRanges, PartitionRange

SHARE_MAX, WINDOW = 0.5, 40
AT = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)


def ranges(*ends: int, start: int = 0) -> BatchRanges:
    """A batch with these ends of the partitions 0, 1 ..."""
    return BatchRanges(
        tuple(PartitionRange("orders", number, start, end) for number, end in enumerate(ends))
    )


class Outcome(Enum):
    """The end of one batch."""

    COMMITTED = "committed"
    FAILED_AFTERWARDS = "committed, and the attempt failed behind the commit"
    LOST = "committed, and the attempt did not get the response"
    FAILED = "not committed, and the attempt failed"


class Command:
    """The attempts of one command on a table."""

    def __init__(self) -> None:
        self.breaker = CommandBreaker(SHARE_MAX, WINDOW)
        self.truth = CircuitBreaker(SHARE_MAX, WINDOW)
        self.end = 0

    def start(self) -> None:
        self.breaker.acquired({AT: self.end})

    def batch(self, records: int, rejects: int, outcome: Outcome) -> None:
        self.breaker.offered(ranges(self.end + records, start=self.end), records, rejects)
        if outcome is not Outcome.FAILED:
            self.end += records
            self.truth = self.truth.after(records, rejects)
        if outcome in {Outcome.COMMITTED, Outcome.FAILED_AFTERWARDS}:
            self.breaker.committed(records, rejects)
        if outcome is not Outcome.COMMITTED:
            self.start()


BATCH = st.integers(1, 15).flatmap(
    lambda count: st.tuples(st.just(count), st.integers(0, count), st.sampled_from(Outcome))
)


@given(st.lists(BATCH, max_size=30))
def test_all_committed_batches_count_once(batches: list[tuple[int, int, Outcome]]) -> None:
    command = Command()
    command.start()
    for records, rejects, outcome in batches:
        command.batch(records, rejects, outcome)
        assert command.breaker.now == command.truth


def test_the_rejects_of_an_earlier_attempt_fail_the_run() -> None:
    command = Command()
    command.start()
    command.batch(10, 8, Outcome.FAILED_AFTERWARDS)
    command.batch(3, 0, Outcome.COMMITTED)
    assert command.breaker.now.is_open_at_end
    assert "61.5% of the last 13 records" in command.breaker.now.reason_at_end("dlq")


def test_a_batch_that_was_in_the_table_is_not_counted() -> None:
    """Another command committed it, or an earlier attempt, which counted it."""
    breaker = CommandBreaker(SHARE_MAX, WINDOW)
    breaker.acquired({})
    breaker.offered(ranges(10), 10, 10)
    breaker.was_there()
    breaker.acquired({AT: 10})
    assert breaker.now.records == 0


def test_only_the_part_that_was_missing_is_counted() -> None:
    breaker = CommandBreaker(SHARE_MAX, WINDOW)
    breaker.offered(ranges(10), 10, 10)
    breaker.committed(4, 1)
    breaker.acquired({AT: 10})
    assert breaker.now == CircuitBreaker(SHARE_MAX, WINDOW).after(4, 1)


@pytest.mark.parametrize(
    ("positions", "records"),
    [({AT: 10, OTHER: 5}, 15), ({AT: 12, OTHER: 5}, 15), ({AT: 10}, 0), ({AT: 10, OTHER: 4}, 0)],
)
def test_a_batch_in_doubt_counts_if_the_table_has_all_of_it(
    positions: dict[TopicPartition, int], records: int
) -> None:
    breaker = CommandBreaker(SHARE_MAX, WINDOW)
    breaker.offered(ranges(10, 5), 15, 1)
    breaker.acquired(positions)
    assert breaker.now.records == records
    breaker.acquired({AT: 99, OTHER: 99})
    assert breaker.now.records == records, "in doubt until the next acquisition only"
