"""Recovers a partition's files after any crash: verify, truncate, rebuild indexes.

All data below the recovery point was synced. Data after it may be whole, torn or missing.
`recover_segments` reads from the last index entry at or below the recovery point and accepts a
batch only if all of these hold: its length is possible and inside the file, the magic is 2, the
CRC-32C matches, its base offset is the one expected (later is allowed only in a compacted log), and
its leader epoch is not lower than the one before. The first four header fields lie outside the
checksum, so the checksum alone would not do.

- The first batch that fails, at or above the recovery point, ends the log: a torn tail. Later
  segments are removed from the last one back, the directory is synced, then the file is cut. A
  crash in the middle leaves the failing batch in place, so the next recovery has the same result.
  Zeros behind the last batch are room for appends (`room`), not damage.
- Below the recovery point a failing or missing batch is damage to durable data. Nothing is cut: the
  partition is quarantined (`QuarantinedLogError`) and an operator decides.

Data that survived is synced before the log is served, because a killed process leaves pages that a
power cut can still lose.
"""

import zlib
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.core.errors import QuarantinedLogError
from penstock.core.limits import (
    RECOVERY_CHUNK_BYTES,
    SEGMENT_RELATIVE_OFFSET_MAX,
    STORED_BATCH_BYTES_MAX,
)
from penstock.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    checksum_matches,
    read_header,
)
from penstock.storage.disk.filesystem import FileSystem
from penstock.storage.log.index import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    entries_below,
    floor_by_offset,
    offsets_are_sound,
    times_are_sound,
    times_below,
)
from penstock.storage.log.leader_epochs import LeaderEpochs
from penstock.storage.log.room import find_room
from penstock.storage.log.segment import Segment

_OLD_CRC_START: Final = 16
"""Formats v0 and v1: the CRC-32 covers everything from the magic byte on."""


@dataclass(slots=True)
class Scan:
    """The end of a scan, and why it stopped."""

    next_offset: int
    leader_epoch: int = -1
    position: int = 0
    damage: str = ""
    has_room: bool = False
    """Whether only zeros follow the last batch of a segment: room for appends, and no damage."""
    has_markers: bool = False
    """Whether control batches were seen: transactions ended past the recovery point."""


class Recovered(NamedTuple):
    """The recovered log."""

    segments: list[Segment]
    end_offset: int
    cut: str
    """Description of the cut and its reason, or an empty string."""
    has_markers: bool
    """Whether entries of the transaction indexes past the recovery point must be rebuilt."""


def recover_segments(
    filesystem: FileSystem,
    directory: str,
    segments: list[Segment],
    epochs: LeaderEpochs,
    *,
    recovery_point: int,
    interval_bytes: int,
    allow_gaps: bool,
    is_adopted: bool = False,
) -> Recovered:
    """Verify all data past the recovery point.

    Entries of transaction indexes past it are dropped: the replay of the producers rebuilds them.
    """
    first = 0
    for number, segment in enumerate(segments):
        # Not the segment that begins there: the end of the one before it may not be synced.
        if segment.base_offset < recovery_point:
            first = number
    scan = Scan(segments[first].base_offset)
    for number in range(first, len(segments)):
        segment = segments[number]
        gap = segment.base_offset - scan.next_offset
        # Gaps lie inside segments, unless they are longer than an index allows: after a short gap
        # between segments past the recovery point, the end of the one before it is lost. The
        # compaction of Apache Kafka leaves gaps between segments too: its logs are not cut there.
        is_short = gap <= SEGMENT_RELATIVE_OFFSET_MAX
        is_lost = scan.next_offset >= recovery_point and is_short and not is_adopted
        is_misplaced = gap < 0 or (gap > 0 and (is_lost or not allow_gaps))
        if is_misplaced:
            scan.damage = f"segment {segment.base_offset} where {scan.next_offset} should be"
        else:
            scan.next_offset = segment.base_offset
            point = max(recovery_point, segment.base_offset)
            segment.transactions.truncate(recovery_point)
            scan_segment(segment, scan, epochs, point, interval_bytes, allow_gaps=allow_gaps)
            _forgive_room(scan, segment, segments)
        if scan.damage:
            _refuse_durable_damage(directory, scan, recovery_point)
            # A misplaced segment is removed whole, and the one before it stays whole.
            keep = number if is_misplaced else number + 1
            _cut(filesystem, directory, segments[first:], keep - first, scan)
            return Recovered(segments[:keep], scan.next_offset, scan.damage, scan.has_markers)
        if number + 1 < len(segments):
            segment.finish()
    _refuse_durable_damage(directory, scan, recovery_point)
    if scan.next_offset > recovery_point or scan.has_room:
        for segment in segments[first:]:
            segment.file().sync()
        # The name of a segment that begins below the recovery point was synced with its data.
        if segments[-1].base_offset >= recovery_point:
            filesystem.sync_directory(directory)
    return Recovered(segments, scan.next_offset, "", scan.has_markers)


