"""`DeadlineTable`: entries that expire at a deadline unless they are removed before (pure).

A timer for each waiting request would cost more than the request. Here a deadline is rounded up to
a bucket of ten milliseconds. Adding and removing is one dictionary operation each, an empty table
needs no timer, and one timer serves all. An entry never expires early; it may expire up to one
bucket late.

The caller owns the clock and the timer: it calls `next_deadline()` and `expire(now)`.
"""

import heapq
from collections.abc import Iterator
from math import ceil
from typing import Final, Generic, TypeVar

BUCKET_SECONDS: Final = 0.01
"""Ten milliseconds: a long poll of 500 ms ends within 2 % of the requested time."""

Entry = TypeVar("Entry")


class DeadlineTable(Generic[Entry]):
    """Entries by deadline; an entry is hashed by identity or as it defines."""

    __slots__ = ("_buckets", "_heap", "_size")

    def __init__(self) -> None:
        self._buckets: dict[int, dict[Entry, None]] = {}
        self._heap: list[int] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Entry]:
        for bucket in self._buckets.values():
            yield from bucket

    def add(self, entry: Entry, deadline: float) -> int:
        """Add `entry`; return the key that `discard` needs."""
        key = ceil(deadline / BUCKET_SECONDS)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = {}
            heapq.heappush(self._heap, key)
        assert entry not in bucket, "an entry waits once"
        bucket[entry] = None
        self._size += 1
        return key

    def discard(self, entry: Entry, key: int) -> None:
        """Remove `entry`, if it is still present."""
        bucket = self._buckets.get(key)
        if bucket is not None and entry in bucket:
            del bucket[entry]
            self._size -= 1

    def next_deadline(self) -> float | None:
        """Return when to call `expire` next; None if there are no entries."""
        while self._heap:
            key = self._heap[0]
            if self._buckets[key]:
                return key * BUCKET_SECONDS
            heapq.heappop(self._heap)
            del self._buckets[key]
        return None

    def expire(self, now: float) -> list[Entry]:
        """Remove and return the entries whose deadline has passed, earliest first."""
        due: list[Entry] = []
        while self._heap and self._heap[0] * BUCKET_SECONDS <= now:
            due.extend(self._buckets.pop(heapq.heappop(self._heap)))
        self._size -= len(due)
        return due

    def validate(self) -> None:
        """Assert the invariants."""
        assert set(self._heap) == set(self._buckets)
        assert len(self._heap) == len(self._buckets)
        assert self._size == sum(len(bucket) for bucket in self._buckets.values())
