"""The circuit breaker of one command, over all attempts of its pipeline (pure).

    attempt 1: offers a batch, commits it, and fails afterwards      the batch is counted
    attempt 2: offers a batch, and fails without knowing the result  the batch is in doubt
    attempt 3: acquires the table, and finds the batch in it         the batch is counted

Guarantees: a batch that the command has committed is counted once, whichever attempt committed it,
and also if the response of its commit was lost. Other batches are not counted: a batch that was not
committed is repeated, and one that was in the table before belongs to another command.

It does NOT survive the command. The next one finds none of these records, and judges its own.
"""

from collections.abc import Mapping

from penstock.core.types import TopicPartition
from penstock.spark.tables.commit.circuit_breaker import CircuitBreaker
from penstock.spark.tables.commit.note import BatchRanges


class CommandBreaker:
    """The breaker after the batches so far."""

    def __init__(self, share_max: float, window_records: int) -> None:
        self._now = CircuitBreaker(share_max, window_records)
        self._ends: dict[TopicPartition, int] = {}
        """The ends of the offered batch whose result is unknown; empty: there is none."""
        self._after = self._now
        """The breaker if the table has that batch."""

    @property
    def now(self) -> CircuitBreaker:
        """The breaker after the committed batches."""
        return self._now

    def offered(self, ranges: BatchRanges, records: int, rejects: int) -> None:
        """Note a batch before its commit."""
        self._ends = {one.at: one.end_offset for one in ranges.ranges}
        self._after = self._now.after(records, rejects)

    def committed(self, records: int, rejects: int) -> None:
        """Count a batch, or the part of it that was not in the table."""
        self._now = self._now.after(records, rejects)
        self._ends = {}

    def was_there(self) -> None:
        """Note that the table had the offered batch."""
        self._ends = {}

    def acquired(self, positions: Mapping[TopicPartition, int]) -> None:
        """Count the batch in doubt if the table has it; `positions` are those of the table."""
        if self._ends and all(positions.get(at, 0) >= end for at, end in self._ends.items()):
            self._now = self._after
        self._ends = {}