def _forgive_room(scan: Scan, segment: Segment, segments: list[Segment]) -> None:
    """Accept zeros behind the last batch of a segment: they are room, not damage.

    A segment that was sealed may have them too, if the crash came before the sync of their end. The
    next one then begins where this one ends.
    """
    if not scan.damage:
        return
    later = [other.base_offset for other in segments if other.base_offset > segment.base_offset]
    is_end = not later or later[0] == scan.next_offset
    if is_end and find_room(segment, scan.position):
        scan.damage, scan.has_room = "", True


def _refuse_durable_damage(directory: str, scan: Scan, recovery_point: int) -> None:
    """Raise if durable data is damaged: it is never cut."""
    if scan.next_offset < recovery_point:
        reason = scan.damage or "the log ends"
        raise QuarantinedLogError(
            f"{directory}: {reason}, at offset {scan.next_offset}, below the recovery point"
            f" {recovery_point}; the files are kept as they are and not served"
        )


def _cut(
    filesystem: FileSystem, directory: str, segments: list[Segment], keep: int, scan: Scan
) -> None:
    """Remove the data after the last good batch, in a crash-safe order."""
    for segment in reversed(segments[keep:]):
        segment.remove()
    filesystem.sync_directory(directory)
    last = segments[keep - 1]
    if scan.position < last.size:
        last.truncate(scan.position)
        last.load_times()
    for segment in segments[:keep]:
        segment.file().sync()


def trusted_start(segment: Segment, offset: int) -> int:
    """Where the scan of a segment begins: a batch that the index knows and that is whole, or 0.

    The index may be torn itself, so the entries that are kept must grow strictly, and the batch of
    the last one must exist with its offset.
    """
    offsets = segment.offset_index.read_all()
    entry = floor_by_offset(offsets, min(offset - segment.base_offset, 0x7FFFFFFF))
    if entry is None:
        return 0
    kept = entries_below(offsets, entry.relative_offset + 1) * OFFSET_ENTRY_BYTES
    if not offsets_are_sound(memoryview(offsets)[:kept], segment.size):
        return 0
    times = segment.time_index.read_all()
    kept = times_below(times, entry.relative_offset + 1) * TIME_ENTRY_BYTES
    if not times_are_sound(memoryview(times)[:kept]):
        return 0
    if segment.size - entry.position < HEADER_BYTES:
        return 0
    header = read_header(segment.read(entry.position, HEADER_BYTES, nowait=False))
    size = header.size_bytes
    is_inside = HEADER_BYTES <= size <= segment.size - entry.position
    if not is_inside or header.last_offset != segment.base_offset + entry.relative_offset:
        return 0
    batch = segment.read(entry.position, size, nowait=False)
    return entry.position if checksum_matches(batch, 0, header) else 0


def scan_segment(
    segment: Segment,
    scan: Scan,
    epochs: LeaderEpochs,
    from_offset: int,
    interval_bytes: int,
    *,
    allow_gaps: bool,
) -> None:
    """Verify the batches of one segment and rebuild its indexes from the start of the scan."""
    start = trusted_start(segment, from_offset)
    if start:
        header = read_header(segment.read(start, HEADER_BYTES, nowait=False))
        scan.next_offset, scan.leader_epoch = header.base_offset, header.leader_epoch
    segment.rewind_indexes(start)
    segment.resume_times()
    if start:
        # The entry for this position was cut with the rest; its batch gets a new one at once.
        segment.bytes_since_index = interval_bytes + 1
    scan.position = start
    while scan.position < segment.size and not scan.damage:
        size = min(RECOVERY_CHUNK_BYTES, segment.size - scan.position)
        chunk = segment.read(scan.position, size, nowait=False)
        _scan_chunk(segment, chunk, scan, epochs, interval_bytes, allow_gaps=allow_gaps)


