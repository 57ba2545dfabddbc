"""Which segments may go now, by time, size and start offset. Pure.

Oldest first, and it stops at the first segment that must stay, as Apache Kafka does. A segment may
go only when all of it lies below the limit that the caller gives (the high watermark): what is not
committed is never deleted. The last segment goes too when it is too old; the caller begins a new
one first. A segment without timestamps does not age.
"""

from collections.abc import Sequence
from typing import Protocol


class AgedSegment(Protocol):
    """What retention needs to know of one segment. Its age is asked for only when it matters."""

    @property
    def size(self) -> int:
        """Bytes of data."""
        ...

    @property
    def max_timestamp_ms(self) -> int:
        """Highest timestamp, or -1."""
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
    """How many segments, from the oldest on, may be deleted."""
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
        # Nothing is in it, but a successor exists: it went empty in a compaction.
        is_hollow = segment.size == 0 and (retention_ms >= 0 or retention_bytes >= 0)
        if not (is_surplus or is_before_start or is_old or is_hollow):
            break
        surplus_bytes -= segment.size
        count += 1
    return count


def _is_old(segment: AgedSegment, now_ms: int, retention_ms: int) -> bool:
    """Whether the segment's newest record is older than the topic keeps."""
    if retention_ms < 0:
        return False
    newest_ms = segment.max_timestamp_ms
    return 0 <= newest_ms < now_ms - retention_ms
