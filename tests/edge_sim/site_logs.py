"""Logs of the simulator: batches with a leader epoch, retention, truncation. No bytes, no IO.

Each batch has `OFFSETS` offsets, so a batch is found by its offset without a search. Equal batches
are equal tuples: the last field is unique for each append at the root, also after a restore.
"""

from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from penstock.edge.pipes.down_pipe import NO_EPOCH, NO_OFFSET, EpochEnd, OwnLog

OFFSETS: Final = 10
"""Offsets of one batch."""


class Batch(NamedTuple):
    """One batch."""

    base_offset: int
    epoch: int
    written_at: float
    content: int
    """Unique for each append at the root."""


class SiteLog:
    """The log of one partition on one node."""

    def __init__(self, topic_id: UUID) -> None:
        self.topic_id = topic_id
        self.start_offset = 0
        self.batches: list[Batch] = []

    @property
    def end_offset(self) -> int:
        return self.start_offset + OFFSETS * len(self.batches)

    @property
    def latest_epoch(self) -> int:
        return self.batches[-1].epoch if self.batches else NO_EPOCH

    @property
    def view(self) -> OwnLog:
        return OwnLog(self.start_offset, self.end_offset, self.latest_epoch)

    def append(self, batch: Batch) -> None:
        """Append as the real log does: at the next offset, and with an epoch that never falls."""
        assert batch.base_offset == self.end_offset, (batch, self.end_offset)
        assert batch.epoch >= self.latest_epoch, (batch, self.latest_epoch)
        self.batches.append(batch)

    def copy(self) -> "SiteLog":
        """Return a copy, as of a cloned disk."""
        found = SiteLog(self.topic_id)
        found.start_offset, found.batches = self.start_offset, list(self.batches)
        return found

    def read(self, offset: int, batches_max: int) -> list[Batch]:
        first = (offset - self.start_offset) // OFFSETS
        return list(islice(self.batches, first, first + batches_max))

    def epoch_end(self, epoch: int) -> EpochEnd:
        """Return the largest epoch at or below this one, and the offset after its last batch.

        As brokers answer: an epoch before the first one ends where the log begins.
        """
        if not NO_EPOCH < epoch <= self.latest_epoch:
            return EpochEnd(NO_EPOCH, NO_OFFSET)
        if self.batches[0].epoch > epoch:
            return EpochEnd(epoch, self.batches[0].base_offset)
        for found in reversed(self.batches):
            if found.epoch <= epoch:
                return EpochEnd(found.epoch, found.base_offset + OFFSETS)
        raise AssertionError(epoch)

    def truncate(self, offset: int) -> None:
        assert self.start_offset <= offset <= self.end_offset
        del self.batches[(offset - self.start_offset) // OFFSETS :]

    def begin_anew(self, offset: int) -> None:
        self.batches.clear()
        self.start_offset = offset

    def delete_before(self, time: float) -> None:
        """Retention: delete old batches, never the last one."""
        count = 0
        while count < len(self.batches) - 1 and self.batches[count].written_at < time:
            count += 1
        del self.batches[:count]
        self.start_offset += OFFSETS * count


def common_end(own: SiteLog, parent: SiteLog) -> int:
    """Return the offset up to which the batches of two logs are equal, from their later start."""
    offset = max(own.start_offset, parent.start_offset)
    end = min(own.end_offset, parent.end_offset)
    # Histories differ at their ends: look from there, as the real comparison does.
    while end > offset:
        mine, theirs = own.read(end - OFFSETS, 1)[0], parent.read(end - OFFSETS, 1)[0]
        if mine == theirs:
            return end
        end -= OFFSETS
    return max(offset, min(end, own.end_offset))
