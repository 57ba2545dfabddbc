"""Finds records by time, exactly: the index leads to a batch, the batch's records decide.

Searches read from the disk and may decompress one batch, whose size is bounded in `records`. They
run on a thread, never on the loop, walk over the bytes of a batch in slices of
`LOOKUP_SLICE_RECORDS` records, and call `turn` between two slices: it ends the search when the
client has disconnected, and gives the event loop its turn (`worker_pool.Turns`).

The record with the highest timestamp is known from its append and kept with the segment, as the
last offset of its batch is in the time index. After a start it is found by one search and kept.
"""

from collections.abc import Callable
from typing import Final, Protocol

from penstock.core.errors import CorruptBatchError
from penstock.core.limits import LOOKUP_SLICE_RECORDS
from penstock.records.batch import BatchHeader, checksum_matches
from penstock.storage.log.leader_epochs import LeaderEpochs
from penstock.storage.log.log_types import TimestampAndOffset
from penstock.storage.log.segment import Segment

_INT64_MAX: Final = 9_223_372_036_854_775_807
_INT64_MIN: Final = -_INT64_MAX - 1

Turn = Callable[[], None]
"""Called between two slices of a search; may raise to end it."""


def no_turn() -> None:
    """Continue at once: for a caller with a thread of its own."""


class SearchableLog(Protocol):
    """A log, as a search sees it."""

    segments: list[Segment]
    log_start_offset: int
    end_offset: int
    epochs: LeaderEpochs


def _first_at(
    segment: Segment,
    position: int,
    header: BatchHeader,
    timestamp_ms: int,
    offset_min: int,
    turn: Turn,
) -> TimestampAndOffset | None:
    """The first record of a batch that is at or after a time and an offset."""
    delta_min_ms = _INT64_MIN
    if not header.is_log_append_time:
        delta_min_ms = max(_INT64_MIN, min(timestamp_ms - header.base_timestamp_ms, _INT64_MAX))
    elif header.max_timestamp_ms < timestamp_ms:
        return None
    elif header.record_count == header.last_offset_delta + 1:
        # All records have the time of the batch, and none is missing.
        offset = max(header.base_offset, offset_min)
        return TimestampAndOffset(header.max_timestamp_ms, offset, header.leader_epoch)
    # Only a search by time needs records; the broker's start does not wait for the codecs.
    from penstock.records.builder import records_section
    from penstock.records.time_scan import find_time

    batch = segment.read(position, header.size_bytes, nowait=False)
    if not checksum_matches(batch, 0, header):
        raise CorruptBatchError(f"the checksum of the batch at {header.base_offset} is wrong")
    turn()
    section = memoryview(records_section(batch, header))
    turn()
    place, left = 0, header.record_count
    delta_min = max(0, offset_min - header.base_offset)
    while left > 0:
        count = min(left, LOOKUP_SLICE_RECORDS)
        place, walked, delta_ms, delta = find_time(section, place, count, delta_min_ms, delta_min)
        if delta >= 0:
            found_ms = header.base_timestamp_ms + delta_ms
            if header.is_log_append_time:
                found_ms = header.max_timestamp_ms
            return TimestampAndOffset(found_ms, header.base_offset + delta, header.leader_epoch)
        left -= walked
        turn()
    return None


def find_timestamp(
    log: SearchableLog, timestamp_ms: int, turn: Turn = no_turn
) -> TimestampAndOffset | None:
    """The first record, in order of offsets, that is at or after `timestamp_ms`."""
    end_offset, start_offset = log.end_offset, log.log_start_offset
    for segment in log.segments:
        turn()
        if segment.max_timestamp_ms < timestamp_ms:
            continue
        for position, header in segment.headers(segment.start_for_time(timestamp_ms)):
            turn()
            if header.base_offset >= end_offset:
                return None
            if header.max_timestamp_ms < timestamp_ms or header.last_offset < start_offset:
                continue
            found = _first_at(segment, position, header, timestamp_ms, start_offset, turn)
            if found is not None:
                return found
    return None


def find_max_timestamp(log: SearchableLog, turn: Turn = no_turn) -> TimestampAndOffset | None:
    """The first record that has the highest timestamp of the log."""
    best: Segment | None = None
    for segment in log.segments:
        turn()
        if segment.max_timestamp_ms >= 0 and (
            best is None or segment.max_timestamp_ms > best.max_timestamp_ms
        ):
            best = segment
    if best is None:
        return None
    for position, header in best.headers(best.find(best.max_timestamp_offset, nowait=False)):
        turn()
        offset = best.max_record_offset(header.last_offset)
        if offset >= 0:
            return TimestampAndOffset(header.max_timestamp_ms, offset, header.leader_epoch)
        # Compaction left only the header; Kafka finds no record then, either.
        found = _first_at(best, position, header, header.max_timestamp_ms, 0, turn)
        if found is not None:
            best.note_max_record(header.last_offset, found.offset)
        return found
    return None
