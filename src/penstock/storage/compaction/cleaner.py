"""`CleaningJob`: one pass of compaction over one log: read, filter records, write new segments.

Guarantees: the log is unchanged while a pass reads and writes; new segments are complete and synced
under names that a start removes, until their `SegmentSwap` is carried out. Every batch that is read
is verified; damage ends the pass with `CorruptBatchError`, and the old segments stay.

The work is split into small steps (`steps`), so that the caller can do a little at a time on a
thread, stop between any two, and rest. A step is a few records of a batch, which may hold a
million. A group of segments that is ready is returned as a `SegmentSwap`; the caller carries it out
or discards it.

It decides nothing (`compaction`) and knows neither threads nor when to clean (`log_cleaner`).
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from typing_extensions import Buffer

from penstock.core.errors import CorruptBatchError, StorageError
from penstock.core.limits import COMPACTION_KEYS_MAX, RECOVERY_CHUNK_BYTES, SCAN_SLICE_RECORDS
from penstock.records.batch import HEADER_BYTES, MAGIC, BatchHeader, checksum_matches, read_header
from penstock.storage.compaction.decisions import (
    BatchFilter,
    CleanableRange,
    CompactionRules,
    ProducerEnd,
    TransactionFilter,
    add_batch,
    group_segments,
)
from penstock.storage.compaction.offset_map import OffsetMap
from penstock.storage.disk.filesystem import FileSystem
from penstock.storage.disk.open_files import OpenFiles
from penstock.storage.log.batch_walk import batch_bytes
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log.open_transactions import AbortedTransaction
from penstock.storage.log.producer_state import ProducerSnapshot
from penstock.storage.log.segment import NO_TIMESTAMP, Segment
from penstock.storage.log.segment_swap import CLEANED_SUFFIX, SegmentSwap

AbortedIn = Callable[[int, int], Iterable[AbortedTransaction]]
"""The aborted transactions that touch the offsets from the first to before the second."""


@dataclass(slots=True)
class CleaningStatistics:
    """The statistics of a pass."""

    bytes_read: int = 0
    """By both reads of the log: for keys, and for the records that stay."""
    bytes_copied: int = 0
    """Of the segments that were replaced."""
    bytes_written: int = 0
    batches_read: int = 0
    batches_written: int = 0
    swaps: int = 0


@dataclass(frozen=True, slots=True)
class CleaningSource:
    """A log as a pass sees it; it does not change while the pass runs."""

    filesystem: FileSystem
    open_files: OpenFiles
    directory: str
    segments: list[Segment]
    settings: LogSettings
    producers: ProducerSnapshot
    aborted_in: AbortedIn


@contextmanager
def _reading(directory: str) -> Iterator[None]:
    """Distinguish a disk that cannot be read from one that cannot be written."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StorageError(f"{directory} cannot be read: {error}") from error


def _read(segment: Segment, position: int, size: int) -> memoryview:
    with _reading(segment.directory):
        return segment.read(position, size, nowait=False)


def producer_ends(
    snapshot: ProducerSnapshot,
) -> Generator[None, None, dict[int, ProducerEnd]]:
    """The last batch of each producer, in steps: there may be many."""
    ends: dict[int, ProducerEnd] = {}
    for producer_id, entry in snapshot.entries.items():
        last_offset = entry.batches[-1].last_offset if entry.batches else -1
        ends[producer_id] = ProducerEnd(last_offset, entry.epoch)
        if len(ends) % SCAN_SLICE_RECORDS == 0:
            yield None
    return ends


