"""Reading whole batches out of a log's segments.

The usual read costs one `preadv`: the end of a consumer's last read is remembered, so the next one
needs no index; the file position of the durable end is known, so the limit needs no walk. Other
reads use the sparse index and walk over at most a few kilobytes of headers.

The bytes are checked as they are read: the first batch must hold the requested offset, and where a
segment ends the next one must continue; in a compacted log the first batch behind the gap is
enough. An index that points elsewhere is rebuilt, a sealed segment's on the thread that found it,
the active one's by the owner. Checksums of cold data are checked too (`verify_checksums`).
"""

import threading
from bisect import bisect_right
from typing import Final, Protocol

from penstock.core.errors import (
    CorruptBatchError,
    CorruptIndexError,
    OffsetOutOfRangeError,
    StorageError,
)
from penstock.core.limits import READ_POSITIONS_REMEMBERED
from penstock.records.batch import (
    HEADER_BYTES,
    checksum_matches,
    iterate_headers,
    read_header,
)
from penstock.storage.log.batch_walk import (
    BASE_OFFSET,
    STEP,
    STEP_BYTES,
    batch_bytes,
    whole_batches,
)
from penstock.storage.log.log_directory import LogMark
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log.log_types import LogRead
from penstock.storage.log.open_transactions import AbortedTransaction
from penstock.storage.log.recovery import rebuild_indexes
from penstock.storage.log.segment import Segment

_JUMP_BYTES: Final = 16_384
"""A read of more than this asks the index for its last batch instead of walking over all."""
_NOTHING: Final = memoryview(b"")


class ReadableLog(Protocol):
    """A log, as a read sees it."""

    segments: list[Segment]
    active: Segment
    log_start_offset: int
    end_offset: int
    settings: LogSettings
    durable_mark: LogMark
    """Position of the durable offset in the files."""
    limit_mark: LogMark
    """Position of the last other limit."""
    positions: dict[int, tuple[Segment, int]]
    """Ends of earlier reads: offset of the next batch to its position."""
    rebuild_lock: threading.Lock
    """Held by the thread that rebuilds a sealed segment's index."""
    aborting: tuple[list[Segment], list[Segment]]
    """Segments, and those of them that a search for aborted transactions reads."""


def read_log(
    log: ReadableLog,
    offset: int,
    bytes_max: int,
    offset_limit: int,
    at_least_one: bool,  # noqa: FBT001 - the hot path; `PartitionLog.read` names it
    nowait: bool,  # noqa: FBT001
) -> LogRead:
    """Whole batches from the one that holds `offset`; see `PartitionLog.read`."""
    end_offset = log.end_offset
    if not log.log_start_offset <= offset <= end_offset:
        raise OffsetOutOfRangeError(offset, log.log_start_offset, end_offset)
    limit = min(end_offset, offset_limit)
    if offset >= limit:
        return LogRead(_NOTHING, -1, offset)
    try:
        return _read(log, offset, bytes_max, limit, at_least_one=at_least_one, nowait=nowait)
    except CorruptIndexError:
        if nowait:
            raise BlockingIOError("an index has to be rebuilt") from None
        return _read_rebuilding(log, offset, bytes_max, limit, at_least_one=at_least_one)
    except CorruptBatchError:
        if nowait:
            raise BlockingIOError("damage has to be looked at") from None
        raise
    except BlockingIOError:
        raise
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not nowait:
            # Retention may have been faster than this thread; the service handles it.
            raise
        raise StorageError(f"the disk could not be read: {error}") from error


def _read_rebuilding(
    log: ReadableLog, offset: int, bytes_max: int, limit: int, *, at_least_one: bool
) -> LogRead:
    """Repeat a read that a wrong index misled, after rebuilding that index; not on the loop.

    The active segment's index grows meanwhile, and only the owner may touch it: the error stands.
    """
    with log.rebuild_lock:
        try:
            # Another thread may have rebuilt it already.
            return _read(log, offset, bytes_max, limit, at_least_one=at_least_one, nowait=False)
        except CorruptIndexError as error:
            segment = _segment_for(log.segments, error.base_offset)
            if segment is log.active:
                raise
            rebuild_indexes(segment, log.settings.index_interval_bytes)
    return _read(log, offset, bytes_max, limit, at_least_one=at_least_one, nowait=False)


def rebuild_active(log: ReadableLog) -> None:
    """Rebuild the active segment's indexes: only the owner, which writes them, may do it."""
    try:
        rebuild_indexes(log.active, log.settings.index_interval_bytes)
    except OSError as error:
        raise StorageError(f"an index could not be rebuilt: {error}") from error


