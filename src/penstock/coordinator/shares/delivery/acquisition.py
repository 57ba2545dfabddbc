"""`acquire`: which of the records that were read a member gets. Pure.

Rules, as in Apache Kafka 4.3:

- new records are acquired only while the window from the start offset has room (`in_flight_max`);
- in the batch-optimized mode whole batches are acquired, and the last one may exceed the number of
  records asked for; in the record-limit mode (KIP-1206) the number is exact;
- a record with several failed deliveries is acquired with fewer neighbours each time, and on its
  last attempt alone (KAFKA-17541), so that one poison record does not use up their attempts;
- offsets without records, and batches that no client may get, are archived at once;
- a record that has been delivered as often as the limit allows is archived, not delivered; with a
  dead-letter topic its letter comes first.

It reads no records: the caller names the batches. It does NOT write anything.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.coordinator.shares.delivery.runs import (
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    EXHAUSTED,
    LETTER_CHANGED,
    Run,
    RunMap,
)

_THROTTLED_MIN: Final = 2
"""A first repetition is never throttled, whatever the delivery limit."""


class FetchedBatch(NamedTuple):
    """A stored batch that was read."""

    first: int
    last: int
    is_dead: bool = False
    """Whether no client may get its records: those of an aborted transaction."""


class Wanted(NamedTuple):
    """The wish of a member, and the rules of its group."""

    member: str
    records_max: int
    batch_size: int
    """An acquired range ends at the first end of a batch after this number of records."""
    is_exact: bool
    """Whether `records_max` is never exceeded (record-limit mode)."""
    deadline: float
    in_flight_max: int
    delivery_limit: int
    has_dead_letters: bool = False
    """Whether a record at the delivery limit gets a dead letter."""


class Acquired(NamedTuple):
    """Consecutive records that a member got."""

    first: int
    last: int
    delivery_count: int


def acquire(
    runs: RunMap, fetch_offset: int, batches: Iterable[FetchedBatch], wanted: Wanted
) -> tuple[list[Acquired], list[tuple[int, int]]]:
    """Return the acquired ranges, and the spans that were archived.

    The batches are consecutive in the log, and the first is the one at or after `fetch_offset`.
    """
    work = _Acquisition(runs, wanted)
    if fetch_offset <= runs.end and not work.is_over:
        for batch in batches:
            work.archive(fetch_offset, batch.first - 1)
            if work.add(batch):
                break
            fetch_offset = batch.last + 1
    return work.acquired, work.archived


def archive_gap(runs: RunMap, first: int, last: int) -> list[tuple[int, int]]:
    """Archive offsets that have no records; return the spans that changed."""
    work = _Acquisition(runs, None)
    if first <= runs.end:
        work.archive(first, last)
    return work.archived


class _Acquisition:
    __slots__ = (
        "_left",
        "_runs",
        "_tail",
        "_throttle",
        "_wanted",
        "acquired",
        "archived",
        "is_over",
    )

    def __init__(self, runs: RunMap, wanted: Wanted | None) -> None:
        self._runs = runs
        self._wanted = wanted
        self._left = 0 if wanted is None else wanted.records_max
        self._tail: Run | None = None
        """The run of new records that this acquisition has created last: it may be longer."""
        self._throttle = (-1, 0)
        """The end of a run with failed deliveries, and how many records of it may follow."""
        self.is_over = self._left <= 0
        self.acquired: list[Acquired] = []
        self.archived: list[tuple[int, int]] = []

    def archive(self, first: int, last: int) -> None:
        """Archive the available and the unknown offsets of a range."""
        runs = self._runs
        first = max(first, runs.start)
        if first > last:
            return
        for run in runs.covering(first, last):
            if run.state == AVAILABLE:
                self._archive_run(max(run.first, first), min(run.last, last))
        if last >= runs.end:
            self.archived.append((runs.end, last))
            runs.append(last, ARCHIVED)

    def _archive_run(self, first: int, last: int) -> None:
        for run in self._runs.cut(first, last):
            self._runs.move(run, ARCHIVED)
        self.archived.append((first, last))

    def _give_up(self, first: int, last: int, *, has_letter: bool) -> None:
        """Archive records at the delivery limit, after their letters if there are any."""
        if not has_letter:
            self._archive_run(first, last)
            return
        for run in self._runs.cut(first, last):
            self._runs.move(run, ARCHIVING)
            run.cause, run.letter = EXHAUSTED, LETTER_CHANGED
        self.archived.append((first, last))

    def add(self, batch: FetchedBatch) -> bool:
        """Acquire the records of a batch that may be acquired; True if it was the last batch."""
        if batch.is_dead:
            self.archive(batch.first, batch.last)
            return False
        if batch.first < self._runs.end:
            self._add_known(batch)
        if not self.is_over:
            self._add_new(batch)
        return self.is_over or self._left <= 0

    def _add_known(self, batch: FetchedBatch) -> None:
        runs, wanted = self._runs, self._wanted
        assert wanted is not None
        first, last = max(batch.first, runs.start), min(batch.last, runs.end - 1)
        for run in runs.covering(first, last):
            if run.state != AVAILABLE:
                continue
            begin, end = max(run.first, first), min(run.last, last)
            if run.count >= wanted.delivery_limit:
                self._give_up(begin, end, has_letter=wanted.has_dead_letters)
                continue
            size = self._allowed(run, end, end - begin + 1)
            if size > 0:
                (part,) = runs.cut(begin, begin + size - 1)
                self._take(part)
            if self.is_over or size < end - begin + 1:
                self.is_over = True
                return

    def _allowed(self, run: Run, end: int, size: int) -> int:
        """Return how many records of a run up to `end` are acquired; sets `is_over` at the last."""
        wanted, count = self._wanted, run.count
        assert wanted is not None
        if wanted.is_exact:
            size = min(size, self._left)
        limit = wanted.delivery_limit
        throttled = max(_THROTTLED_MIN, (limit + 1) // 2)
        if limit > _THROTTLED_MIN and count == limit - 1:
            self.is_over = True
            return 0 if self.acquired else min(size, 1)
        if count >= throttled:
            last, left = self._throttle
            if last != run.last:
                left = max(1, run.whole >> (count - throttled + 1))
            # A run may have several stored batches: the next one has the rest of its records.
            self._throttle = (run.last, left - size)
            self.is_over = left <= size or run.last == end
            return min(size, left)
        return size

    def _add_new(self, batch: FetchedBatch) -> None:
        runs, wanted = self._runs, self._wanted
        assert wanted is not None
        if batch.last < runs.end:
            return
        room = runs.room(wanted.in_flight_max)
        if room <= 0:
            self.is_over = True
            return
        last = batch.last
        if wanted.is_exact:
            last = min(last, runs.end + min(self._left, room) - 1)
        if last < runs.end:
            self.is_over = True
            return
        first, tail = runs.end, self._tail
        if tail is None or tail.last != first - 1:
            self._tail = runs.append(last, AVAILABLE)
            self._take(self._tail)
        else:
            runs.extend(tail, last)
            self._note(first, last, 1)
        self.is_over = last < batch.last

    def _take(self, run: Run) -> None:
        wanted = self._wanted
        assert wanted is not None
        self._runs.move(run, ACQUIRED)
        run.count += 1
        run.member, run.deadline = wanted.member, wanted.deadline
        self._note(run.first, run.last, run.count)

    def _note(self, first: int, last: int, count: int) -> None:
        wanted = self._wanted
        assert wanted is not None
        self._left -= last - first + 1
        before = self.acquired[-1] if self.acquired else None
        joins = before is not None and before.last + 1 == first and before.delivery_count == count
        is_short = joins and before is not None and first - before.first < wanted.batch_size
        if before is not None and joins and (is_short or wanted.is_exact):
            self.acquired[-1] = Acquired(before.first, last, count)
        else:
            self.acquired.append(Acquired(first, last, count))
