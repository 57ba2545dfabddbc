"""`RunMap`: the delivery state of a window of offsets, as runs of equal state. Pure.

A run is a range of consecutive offsets with one state, one delivery count, one owner and one lock.
Guarantees:

- the runs cover every offset from `start` to the one before `end`, once, in order;
- no object exists for a single record: a run is split only where an event treats its records
  differently, and neighbours of equal state are merged again by `merge`;
- `available`, `complete` and `archiving` are the numbers of available records, of terminal ones and
  of those whose dead letter is not written yet.

It does NOT decide which transitions are allowed: `acquisition` and `acknowledgement` do.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

AVAILABLE: Final = 0
ACQUIRED: Final = 1
ACKNOWLEDGED: Final = 2
ARCHIVING: Final = 3
"""Never delivered again; archived as soon as its dead letter is written."""
ARCHIVED: Final = 4
"""The numbers of Kafka's record states."""

REJECTED: Final = 0
EXHAUSTED: Final = 1
"""Causes of dead letters: a member rejected the record, or no member accepted it in time."""

LETTER_NONE: Final = 0
LETTER_CHANGED: Final = 1
"""The state ARCHIVING is in no write yet."""
LETTER_STORING: Final = 2
"""The state ARCHIVING is being written to the share coordinator."""
LETTER_DUE: Final = 3
"""The state ARCHIVING is durable: the letter can be written."""
LETTER_SENT: Final = 4
"""The letter is being written."""

ARCHIVING_MAX: Final = 1_000
RUNS_WITH_LETTERS_MAX: Final = 8_000
"""Records of one share-partition that wait for their letters, and runs meanwhile. Above them no new
records are delivered: a dead-letter topic that stays broken must not cost memory without end."""

WINDOW_MAX: Final = 15_000
"""Records of the window while acknowledgements are written. Each may have a state of its own, and
the last batch may exceed it: the states stay below the number that can be stored."""


class Change:
    """An acknowledgement whose new states are not durable yet; compared by identity."""

    __slots__ = ("spans",)

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []
        """First and last offsets of its records."""


class Run:
    """Consecutive records of one state."""

    __slots__ = (
        "cause",
        "change",
        "count",
        "deadline",
        "first",
        "last",
        "letter",
        "member",
        "state",
        "target",
        "whole",
    )

    def __init__(self, first: int, last: int, state: int, count: int) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        """Deliveries so far."""
        self.member = ""
        """The owner while the records are acquired."""
        self.deadline = 0.0
        """The end of the owner's lock, on the clock of the caller."""
        self.change: Change | None = None
        """The acknowledgement that is being written; the state is still ACQUIRED."""
        self.target = AVAILABLE
        """The state after `change`."""
        self.cause = REJECTED
        """Why the records are dead letters, while the state or the target is ARCHIVING."""
        self.letter = LETTER_NONE
        """The progress of the dead letter, while the state is ARCHIVING."""
        self.whole = last - first + 1
        """Records of the run at its first delivery, before it was split."""

    @property
    def is_terminal(self) -> bool:
        """Whether these records are delivered no more, durable or by the nature of the log."""
        return self.state in (ACKNOWLEDGED, ARCHIVED)

    @property
    def ends(self) -> bool:
        """Whether these records are terminal, or are when their acknowledgement is durable."""
        return self.is_terminal or (
            self.change is not None and self.target in (ACKNOWLEDGED, ARCHIVED)
        )

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __repr__(self) -> str:
        return f"Run({self.first}-{self.last} state={self.state} count={self.count})"

    def tail(self, first: int) -> "Run":
        """Cut the run before `first`, and return the rest."""
        rest = Run(first, self.last, self.state, self.count)
        rest.member, rest.deadline = self.member, self.deadline
        rest.change, rest.target = self.change, self.target
        rest.cause, rest.letter = self.cause, self.letter
        rest.whole = self.whole
        self.last = first - 1
        return rest

    def joins(self, other: "Run") -> bool:
        """Whether the run and the next one can be one run."""
        if self.is_terminal:
            return other.is_terminal
        if self.state != other.state or self.count != other.count:
            return False
        if self.state == ARCHIVING:
            return self.cause == other.cause and self.letter == other.letter
        return self.state == AVAILABLE


