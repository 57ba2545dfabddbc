"""`RunMap`: the delivery state of a window of offsets, as runs of equal state. Pure.

A run is a range of consecutive offsets with one state, one delivery count, one owner and one lock.
Guarantees:

- the runs cover every offset from `start` to the one before `end`, once, in order;
- no object exists for a single record: a run is split only where an event treats its records
  differently, and neighbours of equal state are merged again by `merge`;
- `available` and `complete` are the numbers of available and of terminal records.

It does NOT decide which transitions are allowed: `acquisition` and `acknowledgement` do.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

AVAILABLE: Final = 0
ACQUIRED: Final = 1
ACKNOWLEDGED: Final = 2
ARCHIVED: Final = 4
"""The numbers of Kafka's record states; 3 is an archived record that is still being copied."""


class Change:
    """An acknowledgement whose new states are not durable yet; compared by identity."""

    __slots__ = ("spans",)

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []
        """First and last offsets of its records."""


class Run:
    """Consecutive records of one state."""

    __slots__ = ("change", "count", "deadline", "first", "last", "member", "state", "target")

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

    @property
    def is_terminal(self) -> bool:
        """Whether these records are delivered no more, durable or by the nature of the log."""
        return self.state in (ACKNOWLEDGED, ARCHIVED)

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __repr__(self) -> str:
        return f"Run({self.first}-{self.last} state={self.state} count={self.count})"

    def tail(self, first: int) -> "Run":
        """Cut the run before `first`, and return the rest."""
        rest = Run(first, self.last, self.state, self.count)
        rest.member, rest.deadline = self.member, self.deadline
        rest.change, rest.target = self.change, self.target
        self.last = first - 1
        return rest

    def joins(self, other: "Run") -> bool:
        """Whether the run and the next one can be one run."""
        if self.is_terminal:
            return other.is_terminal
        return self.state == AVAILABLE == other.state and self.count == other.count


class RunMap:
    """The runs of one share-partition."""

    __slots__ = ("_firsts", "_runs", "available", "complete", "end", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        """The offset behind the last run."""
        self.available = 0
        self.complete = 0
        self._firsts: list[int] = []
        self._runs: list[Run] = []

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

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
        elif run.is_terminal:
            self.complete += sign * len(run)

    def validate(self) -> None:
        """Assert the invariants."""
        assert self._firsts == [run.first for run in self._runs]
        offset = self.start
        for run in self._runs:
            assert run.first == offset, (run, offset)
            assert run.last >= run.first
            assert (run.member != "") == (run.state == ACQUIRED), run
            assert run.change is None or run.state == ACQUIRED, run
            offset = run.last + 1
        assert offset == self.end
        assert self.available == sum(len(r) for r in self._runs if r.state == AVAILABLE)
        assert self.complete == sum(len(r) for r in self._runs if r.is_terminal)