def _read(
    log: ReadableLog, offset: int, bytes_max: int, limit: int, *, at_least_one: bool, nowait: bool
) -> LogRead:
    """The read itself; the offset and the limit are inside the log."""
    # One list for the whole read: a list that a swap changed meanwhile would skip batches.
    segments = log.segments
    located = log.positions.get(offset)
    if located is None or (located[1] >= located[0].size and located[0] is not log.active):
        segment = _segment_for(segments, offset)
        position = segment.find(offset, nowait=nowait)
        if position >= segment.size and segment is not log.active:
            segment, position = _behind_gap(log, segments, segment, offset), 0
            if segment.base_offset >= limit:
                return LogRead(_NOTHING, -1, offset)
    else:
        segment, position = located
    stop, next_offset = _stop(log, segments, segment, limit, nowait=nowait)
    size = stop - position
    if size <= 0:
        return LogRead(_NOTHING, -1, offset)
    if size <= bytes_max:
        records = segment.read(position, size, nowait=nowait)
    else:
        records, next_offset = _fit(
            segment, position, bytes_max, at_least_one=at_least_one, nowait=nowait
        )
        if not records:
            return LogRead(_NOTHING, -1, offset)
    first_offset: int = BASE_OFFSET.unpack_from(records)[0]
    if first_offset > offset and not log.settings.is_compacted:
        raise CorruptBatchError(f"batch at offset {first_offset} where {offset} should be")
    positions = log.positions
    # Other threads read with nowait off; this table belongs to the owner.
    if nowait and next_offset not in positions:
        if len(positions) >= READ_POSITIONS_REMEMBERED:
            positions.pop(next(iter(positions)), None)
        positions[next_offset] = (segment, position + len(records))
    return LogRead(records, first_offset, next_offset)


def aborted_in(
    log: ReadableLog, offset: int, limit: int, *, nowait: bool
) -> list[AbortedTransaction]:
    """Aborted transactions that have records in [offset, limit), in the order of their markers.

    A marker may be in a later segment than its records, so the search goes on until the index says
    that everything below `limit` was decided. With `nowait` it may raise `BlockingIOError`.
    """
    found = []
    segments = _aborting(log, nowait=nowait)
    first = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    for segment in segments[max(first, 0) :]:
        for aborted in segment.transactions.from_offset(offset, nowait=nowait):
            if aborted.first_offset < limit:
                found.append(aborted)
            if aborted.last_stable_offset >= limit:
                return found
    return found


def _aborting(log: ReadableLog, *, nowait: bool) -> list[Segment]:
    """The sealed segments with aborted transactions, and the last one, which may get some.

    The list is cached until the log's segments change: there may be thousands, and most have none.
    """
    known, aborting = log.aborting
    segments = log.segments
    if known is not segments:
        sealed = segments[:-1]
        if nowait and not all(segment.transactions.is_measured for segment in segments):
            raise BlockingIOError("the size of an index is not known yet")
        aborting = [segment for segment in sealed if segment.transactions.size]
        aborting.append(segments[-1])
        log.aborting = (segments, aborting)
    return aborting


def _segment_for(segments: list[Segment], offset: int) -> Segment:
    """The segment that holds `offset`."""
    number = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    return segments[max(number, 0)]


def _behind_gap(
    log: ReadableLog, segments: list[Segment], segment: Segment, offset: int
) -> Segment:
    """The segment that continues where `segment` ends before `offset`."""
    number = bisect_right(segments, segment.base_offset, key=lambda other: other.base_offset)
    if not log.settings.is_compacted or number >= len(segments):
        raise CorruptBatchError(f"segment {segment.base_offset} ends before offset {offset}")
    while segments[number].size == 0 and number + 1 < len(segments):
        number += 1
    return segments[number]


def _stop(
    log: ReadableLog, segments: list[Segment], segment: Segment, limit: int, *, nowait: bool
) -> tuple[int, int]:
    """Where in the segment the batches below `limit` end, and the offset there."""
    mark = log.durable_mark
    if mark.offset == limit and mark.segment is segment:
        return mark.position, limit
    if segment is log.active:
        # Only the owner reads with nowait, and only there do offset and size agree.
        if limit == log.end_offset and nowait:
            return segment.size, limit
    else:
        number = bisect_right(segments, segment.base_offset, key=lambda other: other.base_offset)
        if number < len(segments) and limit >= segments[number].base_offset:
            return segment.size, segments[number].base_offset
    mark = log.limit_mark
    if mark.offset == limit and mark.segment is segment:
        return mark.position, limit
    position, base_offset = segment.find_batch(limit, nowait=nowait)
    if 0 <= base_offset < limit:
        # The limit lies inside a batch, which is not returned: the next read begins with it.
        return position, base_offset
    log.limit_mark = LogMark(limit, segment, position)
    return position, limit


def _fit(
    segment: Segment, position: int, bytes_max: int, *, at_least_one: bool, nowait: bool
) -> tuple[memoryview, int]:
    """As many whole batches as fit into `bytes_max`, or one, and the offset after them."""
    bytes_max = max(bytes_max, 0)
    jump = 0
    if bytes_max > _JUMP_BYTES:
        entry = segment.boundary_before(position + bytes_max - STEP_BYTES, nowait=nowait)
        if entry is not None and entry.position > position:
            jump = entry.position - position
    records = segment.read(position, bytes_max, nowait=nowait)
    walk = whole_batches(records, jump, bytes_max)
    if walk.size:
        return records[: jump + walk.size], walk.next_offset
    if jump:
        return records[:jump], BASE_OFFSET.unpack_from(records, jump)[0]
    if not at_least_one:
        return _NOTHING, -1
    header = read_header(segment.read(position, HEADER_BYTES, nowait=nowait))
    records = segment.read(position, batch_bytes(header.batch_length), nowait=nowait)
    base_offset, _, delta = STEP.unpack_from(records)
    return records, base_offset + delta + 1


def verify_checksums(records: memoryview) -> None:
    """Raise `CorruptBatchError` unless the checksum of every batch matches."""
    for position, header in iterate_headers(records):
        if not checksum_matches(records, position, header):
            raise CorruptBatchError(f"wrong checksum in the batch at offset {header.base_offset}")
