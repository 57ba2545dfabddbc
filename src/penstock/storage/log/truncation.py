"""Truncates a log's files, in a crash-safe order.

Whole segments are removed from the last one back, the directory is synced, then the last remaining
one is cut and synced. It decides nothing: `PartitionLog.truncate_to` passes the offset.
"""

from penstock.storage.disk.filesystem import FileSystem
from penstock.storage.log.segment import Segment


def cut_segments(
    filesystem: FileSystem, directory: str, segments: list[Segment], offset: int
) -> list[Segment]:
    """Remove all batches starting at `offset`; return the remaining segments."""
    keep = [segment for segment in segments if segment.base_offset < offset] or segments[:1]
    for segment in reversed(segments[len(keep) :]):
        segment.remove()
    filesystem.sync_directory(directory)
    last = keep[-1]
    last.truncate(last.find(offset, nowait=False))
    last.transactions.truncate(offset)
    last.load_times()
    last.file().sync()
    if last.transactions.is_unsynced and not last.transactions.is_new:
        last.transactions.finish().sync()
    return keep
