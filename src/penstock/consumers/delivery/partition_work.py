"""`PartitionWork`: the received records of one partition, and the position that may be committed.

The position is the lowest offset that is not done. It never passes a record that is running, waits
for a retry, or is being written to a retry topic or a dead-letter topic. Offsets that the log does
not have (compaction, markers of transactions) are passed with the next record.

It is NOT the order of handlers: that is `work`.
"""

from collections import deque
from dataclasses import dataclass, field

from penstock.consumers.consumer_record import ConsumerRecord
from penstock.core.types import TopicPartition


@dataclass(slots=True, eq=False)
class Entry:
    """A received record until it is done."""

    record: ConsumerRecord
    """As the handler sees it: a record of a retry topic has its original place."""
    offset: int
    """The offset in the log it was read from."""
    home: "PartitionWork"
    lane: "Lane"
    size_bytes: int
    attempt: int
    """The number of the next attempt, or of the running one."""
    due_seconds: float = 0.0
    is_retried: bool = False
    """Failed since it was received: it is called alone, not in a batch."""


@dataclass(slots=True, eq=False)
class Lane:
    """Records that are handled one after another."""

    key: object
    entries: deque[Entry] = field(default_factory=deque)
    is_busy: bool = False
    """Running, scheduled or being written."""
    taken: int = 0
    """Entries of running calls, and of writes: the lane is busy until all of them ended."""


@dataclass(slots=True, eq=False)
class PartitionWork:
    """One assigned partition, from its assignment until it is revoked."""

    at: TopicPartition
    is_retry: bool
    lanes: dict[object, Lane] = field(default_factory=dict)
    ready: deque[Lane] = field(default_factory=deque)
    is_listed: bool = False
    """In the list of partitions with ready lanes."""
    is_revoking: bool = False
    is_gone: bool = False
    active: int = 0
    """Entries that are running or being written."""
    _offsets: deque[int] = field(default_factory=deque)
    _done: set[int] = field(default_factory=set)
    next_offset: int | None = None
    """The offset after the newest received record."""
    committed: int | None = None

    def receive(self, offset: int) -> None:
        """Add an offset; it must be above all offsets so far."""
        assert self.next_offset is None or offset >= self.next_offset
        self._offsets.append(offset)
        self.next_offset = offset + 1

    def finish(self, offset: int) -> None:
        """Note that the record is done."""
        self._done.add(offset)
        while self._offsets and self._offsets[0] in self._done:
            self._done.remove(self._offsets.popleft())

    @property
    def position(self) -> int | None:
        """Return the lowest offset that is not done; None before the first record."""
        return self._offsets[0] if self._offsets else self.next_offset

    @property
    def window(self) -> int:
        """Return the number of received records at and above the position."""
        return len(self._offsets)

    def validate(self) -> None:
        """Check the invariants; tests call it after every event."""
        assert list(self._offsets) == sorted(set(self._offsets))
        assert self._done <= set(self._offsets)
        assert not self._offsets or self._offsets[0] not in self._done
        assert self.active >= 0
