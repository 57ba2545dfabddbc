"""Decides which segments may be deleted now, by time, size and start offset. Pure.

Oldest first, and it stops at the first segment that must stay, as Apache Kafka does. A segment may
be deleted only when all of it lies below the caller's limit (the high watermark): uncommitted
records are never deleted. The last segment is deleted too when it is too old; the caller begins a
new one first. A segment whose records have no timestamps (-1) is as old as its file, as in Kafka:
otherwise all later segments would stay for ever.
"""

from collections.abc import Sequence
from typing import Protocol


class AgedSegment(Protocol):
    """A segment as retention sees it. Its age is read only when it is needed."""

    @property
    def size(self) -> int:
        """Bytes of data."""
        ...

    @property
    def max_timestamp_ms(self) -> int:
        """Highest timestamp, or -1."""
        ...

    @property
    def modified_ms(self) -> int:
        """When its data was last written. Read only when no record has a timestamp."""
        ...


def expired_count(
    segments: Sequence[AgedSegment],
    end_offsets: Sequence[int],
    *,
    now_ms: int,
    retention_ms: int,
    retention_bytes: int,
    log_start_offset: int,
    offset_limit: int,
) -> int:
    """How many segments, starting with the oldest, may be deleted."""
    surplus_bytes = -1
    if retention_bytes >= 0:
        surplus_bytes = sum(segment.size for segment in segments) - retention_bytes
    count = 0
    for segment, end_offset in zip(segments, end_offsets, strict=True):
        is_last = count == len(segments) - 1
        if end_offset > offset_limit or (is_last and segment.size == 0):
            break
        is_surplus = not is_last and surplus_bytes >= segment.size
        is_before_start = not is_last and end_offset <= log_start_offset
        is_old = segment.size > 0 and _is_old(segment, now_ms, retention_ms)
        # The segment is empty, but has a successor: compaction emptied it.
        is_hollow = segment.size == 0 and (retention_ms >= 0 or retention_bytes >= 0)
        if not (is_surplus or is_before_start or is_old or is_hollow):
            break
        surplus_bytes -= segment.size
        count += 1
    return count


def newest_ms(segment: AgedSegment) -> int:
    """The time from which a segment's age counts."""
    timestamp_ms = segment.max_timestamp_ms
    return timestamp_ms if timestamp_ms >= 0 else segment.modified_ms


def _is_old(segment: AgedSegment, now_ms: int, retention_ms: int) -> bool:
    """Whether the segment's newest record is older than the topic's retention."""
    return retention_ms >= 0 and newest_ms(segment) < now_ms - retention_ms
