"""`PartitionLog`: the ordered segments of one partition: append, roll, read, advance.

Guarantees:

- Offsets are contiguous: each append begins at `end_offset`.
- `durable_offset` moves only when everything below it is on the disk (in flush mode `always`),
  names and leader epochs included. The high watermark never passes it.
- An append is atomic: a failed one leaves no bytes, no producer state, no epoch.
- A read returns whole batches that end below the given limit.
- Retention, compaction and `advance_start` never pass `deletion_limit`: records that are not
  synced, or not committed where other brokers have replicas, are never deleted.

Three offsets, always `log_start_offset <= durable_offset <= end_offset`, and `synced_offset`, up to
which data is synced in any flush mode; it becomes the recovery point.

One thread owns a log and calls everything that changes it; other threads may call `read` with
`nowait=False`, and the flusher's thread works only on its `FlushJob`s. It does not decide when to
sync (`flusher`), which segments to delete (`retention`) or what a damaged file means (`recovery`).
`replica_append` appends a replica's batches; `log_truncation`, one package up, truncates.
"""

import threading
from contextlib import suppress
from uuid import UUID

from penstock.core.errors import DiskFullError, OffsetOutOfRangeError, StorageError
from penstock.core.types import TopicPartition
from penstock.records.batch import patch_for_append
from penstock.storage.disk.filesystem import RETRIABLE_ERRNOS
from penstock.storage.log.leader_epochs import EpochEnd
from penstock.storage.log.log_directory import FlushJob, LogDirectory, LogMark, OwedWork
from penstock.storage.log.log_loader import LoadedLog
from penstock.storage.log.log_reader import aborted_in, read_log
from penstock.storage.log.log_search import Turn, find_max_timestamp, find_timestamp, no_turn
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log.log_snapshots import LogSnapshots
from penstock.storage.log.log_types import (
    AppendableBatch,
    AppendInfo,
    LogRead,
    ReplicaAppend,
    TimestampAndOffset,
)
from penstock.storage.log.open_transactions import NO_GUARD, AbortedTransaction
from penstock.storage.log.replica_append import append_batches
from penstock.storage.log.retention import expired_count
from penstock.storage.log.rolling import is_roll_due, is_untimed_roll_due
from penstock.storage.log.room import make_room
from penstock.storage.log.segment import Segment

_LOG_APPEND_TIME = 0x08


