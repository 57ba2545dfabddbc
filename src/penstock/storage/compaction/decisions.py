"""Decides what compaction keeps: which range of a log, which records of a batch. Pure.

Rules, as Apache Kafka's cleaner has them:

- The last record of each key below the boundary stays; a record without a key is removed.
- The boundary lies at the beginning of a segment: never in the active one, never past the last
  stable offset (all below it is synced and decided), never in a segment younger than the shortest
  lag.
- A record without a value (a tombstone) stays for `delete.retention.ms` after it was first cleaned;
  the end of that time is written into its batch as the delete horizon (KIP-534).
- Records of aborted transactions are removed. A marker is removed when no record of its transaction
  is left, after the same horizon.
- The last batch of each known producer stays, empty if need be: it has the last sequence number.

One rule is ours: the last batch of each group of segments stays, empty if need be, so that the file
itself says how far it reaches. A start after a crash in the middle of a swap then knows which old
segments the new one replaces.

It reads no file (`cleaner`) and knows no names (`segment_swap`).
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple, Protocol, TypeVar

from typing_extensions import Buffer

from penstock.core.errors import CorruptBatchError
from penstock.core.limits import SEGMENT_RELATIVE_OFFSET_MAX
from penstock.records.batch import BatchHeader
from penstock.records.builder import records_section
from penstock.records.control import read_marker
from penstock.records.section_slices import span_slices
from penstock.records.shrinking import BatchRewriter, empty_batch
from penstock.records.span_walk import RecordSpan
from penstock.storage.compaction.offset_map import OffsetMap
from penstock.storage.log.open_transactions import AbortedTransaction
from penstock.storage.log.retention import newest_ms


class CompactedSegment(Protocol):
    """A segment, as the choice of a range sees it."""

    base_offset: int
    size: int

    @property
    def max_timestamp_ms(self) -> int:
        """Highest timestamp, or -1."""
        ...

    @property
    def modified_ms(self) -> int:
        """When its data was last written: its age if no record has a timestamp."""
        ...

    @property
    def index_bytes(self) -> int:
        """Size of its larger index."""
        ...


AnySegment = TypeVar("AnySegment", bound=CompactedSegment)


@dataclass(frozen=True, slots=True)
class CleanableRange:
    """The clean and the cleanable part of a log."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    """The base offset of a segment."""
    clean_bytes: int
    dirty_bytes: int
    """Bytes that may be cleaned; bytes that may not are not counted."""
    is_overdue: bool
    """Whether a dirty record is older than `max.compaction.lag.ms`."""

    @property
    def dirty_ratio(self) -> float:
        """Share of the log that is dirty."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, ratio_min: float) -> bool:
        """Whether the log should be cleaned now."""
        return (self.is_overdue and self.dirty_bytes > 0) or self.dirty_ratio > ratio_min


def cleanable_range(
    segments: Sequence[CompactedSegment],
    *,
    cleaned_offset: int | None,
    log_start_offset: int,
    end_offset: int,
    offset_limit: int,
    lag_ms_min: int,
    lag_ms_max: int,
    now_ms: int,
    first_timestamp_ms: Callable[[int], int],
) -> CleanableRange:
    """The cleanable part of a log whose last segment is the active one.

    `cleaned_offset` is the checkpoint, `offset_limit` the last stable offset, and
    `first_timestamp_ms` reads the first timestamp of the segment with that number.
    """
    first_dirty = log_start_offset
    if cleaned_offset is not None and log_start_offset <= cleaned_offset <= end_offset:
        first_dirty = cleaned_offset
    bases = [segment.base_offset for segment in segments]
    limit = min(offset_limit, bases[-1])
    dirty_numbers = [
        number
        for number in range(len(segments) - 1)
        if bases[number + 1] > first_dirty and segments[number].size
    ]
    if lag_ms_min > 0:
        for number in dirty_numbers:
            if newest_ms(segments[number]) > now_ms - lag_ms_min:
                limit = min(limit, bases[number])
                break
    # The segment that holds the limit stays as a whole.
    limit = max((base for base in bases if base <= limit), default=bases[0])
    limit = max(limit, first_dirty)
    sizes = [
        (segment.size, limit > first_dirty and following > first_dirty)
        for segment, following in zip(segments[:-1], bases[1:], strict=True)
        if segment.base_offset < limit
    ]
    times = (first_timestamp_ms(number) for number in dirty_numbers if bases[number] < limit)
    is_overdue = now_ms > lag_ms_max and any(0 < time < now_ms - lag_ms_max for time in times)
    return CleanableRange(
        first_dirty,
        limit,
        sum(size for size, is_dirty in sizes if not is_dirty),
        sum(size for size, is_dirty in sizes if is_dirty),
        is_overdue,
    )


