"""The open transactions of a partition, and the verifications under way. Pure.

`OpenTransactions` computes the last stable offset: all transactions below it are decided, and their
markers are committed. A transaction is undecided from its first record to its marker, and then
until the high watermark has passed the marker, because a marker that a crash could lose decides
nothing.

`Verifications` closes a race (KIP-890). The first batch of a transaction is appended only after the
transaction's coordinator confirmed that the partition belongs to it. A marker may be written
between that answer and the append; the batch would then open a transaction that never ends. So each
question has a guard, the append must present it, and a marker revokes it.

This state is not stored: open transactions are restored from the snapshot and the log, and a
verification that a crash interrupts is repeated. It does NOT ask the coordinator.
"""

from collections import deque
from typing import Final, NamedTuple

from penstock.core.limits import PRODUCER_IDS_PER_PARTITION_MAX

NO_OFFSET: Final = -1
NO_GUARD: Final = 0
"""The guard of an append that was not verified."""


class AbortedTransaction(NamedTuple):
    """One aborted transaction in one partition."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the marker."""
    last_stable_offset: int
    """Once the marker was committed: no transaction below it is undecided."""


class OpenTransactions:
    """The transactions of one partition without a marker, or without a committed one."""

    __slots__ = ("_ended", "_open")

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        """Producer to the first offset of its transaction, in the order of these offsets."""
        self._ended: deque[tuple[int, int]] = deque()
        """(first offset, offset of the marker), in the order of the markers."""

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._open

    def begin(self, producer_id: int, first_offset: int) -> None:
        """A producer wrote the first record of a transaction."""
        assert producer_id not in self._open
        self._open[producer_id] = first_offset

    def end(self, producer_id: int, marker_offset: int) -> None:
        """A marker was appended; the transaction it ends, if there is one, awaits its commit."""
        first_offset = self._open.pop(producer_id, NO_OFFSET)
        if first_offset != NO_OFFSET:
            self._ended.append((first_offset, marker_offset))

    def first_undecided(self, high_watermark: int) -> int:
        """First offset of the oldest undecided transaction, or -1; `high_watermark` only grows."""
        ended = self._ended
        while ended and ended[0][1] < high_watermark:
            ended.popleft()
        first_offset = next(iter(self._open.values()), NO_OFFSET)
        for ended_first, _ in ended:
            if first_offset == NO_OFFSET or ended_first < first_offset:
                first_offset = ended_first
        return first_offset

    @property
    def is_all_decided(self) -> bool:
        """Whether no transaction holds the last stable offset back: nearly always."""
        return not self._open and not self._ended

    def stable_offset_after(self, producer_id: int, marker_offset: int) -> int:
        """The last stable offset once this producer's marker is committed: for the index."""
        for other, first_offset in self._open.items():
            if other != producer_id:
                return first_offset
        return marker_offset + 1

    def validate(self) -> None:
        """Assert the invariants."""
        firsts = list(self._open.values())
        assert firsts == sorted(firsts)
        assert all(first < marker for first, marker in self._ended)


EXPIRED_AT_ONCE: Final = 2_000
"""Questions that one call expires: 0.2 ms of CPU, uncompiled. A client can have 100,000 in a
partition."""


class Verification:
    """One question to a coordinator, from when it is asked to the append or a marker."""

    __slots__ = ("adds", "epoch", "guard", "is_verified", "lowest_sequence", "timestamp_ms")

    def __init__(
        self, guard: int, sequence: int, epoch: int, timestamp_ms: int, *, adds: bool
    ) -> None:
        self.guard = guard
        self.lowest_sequence = sequence
        """A batch above it may not overtake the batch that asked first."""
        self.epoch = epoch
        self.timestamp_ms = timestamp_ms
        self.adds = adds
        """The broker adds partitions for the client: its first sequence must be 0."""
        self.is_verified = False
        """The coordinator confirmed it."""


class Verifications:
    """The verifications of one partition, by producer."""

    __slots__ = ("_by_producer", "_last_guard")

    def __init__(self) -> None:
        self._by_producer: dict[int, Verification] = {}
        self._last_guard = NO_GUARD

    def begin(self, producer_id: int, sequence: int, epoch: int, now_ms: int, *, adds: bool) -> int:
        """Note that the coordinator is asked; return the guard that the append must present."""
        known = self._by_producer.get(producer_id)
        if known is None:
            if len(self._by_producer) >= PRODUCER_IDS_PER_PARTITION_MAX:
                del self._by_producer[next(iter(self._by_producer))]
            self._last_guard += 1
            known = Verification(self._last_guard, sequence, epoch, now_ms, adds=adds)
            self._by_producer[producer_id] = known
        elif epoch > known.epoch:
            known.epoch = epoch
            known.lowest_sequence = sequence
        elif epoch == known.epoch and sequence < known.lowest_sequence:
            known.lowest_sequence = sequence
        return known.guard

    def get(self, producer_id: int) -> Verification | None:
        """The pending verification, or a confirmed one that is not used yet."""
        return self._by_producer.get(producer_id)

    def confirm(self, producer_id: int, guard: int) -> None:
        """The coordinator confirmed the question with this guard."""
        known = self._by_producer.get(producer_id)
        if known is not None and known.guard == guard:
            known.is_verified = True

    def forget(self, producer_id: int) -> None:
        """The transaction is open now, or a marker was appended: an older answer is invalid."""
        self._by_producer.pop(producer_id, None)

    def expire(self, limit_ms: int, count_max: int = EXPIRED_AT_ONCE) -> None:
        """Forget questions that were asked before `limit_ms` and never led to an append.

        They are in the order in which they were asked, so the first young one ends the search. The
        next call expires those above `count_max`.
        """
        expired: list[int] = []
        for producer_id, known in self._by_producer.items():
            if known.timestamp_ms > limit_ms or len(expired) == count_max:
                break
            expired.append(producer_id)
        for producer_id in expired:
            del self._by_producer[producer_id]