class PartitionLog:
    """One partition's log. See the module for its guarantees."""

    __slots__ = (
        "aborting",
        "active",
        "directory",
        "durable_mark",
        "durable_offset",
        "end_offset",
        "epochs",
        "high_watermark",
        "is_dirty",
        "is_flushing",
        "is_replicated",
        "is_swapping",
        "is_touched",
        "latest_epoch",
        "limit_mark",
        "log_start_offset",
        "owed",
        "positions",
        "problem",
        "producers",
        "rebuild_lock",
        "segments",
        "settings",
        "shared",
        "snapshots",
        "synced_offset",
        "topic_id",
        "topic_partition",
        "truncations",
    )

    def __init__(
        self,
        shared: LogDirectory,
        topic_partition: TopicPartition,
        topic_id: UUID | None,
        settings: LogSettings,
        loaded: LoadedLog,
    ) -> None:
        self.shared = shared
        self.directory = loaded.directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.settings = settings
        """Replaceable at any time; the next append sees it."""
        self.segments = loaded.segments
        """Oldest first, replaced as a whole when it changes; readers keep the one they have."""
        self.active = loaded.segments[-1]
        self.producers = loaded.producers
        self.epochs = loaded.epochs
        self.latest_epoch = loaded.epochs.latest_epoch
        """Leader epoch of the last batch, or -1."""
        self.log_start_offset = loaded.log_start_offset
        self.end_offset = self.durable_offset = self.synced_offset = loaded.end_offset
        self.durable_mark = LogMark(loaded.end_offset, self.active, self.active.size)
        self.limit_mark = self.durable_mark
        self.positions: dict[int, tuple[Segment, int]] = {}
        self.aborting: tuple[list[Segment], list[Segment]] = ([], [])
        self.rebuild_lock = threading.Lock()
        """Held by the thread that rebuilds a sealed segment's index."""
        self.problem: StorageError | None = None
        """Why the log is not served (closed, deleted, quarantined, being truncated), or None."""
        self.truncations = 0
        """Counts truncations; a read on another thread that spans one must be repeated."""
        self.is_dirty = self.is_flushing = False
        self.is_replicated = False
        """Whether other brokers have replicas; then retention stops at `high_watermark`."""
        self.high_watermark = loaded.log_start_offset
        """Records below it are committed; set by replication. After a start, the checkpoint's."""
        self.is_swapping = False
        """While compaction exchanges segments, no other code removes any of this log."""
        self.is_touched = loaded.is_changed
        """Whether anything changed since the log was opened."""
        self.snapshots = LogSnapshots(loaded.stored_offset)
        if loaded.stored_offset < self.active.base_offset:
            self.snapshots.miss(self, shared)
        self.owed = OwedWork(
            small_paths=loaded.unsynced,
            epochs=loaded.are_epochs_changed,
            directory=loaded.is_new or loaded.is_bare,
            parent=loaded.is_new,
            birth=loaded.is_new or loaded.is_bare,
        )

    def __repr__(self) -> str:
        return f"<PartitionLog {self.topic_partition} [{self.log_start_offset}, {self.end_offset})>"

    # --- Appending ---

    def append(
        self, batch: AppendableBatch, *, leader_epoch: int, guard: int = NO_GUARD
    ) -> AppendInfo:
        """Append one batch, into the page cache; `durable_offset` says when it is durable.

        The first batch of a transaction needs the `guard` of its verification.
        """
        shared, header = self.shared, batch.header
        if self.problem is not None or not shared.takes_appends:
            self.refuse()
            raise shared.overload()
        if header.producer_id >= 0:
            original = self.producers.check(header, guard)
            if original is not None:
                self.producers.note_repeated(header.producer_id)
                return AppendInfo(
                    original.base_offset,
                    original.last_offset,
                    original.timestamp_ms,
                    self.log_start_offset,
                    is_duplicate=True,
                )
        buffer, timestamp_ms, settings = batch.buffer, batch.max_timestamp_ms, self.settings
        base_offset, size, active = self.end_offset, len(buffer), self.active
        last_offset = base_offset + header.last_offset_delta
        patch_for_append(buffer, 0, base_offset=base_offset, leader_epoch=leader_epoch)
        try:
            if active.size and is_roll_due(active, settings, size, last_offset, timestamp_ms):
                active = self.begin_segment()
            make_room(active, size, shared.room_append_bytes)
            max_at = base_offset + batch.offset_of_max_timestamp
            interval_bytes = settings.index_interval_bytes
            active.append(buffer, size, last_offset, timestamp_ms, interval_bytes, max_at)
        except OSError as error:
            raise self._append_failed(error) from error
        if header.producer_id >= 0:
            self.producers.update(header, base_offset, timestamp_ms)
        if leader_epoch != self.latest_epoch:
            self.begin_epoch(leader_epoch, base_offset)
        self.end_offset = last_offset + 1
        if not (active.is_dirty and self.is_dirty):
            self.owed.add(active)
            self.mark_dirty()
        if not shared.is_sync_first:
            self.durable_offset = last_offset + 1
        shared.appends_waiting += 1
        shared.bytes_waiting += size
        return AppendInfo(
            base_offset,
            last_offset,
            timestamp_ms if header.attributes & _LOG_APPEND_TIME else -1,
            self.log_start_offset,
            is_duplicate=False,
        )

    def append_replica(
        self, records: memoryview, *, leader_epoch: int, allow_gaps: bool = False
    ) -> ReplicaAppend:
        """Append a leader's batches exactly as they are, into the page cache; see `replica_append`.

        Raises `InvalidReplicaBatchError`, and appends none of them, if one is not acceptable.
        """
        if self.problem is not None or not self.shared.takes_appends:
            self.refuse()
            raise self.shared.overload()
        try:
            return append_batches(self, records, leader_epoch, allow_gaps=allow_gaps)
        except OSError as error:
            raise self._append_failed(error) from error

    def mark_dirty(self) -> None:
        """Put the log on the flusher's list, once."""
        if not self.is_dirty:
            self.is_dirty = True
            self.is_touched = True
            self.shared.dirty.append(self)

    def refuse(self) -> None:
        """Raise the reason why the log cannot be appended to or read."""
        reason = self.problem or self.shared.failure
        if reason is not None:
            raise reason.again()

    def begin_segment(self) -> Segment:
        """Seal the active segment and begin a new one at `end_offset`."""
        sealed = self.active
        if self.owed.birth:
            # Without it a power cut may leave only the new name: a log that begins in the middle.
            self.shared.filesystem.sync_directory(self.directory)
        sealed.finish()
        created = Segment.create(
            self.shared.filesystem, self.shared.open_files, self.directory, self.end_offset
        )
        self.owed.add(sealed)
        self.owed.directory = True
        self.snapshots.take(self, self.shared, 0, is_periodic=False)
        self.segments = [*self.segments, created]
        self.active = created
        return created

    def roll(self) -> None:
        """Begin a new segment if the active one has batches."""
        if self.active.size:
            try:
                self.begin_segment()
            except OSError as error:
                raise self._append_failed(error) from error
            self.mark_dirty()

    def begin_epoch(self, leader_epoch: int, base_offset: int) -> None:
        """Note a new leader's first batch; the flusher writes the file before it is durable."""
        self.owed.epochs |= self.epochs.assign(leader_epoch, base_offset)
        self.latest_epoch = self.epochs.latest_epoch

    def _append_failed(self, error: OSError) -> StorageError:
        """After a failed write: cut it off; continue if only space or descriptors are short."""
        if error.errno not in RETRIABLE_ERRNOS:
            return self.shared.fail(error)
        try:
            self.active.cut_back()
        except OSError as second:
            return self.shared.fail(second)
        return DiskFullError(f"no room in {self.shared.path} for a batch: {error}")

    # --- Flushing: the flusher calls these on the owner's thread ---

    def take_flush_job(self, *, sealed_only: bool) -> FlushJob:
        """Hand over all unsynced work, or of the data only sealed segments."""
        active = self.active
        mark = LogMark(self.end_offset, active, active.size)
        if sealed_only:
            mark = LogMark(active.base_offset, active, 0)
        job = self.owed.take(
            self.shared.filesystem, self, mark, self.truncations, active, sealed_only=sealed_only
        )
        self.is_dirty = False
        return job

    def flush_done(self, job: FlushJob) -> bool:
        """The job's work is on the disk; whether the durable offset moved."""
        mark = job.mark
        if mark.offset <= self.synced_offset or job.truncations != self.truncations:
            return False
        assert mark.offset <= self.end_offset
        self.synced_offset = mark.offset
        self.durable_mark = mark
        self.durable_offset = max(self.durable_offset, mark.offset)
        if self.snapshots.taken is not None:
            self.snapshots.offer(self, self.shared)
        return True

    def flush_undone(self, job: FlushJob) -> None:
        """No disk space for the job's small files: all its work is owed again."""
        self.owed.put_back(job, self.segments)
        self.mark_dirty()

    @property
    def owes_sync(self) -> bool:
        """Whether a clean stop must sync files of it; not for a new log without records."""
        return not (self.owed.is_empty or self.owed.is_birth)

    @property
    def is_changed(self) -> bool:
        """Whether a clean stop must write files of it."""
        return self.is_touched and not self.owed.is_birth

    @property
    def owes_sealed(self) -> bool:
        """Whether a sealed segment or a name waits for its sync."""
        return self.owed.directory or len(self.owed.segments) > 1

    def snapshot_if_due(self) -> None:
        """Take a producer snapshot when much was appended since the last one."""
        self.snapshots.take_if_due(self, self.shared, self.active.size)

    # --- Reading ---

    def read(
        self, offset: int, bytes_max: int, *, offset_limit: int, at_least_one: bool, nowait: bool
    ) -> LogRead:
        """Whole batches from the one that holds `offset`, all ending below `offset_limit`.

        With `at_least_one` a first batch larger than `bytes_max` is still returned (KIP-74). With
        `nowait` a read that needs the disk raises `BlockingIOError`; repeat it on a thread without.
        """
        if self.problem is not None:
            raise self.problem.again()
        return read_log(self, offset, bytes_max, offset_limit, at_least_one, nowait)

    def aborted_transactions(
        self, offset: int, limit: int, *, nowait: bool
    ) -> list[AbortedTransaction]:
        """Aborted transactions with records in [offset, limit); see `log_reader`."""
        return aborted_in(self, offset, limit, nowait=nowait)

    def first_undecided(self, high_watermark: int) -> int:
        """The last stable offset: no record at or above it is compacted or read as committed."""
        first_offset = self.producers.transactions.first_undecided(high_watermark)
        if first_offset < 0:
            return high_watermark
        return min(max(first_offset, self.log_start_offset), high_watermark)

    def offset_for_timestamp(self, time_ms: int, turn: Turn = no_turn) -> TimestampAndOffset | None:
        """The first record at or after a time. May decompress a batch: not on the loop."""
        self.refuse()
        return find_timestamp(self, time_ms, turn)

    def max_timestamp(self, turn: Turn = no_turn) -> TimestampAndOffset | None:
        """The first record with the highest timestamp. Not on the loop."""
        self.refuse()
        return find_max_timestamp(self, turn)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Where an epoch ends, as OffsetForLeaderEpoch answers it."""
        return self.epochs.end_offset_for(epoch, self.end_offset)

    # --- Deleting ---

    @property
    def deletion_limit(self) -> int:
        """No record at or above it is deleted or compacted."""
        if self.is_replicated and self.high_watermark < self.synced_offset:
            return self.high_watermark
        return self.synced_offset

    def advance_start(self, offset: int) -> None:
        """Hide all records below `offset`; the next retention removes their segments.

        Raises `OffsetOutOfRangeError` above the durable offset, or above `deletion_limit` where
        other brokers have replicas.
        """
        self.refuse()
        limit = self.deletion_limit if self.is_replicated else self.durable_offset
        if offset > limit:
            raise OffsetOutOfRangeError(offset, self.log_start_offset, limit)
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.is_touched = True
            self.owed.epochs |= self.epochs.truncate_start(offset)

    def delete_old_segments(self, now_ms: int) -> list[Segment]:
        """Detach the segments that retention deletes; the start moves with them.

        The caller removes files after it wrote the new log start, or a crash would leave a hole.
        """
        if self.problem is not None or self.shared.failure is not None or self.is_swapping:
            return []
        settings = self.settings
        if is_untimed_roll_due(self.active, settings, now_ms):
            with suppress(DiskFullError):
                self.roll()
        segments = self.segments
        ends = [segment.base_offset for segment in segments[1:]] + [self.end_offset]
        at, start = self.topic_partition, self.log_start_offset
        count = expired_count(
            segments,
            ends,
            now_ms=now_ms,
            retention_ms=settings.retention_ms,
            retention_bytes=settings.retention_bytes,
            log_start_offset=start,
            offset_limit=self.shared.retained_from(at, start, self.deletion_limit),
        )
        if count == len(segments):
            # The last one goes next time, when its successor and the producers are on the disk.
            with suppress(DiskFullError):
                self.roll()
            count -= 1
        if self.producers.entries:
            # A start after a crash loads producers from the last snapshot and the batches after it.
            count = self.snapshots.deletable(self, self.shared, ends[:count])
        if count == 0:
            return []
        self.advance_start(ends[count - 1])
        gone = self.segments[:count]
        self.replace_segments(self.segments[count:])
        self.owed.directory = True
        return gone

    def replace_segments(self, segments: list[Segment]) -> None:
        """Replace the segments, and forget the owed work of removed ones."""
        self.segments = segments
        self.positions.clear()
        self.owed.keep_only(segments)

    def close(self, problem: StorageError) -> None:
        """Drop all handles; every later use raises `problem`."""
        self.problem = problem
        for segment in self.segments:
            segment.close()

    def validate(self) -> None:
        """Assert the invariants; tests call it after every event."""
        assert self.log_start_offset <= self.durable_offset <= self.end_offset
        assert self.active is self.segments[-1]
        bases = [segment.base_offset for segment in self.segments]
        assert bases == sorted(set(bases))
        assert bases[0] <= self.log_start_offset
        assert self.active.base_offset <= self.end_offset
        assert (self.active.size == 0) == (self.active.base_offset == self.end_offset)
        assert max(self.synced_offset, self.durable_mark.offset) <= self.end_offset
        assert not self.is_replicated or self.high_watermark <= self.end_offset
        self.producers.validate()
        self.epochs.validate()