def batches_of(segment: Segment) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Position, header and bytes of each batch, verified, read in chunks; not on the loop."""
    position = 0
    while position < segment.size:
        chunk = _read(segment, position, min(RECOVERY_CHUNK_BYTES, segment.size - position))
        step = 0
        while len(chunk) - step >= HEADER_BYTES:
            header = read_header(chunk, step)
            size = batch_bytes(header.batch_length)
            if step + size > len(chunk):
                if step or position + size > segment.size:
                    break
                chunk = _read(segment, position, size)
            if header.magic != MAGIC or not checksum_matches(chunk, step, header):
                break
            yield position + step, header, chunk[step : step + size]
            step += size
        if step == 0:
            raise CorruptBatchError(
                f"{segment.directory}: no whole batch at byte {position} of segment"
                f" {segment.base_offset}; it is served as it is and not compacted"
            )
        position += step


class CleaningJob:
    """One pass over one log."""

    def __init__(
        self,
        source: CleaningSource,
        cleanable: CleanableRange,
        now_ms: int,
        *,
        keys_max: int = COMPACTION_KEYS_MAX,
    ) -> None:
        self._source = source
        self._range = cleanable
        self._now_ms = now_ms
        self._latest = OffsetMap(keys_max)
        self._filter: BatchFilter | None = None
        self._header_time_ms = NO_TIMESTAMP
        """Highest timestamp in the headers of the segment that is being written."""
        self.end_offset = cleanable.first_dirty_offset
        """All records below are clean when the pass is done."""
        self.statistics = CleaningStatistics()

    def steps(self) -> Generator[SegmentSwap | None, None, None]:
        """Run the pass, step by step. Each step blocks a little; not on the loop."""
        yield from self._read_keys()
        if self._latest.latest_offset < self._range.first_dirty_offset:
            return
        end_offset = self._latest.latest_offset + 1
        source = self._source
        producers = yield from producer_ends(source.producers)
        self._filter = BatchFilter(
            CompactionRules(
                self._latest,
                producers,
                self._range.first_uncleanable_offset,
                self._now_ms,
                source.settings.delete_retention_ms,
            )
        )
        limit = min(end_offset, self._range.first_uncleanable_offset)
        with _reading(source.directory):
            groups = group_segments(
                [segment for segment in source.segments if segment.base_offset < limit],
                self._range.first_uncleanable_offset,
                segment_bytes=source.settings.segment_bytes,
                index_bytes_max=source.settings.index_bytes_max,
            )
        for group in groups:
            yield from self._clean_group(group)
        self.end_offset = end_offset

    def _next_base(self, segment: Segment) -> int:
        """The base offset of the segment after this one."""
        segments = self._source.segments
        return segments[segments.index(segment) + 1].base_offset

    def _aborted_in(self, first: int, limit: int) -> Iterable[AbortedTransaction]:
        with _reading(self._source.directory):
            return self._source.aborted_in(first, limit)

    def _read_keys(self) -> Iterator[None]:
        """Find the last offset of each key in the dirty part, until the map is full."""
        first, limit = self._range.first_dirty_offset, self._range.first_uncleanable_offset
        transactions = TransactionFilter()
        for segment in self._source.segments[:-1]:
            following = self._next_base(segment)
            if following <= first or segment.base_offset >= limit:
                continue
            transactions.add(self._aborted_in(max(first, segment.base_offset), following))
            for _, header, batch in batches_of(segment):
                if self._latest.is_full:
                    return
                if header.last_offset >= first:
                    if not (yield from add_batch(self._latest, transactions, header, batch, first)):
                        return
                    transactions.kept.clear()
                self.statistics.bytes_read += len(batch)
                yield None
            # Offsets that are missing at its end count as read.
            self._latest.latest_offset = max(self._latest.latest_offset, following - 1)

    def _clean_group(self, group: list[Segment]) -> Iterator[SegmentSwap | None]:
        """Write one segment with the remaining records of several."""
        source = self._source
        new = Segment.create(
            source.filesystem,
            source.open_files,
            source.directory,
            group[0].base_offset,
            CLEANED_SUFFIX,
        )
        swap = SegmentSwap(source.filesystem, source.directory, new, group)
        is_ready = False
        self._header_time_ms = NO_TIMESTAMP
        try:
            # Kept open until it is synced, or an error of the writeback could be lost.
            new.is_dirty = True
            yield from self._fill(new, group)
            for file in new.finish():
                file.sync()
            new.is_dirty = False
            new.age_by(self._header_time_ms)
            new.set_modified_ms(group[-1].modified_ms)
            self.statistics.swaps += 1
            is_ready = True
        finally:
            if not is_ready:
                with suppress(OSError):
                    swap.discard()
        yield swap

    def _fill(self, new: Segment, group: list[Segment]) -> Iterator[None]:
        """Copy the remaining records into the new segment."""
        assert self._filter is not None
        transactions, statistics = self._filter.transactions, self.statistics
        interval_bytes = self._source.settings.index_interval_bytes
        last = max((segment for segment in group if segment.size), key=_base, default=None)
        for segment in group:
            transactions.add(self._aborted_in(segment.base_offset, self._next_base(segment)))
            for position, header, batch in batches_of(segment):
                is_last = segment is last and position + len(batch) == segment.size
                kept = yield from self._filter.filtered(header, batch, is_last=is_last)
                statistics.bytes_read += len(batch)
                statistics.bytes_copied += len(batch)
                statistics.batches_read += 1
                if kept is not None:
                    self._append(new, kept, interval_bytes)
                yield None

    def _append(self, new: Segment, batch: Buffer, interval_bytes: int) -> None:
        """Write one batch and its index entries."""
        assert self._filter is not None
        header = read_header(batch)
        # Kafka's tool checks the time index against records; a header alone has none.
        timestamp_ms = header.max_timestamp_ms if header.record_count else NO_TIMESTAMP
        self._header_time_ms = max(self._header_time_ms, header.max_timestamp_ms)
        new.append(batch, header.size_bytes, header.last_offset, timestamp_ms, interval_bytes)
        if new.wants_index_write:
            new.write_indexes()
        kept, self._filter.transactions.kept = self._filter.transactions.kept, []
        for aborted in kept:
            new.transactions.append(aborted)
        self.statistics.bytes_written += header.size_bytes
        self.statistics.batches_written += 1


def _base(segment: Segment) -> int:
    return segment.base_offset