class RunMap:
    """The runs of one share-partition."""

    __slots__ = (
        "_firsts",
        "_leaving_end",
        "_runs",
        "archiving",
        "available",
        "complete",
        "end",
        "start",
    )

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        """The offset behind the last run."""
        self.available = 0
        self.complete = 0
        self.archiving = 0
        self._leaving_end = start
        """Records before this offset are terminal when the writes are durable. `_leaving` begins
        here, so it visits a run once."""
        self._firsts: list[int] = []
        self._runs: list[Run] = []

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def room(self, in_flight_max: int) -> int:
        """Return how many new records may be acquired; at most 0 if there is no room.

        The window from the start to the end counts, with these exceptions:

        - records at the start whose end is being written do not, so that members need not wait for
          the disk. The window is at most twice as large with them, and has `WINDOW_MAX` records;
        - while records wait for their dead letters, such records and terminal ones do not. So a
          dead-letter topic that is broken does not stop the queue.
        """
        window = self.end - self.start
        if self.archiving:
            if self.archiving >= ARCHIVING_MAX or len(self._runs) >= RUNS_WITH_LETTERS_MAX:
                return 0
            return in_flight_max - window + self.complete + self.archiving
        window_max = min(2 * in_flight_max, WINDOW_MAX)
        if window < in_flight_max or window >= window_max:
            return in_flight_max - window
        return min(in_flight_max - window + self._leaving(), window_max - window)

    def _leaving(self) -> int:
        """Return how many records at the start are terminal when the writes are durable.

        It is asked for each batch that is acquired: the runs that it knows are not looked at again.
        """
        index = max(0, bisect_right(self._firsts, self._leaving_end) - 1)
        while index < len(self._runs) and self._runs[index].ends:
            index += 1
        self._leaving_end = self._firsts[index] if index < len(self._runs) else self.end
        return self._leaving_end - self.start

    def first_kept(self) -> Run | None:
        """Return the first run that does not end with the writes under way."""
        offset = self.start + self._leaving()
        return None if offset >= self.end else self.covering(offset, offset)[0]

    def restore(self, run: Run) -> None:
        """Forget the acknowledgement of a run: it was not stored."""
        run.change = None
        self._leaving_end = min(self._leaving_end, run.first)

    def append(self, last: int, state: int, count: int = 0) -> Run:
        """Add the records from `end` to `last`."""
        assert last >= self.end, "a run has records"
        run = Run(self.end, last, state, count)
        self._firsts.append(run.first)
        self._runs.append(run)
        self.end = last + 1
        self._count(run, 1)
        return run

    def extend(self, run: Run, last: int) -> None:
        """Lengthen the last run."""
        assert run is self._runs[-1], "only the last run can be longer"
        self._count(run, -1)
        run.last = last
        run.whole = len(run)
        self.end = last + 1
        self._count(run, 1)

    def move(self, run: Run, state: int) -> None:
        """Change the state of a run."""
        self._count(run, -1)
        run.state = state
        self._count(run, 1)

    def covering(self, first: int, last: int) -> list[Run]:
        """Return the runs with records between two offsets, whole."""
        if first > last or last < self.start or first >= self.end:
            return []
        begin = max(0, bisect_right(self._firsts, first) - 1)
        return self._runs[begin : bisect_right(self._firsts, last)]

    def cut(self, first: int, last: int) -> list[Run]:
        """Return runs for exactly these offsets; runs that reach over the ends are split."""
        first, last = max(first, self.start), min(last, self.end - 1)
        if first > last:
            return []
        self._split(first)
        self._split(last + 1)
        return self._runs[bisect_left(self._firsts, first) : bisect_right(self._firsts, last)]

    def _split(self, offset: int) -> None:
        if not self.start < offset < self.end:
            return
        index = bisect_right(self._firsts, offset) - 1
        run = self._runs[index]
        if run.first != offset:
            self._runs.insert(index + 1, run.tail(offset))
            self._firsts.insert(index + 1, offset)

    def merge(self, first: int, last: int) -> None:
        """Join equal neighbours at and around these offsets."""
        begin = max(0, bisect_right(self._firsts, first) - 2)
        end = min(len(self._runs), bisect_right(self._firsts, last) + 1)
        joined: list[Run] = []
        for run in self._runs[begin:end]:
            if joined and joined[-1].joins(run):
                joined[-1].last = run.last
                # The coordinator keeps the state with the higher count: with the lower one, the
                # end of a record with many deliveries would not become durable.
                joined[-1].count = max(joined[-1].count, run.count)
                joined[-1].whole = max(joined[-1].whole, run.whole)
            else:
                joined.append(run)
        self._runs[begin:end] = joined
        self._firsts[begin:end] = [run.first for run in joined]

    def drop_terminal(self) -> None:
        """Move the start over terminal records."""
        index = 0
        for run in self._runs:
            if not run.is_terminal:
                break
            self._count(run, -1)
            self.start = run.last + 1
            index += 1
        del self._runs[:index], self._firsts[:index]

    def drop_below(self, offset: int) -> None:
        """Forget all records before `offset`, whatever their state."""
        if offset <= self.start:
            return
        for run in self.cut(self.start, offset - 1):
            self._count(run, -1)
        index = bisect_left(self._firsts, offset)
        del self._runs[:index], self._firsts[:index]
        self.start, self.end = offset, max(self.end, offset)

    def _count(self, run: Run, sign: int) -> None:
        if run.state == AVAILABLE:
            self.available += sign * len(run)
        elif run.state == ARCHIVING:
            self.archiving += sign * len(run)
        elif run.is_terminal:
            self.complete += sign * len(run)

    def validate(self) -> None:
        """Assert the invariants."""
        assert self._firsts == [run.first for run in self._runs]
        assert all(run.ends for run in self._runs if run.last < self._leaving_end)
        offset = self.start
        for run in self._runs:
            assert run.first == offset, (run, offset)
            assert run.last >= run.first
            assert (run.member != "") == (run.state == ACQUIRED), run
            assert run.change is None or run.state == ACQUIRED, run
            assert (run.letter != LETTER_NONE) == (run.state == ARCHIVING), run
            offset = run.last + 1
        assert offset == self.end
        assert self.available == sum(len(r) for r in self._runs if r.state == AVAILABLE)
        assert self.complete == sum(len(r) for r in self._runs if r.is_terminal)
        assert self.archiving == sum(len(r) for r in self._runs if r.state == ARCHIVING)
