"""Finding records by time, exactly: the index leads to a batch, the batch's records decide.

These read from the disk and may decompress one batch, whose unfolded size is bounded in `records`.
They run on a thread, never on the loop.
"""

from collections.abc import Iterator
from typing import Protocol

from penstock.records.batch import BatchHeader
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.log_types import TimestampAndOffset
from penstock.storage.segment import Segment


class SearchableLog(Protocol):
    """A log, as a search sees it."""

    segments: list[Segment]
    log_start_offset: int
    end_offset: int
    epochs: LeaderEpochs


def _times(segment: Segment, position: int, header: BatchHeader) -> Iterator[tuple[int, int]]:
    """Timestamp and offset of each record in a batch."""
    if header.is_log_append_time and header.record_count == header.last_offset_delta + 1:
        yield header.max_timestamp_ms, header.base_offset
        return
    # Only a search by time needs records; the broker's start does not wait for the codecs.
    from penstock.records.builder import iterate_records

    batch = segment.read(position, header.size_bytes, nowait=False)
    for record in iterate_records(batch):
        yield record.timestamp_ms, record.offset


def find_timestamp(log: SearchableLog, timestamp_ms: int) -> TimestampAndOffset | None:
    """The first record, in order of offsets, that is at or after `timestamp_ms`."""
    end_offset = log.end_offset
    for segment in log.segments:
        if segment.max_timestamp_ms < timestamp_ms:
            continue
        for position, header in segment.headers(segment.start_for_time(timestamp_ms)):
            if header.base_offset >= end_offset:
                return None
            if header.max_timestamp_ms < timestamp_ms or header.last_offset < log.log_start_offset:
                continue
            for record_ms, offset in _times(segment, position, header):
                if record_ms >= timestamp_ms and offset >= log.log_start_offset:
                    return TimestampAndOffset(record_ms, offset, header.leader_epoch)
    return None


def find_max_timestamp(log: SearchableLog) -> TimestampAndOffset | None:
    """The first record that has the highest timestamp of the log."""
    best: Segment | None = None
    for segment in log.segments:
        if segment.max_timestamp_ms >= 0 and (
            best is None or segment.max_timestamp_ms > best.max_timestamp_ms
        ):
            best = segment
    if best is None:
        return None
    batch_offset = best.max_timestamp_offset
    for position, header in best.headers(best.find(batch_offset, nowait=False)):
        times = list(_times(best, position, header))
        if not times:
            # Compaction left nothing but the header; Apache Kafka finds nothing then, either.
            return None
        record_ms, negative_offset = max((record_ms, -offset) for record_ms, offset in times)
        return TimestampAndOffset(record_ms, -negative_offset, header.leader_epoch)
    return None
