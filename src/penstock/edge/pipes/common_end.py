"""`CommonEnd`: finds the offset up to which two logs have the same batches, by bisection. Pure.

Leader epochs do not show each divergence: a parent that was restored from an old backup writes
other records with the same offsets in the same epoch. The batches themselves show it: a batch with
the same offsets, epoch and checksum is the same batch.

Guarantees: the found offset is the end of a batch that both logs have, or the start of the search.
If compaction changed a batch, the result is lower than it could be, never higher. It needs about
log2(offsets) comparisons.
"""

from typing import NamedTuple


class BatchMark(NamedTuple):
    """The identity of a stored batch."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int


class CommonEnd:
    """One search between a start that both logs have, and the end of the own log."""

    def __init__(self, start_offset: int, end_offset: int) -> None:
        assert start_offset <= end_offset
        self._low = start_offset
        self._high = end_offset
        self._is_first = True

    @property
    def probe(self) -> int | None:
        """The offset of the next batch to compare; None when the search is over."""
        if self._low >= self._high:
            return None
        # The last batch is the same in nearly every search, which then ends after one comparison.
        return self._high - 1 if self._is_first else (self._low + self._high) // 2

    def compared(self, own: BatchMark | None, parent: BatchMark | None) -> None:
        """The batches at `probe`; None: the log has no batch that holds the offset."""
        at = self.probe
        assert at is not None
        self._is_first = False
        if own is not None and own == parent:
            self._low = max(self._low, own.last_offset + 1)
        else:
            self._high = min(at, self._high if own is None else max(self._low, own.base_offset))

    @property
    def result(self) -> int:
        """The end of the common batches."""
        return self._low
