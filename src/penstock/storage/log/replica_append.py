"""Appends a leader's batches to a replica's log exactly as the leader stores them.

Guarantees:

- Nothing is changed in a batch: offsets, leader epochs, producers, timestamps and gaps stay.
- All batches are checked before the first byte is written: size, magic, checksum, offsets, leader
  epochs, markers. One bad batch refuses the whole chunk with `InvalidReplicaBatchError`.
- The state afterwards is the state that recovery would load: indexes, aborted transactions,
  producers, leader epochs. Sequences are not checked again: the leader did.
- The batches that go into one segment are one write. If a later write of the same chunk finds no
  disk space, the batches of earlier writes stay appended; `end_offset` includes them.

Missing offsets are accepted in a log that may have gaps (`LogSettings.is_compacted`), and with
`allow_gaps`, because a leader's topic may have been compacted once. Recovery takes a gap for damage
in any other log, so the first gap is noted in the cleaner's checkpoint, which the flusher writes
before the batch counts as durable.

It is NOT the append of produced batches, which assigns offsets: `PartitionLog.append`. It does not
sync; the flusher does.
"""

from dataclasses import replace
from typing import Final, Protocol

from penstock.core.errors import CorruptBatchError, InvalidReplicaBatchError
from penstock.core.limits import SEGMENT_RELATIVE_OFFSET_MAX, STORED_BATCH_BYTES_MAX
from penstock.core.types import TopicPartition
from penstock.records.batch import (
    CONTROL,
    CRC_START,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    read_header,
)
from penstock.records.control import Marker, read_marker
from penstock.records.crc32c import checksum
from penstock.storage.log.log_directory import LogDirectory, OwedWork
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log.log_types import ReplicaAppend
from penstock.storage.log.producer_state import ProducerStates
from penstock.storage.log.rolling import is_roll_due
from penstock.storage.log.room import make_room
from penstock.storage.log.segment import Segment

_LENGTH_MIN: Final = HEADER_BYTES - LOG_OVERHEAD_BYTES
_RUN_BYTES_MAX: Final = 1_048_576
"""Largest write of several batches. After each write the size of the indexes is checked, so a
segment's index passes its limit by the entries of one write at most."""


class ReplicaLog(Protocol):
    """A log, as a replica's append sees it."""

    topic_partition: TopicPartition
    settings: LogSettings
    shared: LogDirectory
    owed: OwedWork
    producers: ProducerStates
    active: Segment
    log_start_offset: int
    end_offset: int
    durable_offset: int
    latest_epoch: int
    is_dirty: bool

    def begin_segment(self) -> Segment:
        """Seal the active segment and begin a new one at `end_offset`."""
        ...

    def begin_epoch(self, leader_epoch: int, base_offset: int) -> None:
        """Note a new leader's first batch."""
        ...

    def mark_dirty(self) -> None:
        """Put the log on the flusher's list, once."""
        ...


class CheckedBatches:
    """The headers of a chunk that may be appended, and the markers of its control batches."""

    __slots__ = ("has_gaps", "headers", "markers")

    def __init__(self) -> None:
        self.has_gaps = False
        """Whether offsets are missing before or between the batches."""
        self.headers: list[BatchHeader] = []
        self.markers: dict[int, Marker | None] = {}
        """By base offset; None for a control batch that ends no transaction."""


def check_batches(
    records: memoryview, *, next_offset: int, latest_epoch: int, leader_epoch: int, allow_gaps: bool
) -> CheckedBatches:
    """Check every batch of a chunk that begins at `next_offset`. Pure.

    Raises `InvalidReplicaBatchError` with the first bad value.
    """
    checked = CheckedBatches()
    headers, position, end = checked.headers, 0, len(records)
    if not end:
        raise InvalidReplicaBatchError("a leader's answer has no batch to append")
    epoch = latest_epoch
    while position < end:
        if end - position < HEADER_BYTES:
            raise _refused(next_offset, f"{end - position} bytes at the end are not a whole batch")
        header = read_header(records, position)
        batch_end = position + header.batch_length + LOG_OVERHEAD_BYTES
        if header.magic != MAGIC:
            raise _refused(next_offset, f"magic {header.magic} is not {MAGIC}")
        if not _LENGTH_MIN <= header.batch_length <= STORED_BATCH_BYTES_MAX or batch_end > end:
            raise _refused(
                next_offset, f"length {header.batch_length} with {end - position} bytes left"
            )
        if checksum(records[position + CRC_START : batch_end]) != header.crc:
            raise _refused(next_offset, "its checksum is wrong")
        base_offset = header.base_offset
        if base_offset != next_offset or header.last_offset_delta < 0:
            _check_offsets(header, next_offset, allow_gaps=allow_gaps)
            checked.has_gaps = True
        if not epoch <= header.leader_epoch <= leader_epoch:
            raise _refused(
                base_offset,
                f"leader epoch {header.leader_epoch} is not between {epoch}, the epoch before it,"
                f" and {leader_epoch}, the leader's",
            )
        epoch = header.leader_epoch
        if header.attributes & CONTROL:
            checked.markers[base_offset] = _marker(records[position:batch_end], base_offset)
        headers.append(header)
        next_offset = base_offset + header.last_offset_delta + 1
        position = batch_end
    return checked