def group_segments(
    segments: Sequence[AnySegment],
    end_offset: int,
    *,
    segment_bytes: int,
    index_bytes_max: int,
) -> list[list[AnySegment]]:
    """Runs of segments that become one each: small ones are joined up to the topic's size."""
    groups: list[list[AnySegment]] = []
    data_bytes = index_bytes = 0
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        is_joined = (
            bool(groups)
            and data_bytes + segment.size <= segment_bytes
            and index_bytes + segment.index_bytes <= index_bytes_max
            and following - 1 - groups[-1][0].base_offset <= SEGMENT_RELATIVE_OFFSET_MAX
        )
        if is_joined:
            groups[-1].append(segment)
        else:
            groups.append([segment])
            data_bytes = index_bytes = 0
        data_bytes += segment.size
        index_bytes += segment.index_bytes
    return groups


class _OpenAbort:
    """An aborted transaction whose marker was not read yet."""

    __slots__ = ("aborted", "is_seen")

    def __init__(self, aborted: AbortedTransaction) -> None:
        self.aborted = aborted
        self.is_seen = False
        """Whether a batch of it is still in the log."""


class TransactionFilter:
    """Follows transactions through the log, batch by batch, in order."""

    def __init__(self) -> None:
        self._committed: set[int] = set()
        """Producers with a batch since their last marker that is not aborted."""
        self._aborted: dict[int, _OpenAbort] = {}
        self._coming: list[tuple[int, AbortedTransaction]] = []
        """By first offset."""
        self.kept: list[AbortedTransaction] = []
        """Transactions whose markers stay because records are left; the caller takes them."""

    def add(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Add the aborted transactions of the next batches."""
        for transaction in aborted:
            heappush(self._coming, (transaction.first_offset, transaction))

    def _begin(self, offset: int) -> None:
        """Transactions that began at or before `offset` are open now."""
        while self._coming and self._coming[0][0] <= offset:
            transaction = heappop(self._coming)[1]
            self._aborted.setdefault(transaction.producer_id, _OpenAbort(transaction))

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the records of this batch were aborted."""
        self._begin(header.last_offset)
        if not header.is_transactional:
            return False
        aborted = self._aborted.get(header.producer_id)
        if aborted is None:
            self._committed.add(header.producer_id)
            return False
        aborted.is_seen = True
        return True

    def is_marker_useless(self, header: BatchHeader, batch: Buffer) -> bool:
        """Whether no record is left of the transaction that this control batch ends."""
        self._begin(header.last_offset)
        if header.record_count == 0:
            return True
        marker = read_marker(batch)
        if marker is None:
            return False
        if marker.is_commit:
            is_left = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not is_left
        aborted = self._aborted.pop(header.producer_id, None)
        if aborted is None or not aborted.is_seen:
            return True
        self.kept.append(aborted.aborted)
        return False


class ProducerEnd(NamedTuple):
    """The last batch of a producer in the log."""

    last_offset: int
    """Last offset of its last batch with records, or -1."""
    epoch: int


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """The parameters of one pass."""

    latest: OffsetMap
    producers: Mapping[int, ProducerEnd]
    end_offset: int
    """The boundary: the batch before it stays, empty if need be."""
    now_ms: int
    delete_retention_ms: int


class BatchFilter:
    """Decides batch by batch which records stay in a log."""

    def __init__(self, rules: CompactionRules) -> None:
        self._rules = rules
        self.transactions = TransactionFilter()

    def filtered(
        self, header: BatchHeader, batch: Buffer, *, is_last: bool
    ) -> Generator[None, None, Buffer | None]:
        """The remaining batch: itself, a rewritten one, or none; in steps. `is_last` of its group.

        A step is a few records, because a batch may hold a million.
        """
        rules = self._rules
        horizon_ms = header.base_timestamp_ms if header.has_delete_horizon else None
        is_useless_marker = False
        if header.is_control:
            is_useless_marker = self.transactions.is_marker_useless(header, batch)
            is_dropped = is_useless_marker and horizon_ms is not None and horizon_ms <= rules.now_ms
        else:
            is_dropped = self.transactions.is_aborted(header)
        answer = None
        if not is_dropped and header.record_count:
            answer = yield from self._filtered_records(
                header, batch, is_useless_marker=is_useless_marker
            )
        if answer is None and (is_last or self._is_needed(header)):
            return batch if header.record_count == 0 else empty_batch(header)
        return answer

    def _is_needed(self, header: BatchHeader) -> bool:
        """Whether the header stays even if no record does."""
        if header.next_offset == self._rules.end_offset:
            return True
        end = self._rules.producers.get(header.producer_id)
        if end is None:
            return False
        if end.last_offset >= 0:
            return header.last_offset == end.last_offset
        return header.is_control and header.producer_epoch == end.epoch

    def _filtered_records(
        self, header: BatchHeader, batch: Buffer, *, is_useless_marker: bool
    ) -> Generator[None, None, Buffer | None]:
        """Read the records twice: the first pass decides, the second copies."""
        section = memoryview(records_section(batch, header))
        yield None
        kept = bytearray()
        has_tombstone = False
        for piece in span_slices(section, header.record_count):
            for span in piece.spans:
                is_kept = header.is_control or self._is_kept(header, span)
                kept.append(is_kept)
                has_tombstone |= is_kept and not span.has_value
            yield None
        kept_count = kept.count(1)
        if not kept_count:
            return None
        horizon_ms = None
        if (has_tombstone or is_useless_marker) and not header.has_delete_horizon:
            horizon_ms = self._rules.now_ms + self._rules.delete_retention_ms
        if horizon_ms is None and kept_count == len(kept):
            return batch
        return (yield from _rewritten(header, section, kept, horizon_ms))

    def _is_kept(self, header: BatchHeader, span: RecordSpan) -> bool:
        """Whether the record is the last of its key and not an expired tombstone."""
        latest = self._rules.latest
        offset = header.base_offset + span.offset_delta
        if offset > latest.latest_offset:
            return True
        if span.key is None or offset < latest.latest(span.key):
            return False
        return (
            span.has_value
            or not header.has_delete_horizon
            or self._rules.now_ms < header.base_timestamp_ms
        )


def _rewritten(
    header: BatchHeader, section: memoryview, kept: bytearray, horizon_ms: int | None
) -> Generator[None, None, Buffer]:
    """The batch with the records whose flag is set."""
    rewriter = BatchRewriter(header, horizon_ms)
    index = 0
    for window, spans in span_slices(section, header.record_count):
        for span in spans:
            if kept[index]:
                if isinstance(window, memoryview):
                    yield from rewriter.add_large(window, span)
                else:
                    rewriter.add(window, span)
            index += 1
        yield None
    return (yield from rewriter.build())


def add_batch(
    latest: OffsetMap,
    transactions: TransactionFilter,
    header: BatchHeader,
    batch: Buffer,
    first_dirty_offset: int,
) -> Generator[None, None, bool]:
    """Add the keys of one dirty batch to the map, in steps; False when the map became full.

    It may be full in the middle of a batch: the next pass reads the rest, which stays until then,
    because it lies above the map's latest offset.
    """
    if header.last_offset < latest.latest_offset:
        raise CorruptBatchError(f"offsets go back at {header.base_offset}")
    if header.is_control:
        transactions.is_marker_useless(header, batch)
    elif not transactions.is_aborted(header):
        section = memoryview(records_section(batch, header))
        yield None
        for piece in span_slices(section, header.record_count):
            if latest.is_full:
                return False
            for span in piece.spans:
                offset = header.base_offset + span.offset_delta
                if offset >= first_dirty_offset:
                    if span.key is not None:
                        latest.put(span.key, offset)
                    latest.latest_offset = max(latest.latest_offset, offset)
            yield None
    latest.latest_offset = max(latest.latest_offset, header.last_offset)
    return True