def _scan_chunk(
    segment: Segment,
    chunk: memoryview,
    scan: Scan,
    epochs: LeaderEpochs,
    interval_bytes: int,
    *,
    allow_gaps: bool,
) -> None:
    """Verify the batches that begin in a chunk."""
    start = scan.position
    while not scan.damage:
        step = scan.position - start
        if len(chunk) - step < HEADER_BYTES:
            if start + len(chunk) >= segment.size and scan.position < segment.size:
                scan.damage = f"half a batch header at {scan.position}"
            return
        header = read_header(chunk, step)
        size = header.size_bytes
        scan.damage = _structural_damage(header, segment.size - scan.position)
        if scan.damage:
            break
        if step + size > len(chunk):
            if step:
                return
            chunk = segment.read(scan.position, size, nowait=False)
        scan.damage = _content_damage(chunk, step, header, scan, allow_gaps=allow_gaps)
        if scan.damage:
            break
        segment.note(
            scan.position, size, header.last_offset, header.max_timestamp_ms, interval_bytes
        )
        if segment.wants_index_write:
            segment.write_indexes()
        if header.leader_epoch > epochs.latest_epoch:
            epochs.assign(header.leader_epoch, header.base_offset)
        scan.has_markers |= header.is_control
        scan.position += size
        scan.next_offset = header.next_offset
        scan.leader_epoch = header.leader_epoch
    scan.damage += f" at byte {scan.position} of segment {segment.base_offset}"


def _structural_damage(header: BatchHeader, bytes_left: int) -> str:
    """The error in the header fields that are needed to read the batch, or an empty string."""
    length = header.batch_length
    if not LOG_OVERHEAD_BYTES <= length <= STORED_BATCH_BYTES_MAX:
        return f"impossible length {length}"
    if length + LOG_OVERHEAD_BYTES > bytes_left:
        return "a batch that runs past the end"
    return ""


def _content_damage(
    chunk: memoryview, step: int, header: BatchHeader, scan: Scan, *, allow_gaps: bool
) -> str:
    """The error in a batch whose bytes are complete, or an empty string."""
    if header.magic != MAGIC:
        _refuse_old_format(chunk[step : step + header.size_bytes])
        return f"magic {header.magic}"
    if header.size_bytes < HEADER_BYTES or not checksum_matches(chunk, step, header):
        return "wrong checksum"
    if header.base_offset < scan.next_offset or header.last_offset_delta < 0:
        return f"base offset {header.base_offset} where {scan.next_offset} should be"
    if header.base_offset > scan.next_offset and not allow_gaps:
        return f"base offset {header.base_offset} where {scan.next_offset} should be"
    if header.leader_epoch < scan.leader_epoch:
        return f"leader epoch {header.leader_epoch} after {scan.leader_epoch}"
    return ""


def _refuse_old_format(message: memoryview) -> None:
    """Messages of the formats before Kafka 0.11 are not damage; they are not supported."""
    stored = int.from_bytes(message[12:16], "big")
    if stored and zlib.crc32(message[_OLD_CRC_START:]) == stored:
        raise QuarantinedLogError(
            "the log holds messages in format v0 or v1, which Penstock does not serve;"
            " let Apache Kafka rewrite or expire them"
        )


def rebuild_indexes(segment: Segment, interval_bytes: int) -> None:
    """Rebuild both indexes from the data, which is not verified again."""
    segment.rewind_indexes(0)
    segment.resume_times()
    for position, header in segment.headers():
        segment.note(
            position,
            header.size_bytes,
            header.last_offset,
            header.max_timestamp_ms,
            interval_bytes,
        )
    segment.finish()