def _check_offsets(header: BatchHeader, next_offset: int, *, allow_gaps: bool) -> None:
    """Raise unless the batch lies behind `next_offset` and gaps are allowed."""
    if header.base_offset < next_offset or header.last_offset_delta < 0:
        raise _refused(
            next_offset,
            f"offsets {header.base_offset} to {header.last_offset} do not follow the last batch",
        )
    if not allow_gaps:
        raise _refused(
            next_offset,
            f"the next batch begins at offset {header.base_offset}, and this log has no gaps",
        )


def _marker(batch: memoryview, base_offset: int) -> Marker | None:
    try:
        return read_marker(batch)
    except CorruptBatchError as error:
        raise _refused(base_offset, str(error)) from error


def _refused(offset: int, reason: str) -> InvalidReplicaBatchError:
    return InvalidReplicaBatchError(
        f"the leader's batch at offset {offset} cannot be appended: {reason}; fetch it again"
    )


def append_batches(
    log: ReplicaLog, records: memoryview, leader_epoch: int, *, allow_gaps: bool
) -> ReplicaAppend:
    """Check and append a chunk of whole batches. After an `OSError`, `cut_back` is due."""
    checked = check_batches(
        records,
        next_offset=log.end_offset,
        latest_epoch=log.latest_epoch,
        leader_epoch=leader_epoch,
        allow_gaps=allow_gaps or log.settings.is_compacted,
    )
    if checked.has_gaps and not log.settings.is_compacted:
        _begin_gaps(log)
    headers = checked.headers
    number = position = 0
    while number < len(headers):
        active = _segment_for(log, headers[number])
        following, size = _run_end(active, log.settings, headers, number)
        make_room(active, size, log.shared.room_append_bytes)
        start = active.write(records[position : position + size], size)
        _note_run(log, active, start, headers[number:following], checked.markers)
        _note_dirty(log, active, size)
        number, position = following, position + size
    return ReplicaAppend(
        headers[0].base_offset, headers[-1].last_offset, len(headers), len(records)
    )


def _begin_gaps(log: ReplicaLog) -> None:
    """Note that the log has gaps, in memory at once and on the disk with the next flush."""
    shared = log.shared
    log.settings = replace(log.settings, is_compacted=True)
    if shared.gaps is not None:
        shared.gaps.note_gaps(log.topic_partition, log.log_start_offset)
        log.owed.gaps = shared.gaps
        if not shared.is_sync_first:
            # The batch counts at once in this mode; that happens at most once in a log's life.
            shared.gaps.write_cleaned_offsets()


def _segment_for(log: ReplicaLog, header: BatchHeader) -> Segment:
    """The segment for the next batch, a new one if that is due.

    A new segment begins where the last one ends, also before a gap: recovery then knows that the
    one before is whole. Only if a gap is too long for the 32 bits of an index, it begins behind it.
    """
    active, last_offset = log.active, header.last_offset
    is_due = last_offset - active.base_offset > SEGMENT_RELATIVE_OFFSET_MAX
    if active.size and not is_due:
        is_due = is_roll_due(
            active, log.settings, header.size_bytes, last_offset, header.max_timestamp_ms
        )
    if not is_due:
        return active
    end_offset = log.end_offset
    if last_offset - end_offset > SEGMENT_RELATIVE_OFFSET_MAX:
        log.end_offset = header.base_offset
    try:
        return log.begin_segment()
    except OSError:
        log.end_offset = end_offset
        raise


def _run_end(
    active: Segment, settings: LogSettings, headers: list[BatchHeader], first: int
) -> tuple[int, int]:
    """The batches starting at `first` that fit into the segment: number after the last, bytes."""
    header = headers[first]
    size, number, count = header.size_bytes, first + 1, len(headers)
    first_ms = active.first_timestamp_ms if active.size else header.max_timestamp_ms
    time_max = first_ms + settings.segment_ms if first_ms >= 0 else -1
    size_max = min(settings.segment_bytes - active.size, _RUN_BYTES_MAX)
    offset_max = active.base_offset + SEGMENT_RELATIVE_OFFSET_MAX
    while number < count:
        header = headers[number]
        longer = size + header.batch_length + LOG_OVERHEAD_BYTES
        if longer > size_max or header.base_offset + header.last_offset_delta > offset_max:
            break
        if 0 <= time_max < header.max_timestamp_ms:
            break
        size = longer
        number += 1
    return number, size


def _note_run(
    log: ReplicaLog,
    active: Segment,
    position: int,
    headers: list[BatchHeader],
    markers: dict[int, Marker | None],
) -> None:
    """Add batches that are in the file to the indexes, the producers and the epochs."""
    interval_bytes, producers = log.settings.index_interval_bytes, log.producers
    for header in headers:
        size = header.batch_length + LOG_OVERHEAD_BYTES
        base_offset = header.base_offset
        last_offset = base_offset + header.last_offset_delta
        active.note(position, size, last_offset, header.max_timestamp_ms, interval_bytes)
        if header.producer_id >= 0:
            marker = markers.get(base_offset) if header.attributes & CONTROL else None
            aborted = producers.replay(header, marker)
            if aborted is not None:
                active.transactions.append(aborted)
        if header.leader_epoch > log.latest_epoch:
            log.begin_epoch(header.leader_epoch, base_offset)
        position += size
        log.end_offset = last_offset + 1


def _note_dirty(log: ReplicaLog, active: Segment, size: int) -> None:
    """Count written bytes: the flusher syncs them, as after an append."""
    shared = log.shared
    if not (active.is_dirty and log.is_dirty):
        log.owed.add(active)
        log.mark_dirty()
    if not shared.is_sync_first:
        log.durable_offset = log.end_offset
    shared.appends_waiting += 1
    shared.bytes_waiting += size
