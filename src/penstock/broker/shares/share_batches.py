"""`ReadBatches`: the batches in records that were read, for their delivery to a share group. Pure.

Only fields of the headers are read, and only of as many batches as are asked for: no record is
decoded. `slice` returns the stored bytes from the first to the last batch with acquired records.
Control batches are delivered like others, as Apache Kafka does: clients acknowledge them as gaps. A
reader that does not can have them archived. It does NOT check the batches: the log does.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from struct import Struct
from typing import Final

from penstock.coordinator.shares.delivery.acquisition import Acquired, FetchedBatch
from penstock.records.batch import CONTROL, HEADER_BYTES, LOG_OVERHEAD_BYTES, TRANSACTIONAL
from penstock.storage.log.open_transactions import AbortedTransaction

_FIELDS: Final = Struct(">qi9xhi16xq")
"""Base offset, length, attributes, last offset delta, producer id."""


class ReadBatches:
    """The batches of one read, in their order."""

    __slots__ = ("_aborted", "_archives_control", "_ends", "_firsts", "_records")

    def __init__(
        self,
        records: bytes | memoryview,
        aborted: Sequence[AbortedTransaction] = (),
        *,
        archives_control: bool = False,
    ) -> None:
        """With `archives_control`, no member gets control batches."""
        self._records = memoryview(records)
        self._archives_control = archives_control
        self._aborted = _by_producer(aborted)
        self._firsts: list[int] = []
        """Base offsets of the batches that were yielded."""
        self._ends: list[int] = []
        """Their ends in bytes."""

    def __iter__(self) -> Iterator[FetchedBatch]:
        records, position = self._records, 0
        while len(records) - position >= HEADER_BYTES:
            first, length, attributes, delta, producer_id = _FIELDS.unpack_from(records, position)
            position += length + LOG_OVERHEAD_BYTES
            if length <= 0 or position > len(records):
                return
            self._firsts.append(first)
            self._ends.append(position)
            if attributes & CONTROL:
                is_dead = self._archives_control
            else:
                is_dead = bool(attributes & TRANSACTIONAL) and self._is_aborted(producer_id, first)
            yield FetchedBatch(first, first + delta, is_dead)

    def _is_aborted(self, producer_id: int, offset: int) -> bool:
        aborted = self._aborted.get(producer_id)
        if aborted is None:
            return False
        # The transactions of one producer follow each other.
        index = bisect_right(aborted, offset, key=_first_offset) - 1
        return index >= 0 and offset <= aborted[index].last_offset

    def slice(self, acquired: Sequence[Acquired]) -> memoryview:
        """Return the bytes of the batches between the first and the last acquired record.

        A small part of the read is copied: an answer that waits for its client to read would keep
        the whole read in memory, and only its own bytes are counted.
        """
        begin = bisect_right(self._firsts, acquired[0].first) - 1
        end = bisect_right(self._firsts, acquired[-1].last) - 1
        part = self._records[self._ends[begin - 1] if begin > 0 else 0 : self._ends[end]]
        return memoryview(bytes(part)) if 2 * len(part) < len(self._records) else part


def count_offsets(records: bytes | memoryview, most: int) -> int:
    """Return how many offsets the batches of a read have; stops counting at `most`."""
    count = 0
    for batch in ReadBatches(records):
        count += batch.last - batch.first + 1
        if count >= most:
            break
    return count


_first_offset = attrgetter("first_offset")


def _by_producer(
    aborted: Sequence[AbortedTransaction],
) -> dict[int, list[AbortedTransaction]]:
    found: dict[int, list[AbortedTransaction]] = {}
    for one in sorted(aborted, key=_first_offset):
        found.setdefault(one.producer_id, []).append(one)
    return found
