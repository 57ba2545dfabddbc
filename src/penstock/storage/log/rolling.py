"""When a log begins a new segment; `partition_log` creates it.

`is_roll_due` also writes index entries that gathered, because the size of an index on disk decides.
By size, by the span of a relative offset, by the time between the first batch and the next, and by
the size of an index, as in Kafka. A segment whose first batch has no timestamp (-1) rolls by the
broker's time: each retention check calls `is_untimed_roll_due`, not each append.
"""

from penstock.core.limits import SEGMENT_RELATIVE_OFFSET_MAX
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log.segment import Segment


def is_roll_due(
    active: Segment, settings: LogSettings, size: int, last_offset: int, timestamp_ms: int
) -> bool:
    """Write index entries that gathered; whether the next batch belongs into a new segment."""
    if (
        active.size + size > settings.segment_bytes
        or last_offset - active.base_offset > SEGMENT_RELATIVE_OFFSET_MAX
    ):
        return True
    first_ms = active.first_timestamp_ms
    if first_ms >= 0 and timestamp_ms - first_ms > settings.segment_ms:
        return True
    if active.wants_index_write:
        active.write_indexes()
        index_bytes = max(active.offset_index.size, active.time_index.size)
        return index_bytes >= settings.index_bytes_max
    return False


def is_untimed_roll_due(active: Segment, settings: LogSettings, now_ms: int) -> bool:
    """Whether a segment that no timestamp can roll has been the active one for `segment_ms`.

    Its time starts with the first check that finds data in it, also after a restart, as in Kafka.
    """
    if active.size == 0 or active.first_timestamp_ms >= 0:
        return False
    if active.untimed_since_ms < 0:
        active.untimed_since_ms = now_ms
    return now_ms - active.untimed_since_ms > settings.segment_ms
