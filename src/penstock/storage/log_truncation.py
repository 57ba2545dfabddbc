"""Truncates logs and restarts them at another offset, in a crash-safe order, beside other work.

A cut has three steps: `begin` on the owner's thread, file work on any thread, `settle` on the
owner's thread. From `begin` to `settle` the log refuses appends and reads with `LogBusyError`, and
neither the flusher nor the snapshot writer uses it; the caller excludes retention, compaction and
deletion. After a failure in the middle the log stays out of service, its directory is offline, and
the next start finishes or undoes the cut.

A truncation first lowers the checkpointed recovery point, or a crash would look like damage. Whole
segments are removed from the last one back, the directory is synced, then the last remaining one is
cut and synced. A crash in between leaves a longer log.

A restart drops all records and begins an empty log at any offset:

    1  N.log.restart, an empty file, is created: this decides     crash: the old log
    2  all other files of the log are removed                     crash: the next start continues
    3  recovery point and log start N are written                 crash: the same
    4  N.log.restart is renamed to N.log                          crash: the same

A directory sync follows 1, 2 and 4. `finish_restart` continues at a start.

It decides nothing: replication passes the offsets.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from penstock.core.errors import CorruptIndexError, LogBusyError
from penstock.core.types import TopicPartition
from penstock.storage.disk.data_directory import PARTITION_FILE
from penstock.storage.disk.filesystem import FileSystem
from penstock.storage.log.leader_epochs import LeaderEpochs
from penstock.storage.log.log_directory import LogMark, OwedWork
from penstock.storage.log.log_loader import LoadedProducers, load_producers
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log.producer_state import ProducerStates
from penstock.storage.log.recovery import rebuild_indexes
from penstock.storage.log.segment import LOG_SUFFIX, Segment, segment_name
from penstock.storage.log.segment_swap import CLEANED_SUFFIX
from penstock.storage.managed_directory import ManagedDirectory

RESTART_SUFFIX: Final = ".restart"


class LogCut:
    """One log that is being truncated or restarted; this class is the part that both share."""

    def __init__(self, log: PartitionLog, home: ManagedDirectory, offset: int) -> None:
        self.log = log
        self.home = home
        self.offset = offset
        """Where the log ends afterwards; a truncation lowers it to the start of a batch."""
        self._busy: LogBusyError | None = None

    def begin(self) -> None:
        """Take the log out of service until `settle`; owner's thread. Raises if it is damaged.

        A round of the flusher that is under way, and a snapshot that is being stored, end before
        `exclude`.
        """
        log = self.log
        log.refuse()
        assert not log.is_swapping, "a swap of segments ends first"
        self._busy = LogBusyError(f"{log.topic_partition} is being truncated; retry")
        log.problem = self._busy
        self._leave_rounds()

    def _leave_rounds(self) -> None:
        log = self.log
        if log.is_dirty:
            self.home.shared.dirty.remove(log)
            log.is_dirty = False
        self.home.flusher.forget(log)

    def exclude(self) -> None:
        """Keep the log out of rounds, checkpoints and snapshots; owner's thread.

        No round and no snapshot works on the log. File work may follow.
        """
        log = self.log
        assert not log.is_flushing, "the round ends first"
        self._leave_rounds()
        log.snapshots.drop(log, self.home.shared)
        log.truncations += 1

    def undo(self) -> None:
        """Serve the log again as it was: no file of it has changed. Owner's thread."""
        log = self.log
        if log.snapshots.stored_offset < log.active.base_offset:
            log.snapshots.miss(log, self.home.shared)
        self._serve()
        log.mark_dirty()

    def _serve(self) -> None:
        """End the exclusion; a problem that was found meanwhile stays."""
        self.home.unsettled.discard(self.log)
        if self.log.problem is self._busy:
            self.log.problem = None


class Truncation(LogCut):
    """Removes the batches at and above an offset."""

    def __init__(self, log: PartitionLog, home: ManagedDirectory, offset: int) -> None:
        super().__init__(log, home, offset)
        self._segments: list[Segment] = []
        self._producers: LoadedProducers | None = None

    def find_start(self) -> None:
        """Lower the offset to where the batch that holds it begins. Reads the disk; any thread."""
        log = self.log
        with log.rebuild_lock:
            segment = next(
                found for found in reversed(log.segments) if found.base_offset <= self.offset
            )
            try:
                self.offset = batch_start(segment, self.offset)
            except CorruptIndexError:
                rebuild_indexes(segment, log.settings.index_interval_bytes)
                self.offset = batch_start(segment, self.offset)

    def lower_checkpoints(self) -> None:
        """Lower the checkpointed offsets; owner's thread. `write_lowered` writes them."""
        self.home.lower(self.log.topic_partition, self.offset)
        self.home.unsettled.add(self.log)

    def cut_files(self) -> None:
        """Truncate the files and sync them. Any thread; the checkpoints are lowered on the disk."""
        log, filesystem = self.log, self.home.shared.filesystem
        # No thread rebuilds an index meanwhile.
        with log.rebuild_lock:
            self._segments = cut_segments(filesystem, log.directory, log.segments, self.offset)
            self._producers = load_producers(
                filesystem, log.directory, self._segments, self.offset, drop_later=True
            )

    def settle(self) -> None:
        """Serve the truncated log; owner's thread."""
        log = self.log
        assert self._producers is not None, "the files are not cut"
        log.epochs.truncate_end(self.offset)
        log.producers = self._producers.states
        log.snapshots.begin_anew(log, self.home.shared, self._producers.stored_offset)
        reset_log(log, self._segments, self.offset)
        log.owed.epochs = True
        self._serve()
        log.mark_dirty()


class Restart(LogCut):
    """Drops all records and begins an empty log at an offset."""

    def __init__(self, log: PartitionLog, home: ManagedDirectory, offset: int) -> None:
        super().__init__(log, home, offset)
        self._created: Segment | None = None

    def decide(self) -> None:
        """Step 1. Any thread."""
        shared, directory = self.home.shared, self.log.directory
        self._created = Segment.create(
            shared.filesystem, shared.open_files, directory, self.offset, RESTART_SUFFIX
        )
        shared.filesystem.sync_directory(directory)

    def withdraw(self) -> None:
        """Remove the file of a step 1 that failed: the log stays as it was. Any thread."""
        filesystem, directory = self.home.shared.filesystem, self.log.directory
        if self._created is not None:
            self._created.close()
        with suppress(FileNotFoundError):
            filesystem.remove_file(
                f"{directory}/{segment_name(self.offset)}{LOG_SUFFIX}{RESTART_SUFFIX}"
            )
        filesystem.sync_directory(directory)

    def move_checkpoints(self) -> None:
        """Set the checkpointed offsets for step 3; owner's thread, once step 1 is done."""
        self.home.restart(self.log.topic_partition, self.offset)
        self.home.unsettled.add(self.log)

    def replace_files(self) -> None:
        """Steps 2 to 4. Any thread."""
        log, created, filesystem = self.log, self._created, self.home.shared.filesystem
        assert created is not None, "the restart is not decided"
        with log.rebuild_lock:
            for segment in log.segments:
                for place in segment.places():
                    place.leave()
                segment.close()
            _remove_records(filesystem, log.directory, keep_suffix=CLEANED_SUFFIX)
            self._sync_birth()
            self.home.write_behind()
            data, *indexes = created.places()
            data.rename("")
            for place in indexes:
                place.begin_early("")
            filesystem.sync_directory(log.directory)

    def _sync_birth(self) -> None:
        """Sync the names of a log that never had a record: a start will expect them."""
        log, filesystem = self.log, self.home.shared.filesystem
        for path in log.owed.small_paths:
            filesystem.open_file(path).sync()
        if log.owed.parent:
            filesystem.sync_directory(self.home.path)

    def settle(self) -> None:
        """Serve the empty log; owner's thread."""
        log, offset = self.log, self.offset
        assert self._created is not None, "the restart is not decided"
        log.epochs = LeaderEpochs()
        log.producers = ProducerStates()
        log.producers.map_end_offset = offset
        log.snapshots.begin_anew(log, self.home.shared, offset)
        log.owed = OwedWork()
        log.log_start_offset = offset
        log.durable_offset = log.synced_offset = log.high_watermark = offset
        reset_log(log, [self._created], offset)
        self._serve()


def reset_log(log: PartitionLog, segments: list[Segment], end_offset: int) -> None:
    """Continue with other segments; the epochs of the log are set."""
    log.replace_segments(segments)
    log.active, log.end_offset = segments[-1], end_offset
    log.latest_epoch = log.epochs.latest_epoch
    log.durable_offset = min(log.durable_offset, end_offset)
    log.synced_offset = min(log.synced_offset, end_offset)
    log.high_watermark = min(log.high_watermark, end_offset)
    log.durable_mark = log.limit_mark = LogMark(end_offset, log.active, log.active.size)
    log.is_touched = True


def batch_start(segment: Segment, offset: int) -> int:
    """Where the batch that holds `offset` begins; `offset` itself if none does."""
    base_offset = segment.find_batch(offset, nowait=False)[1]
    return base_offset if 0 <= base_offset < offset else offset


def cut_segments(
    filesystem: FileSystem, directory: str, segments: list[Segment], offset: int
) -> list[Segment]:
    """Remove all batches starting at `offset`; return the remaining segments."""
    keep = [segment for segment in segments if segment.base_offset < offset] or segments[:1]
    for segment in reversed(segments[len(keep) :]):
        segment.remove()
    filesystem.sync_directory(directory)
    last = keep[-1]
    indexes = (last.offset_index, last.time_index)
    stored_bytes = [index.stored_bytes for index in indexes]
    last.truncate(last.find(offset, nowait=False))
    last.transactions.truncate(offset)
    last.load_times()
    last.file().sync()
    for index, before in zip(indexes, stored_bytes, strict=True):
        if index.stored_bytes < before:
            # Entries of removed batches would mislead a clean start.
            index.finish().sync()
    if last.transactions.is_unsynced and not last.transactions.is_new:
        last.transactions.finish().sync()
    return keep


def _remove_records(filesystem: FileSystem, directory: str, *, keep_suffix: str = "") -> None:
    """Step 2 of a restart: remove all files but the new segment and the topic's id."""
    for name in filesystem.list_directory(directory):
        if name == PARTITION_FILE or name.endswith(RESTART_SUFFIX):
            continue
        # The files of a compaction under way, which removes them itself.
        if not keep_suffix or not name.endswith(keep_suffix):
            with suppress(FileNotFoundError):
                filesystem.remove_file(f"{directory}/{name}")
    filesystem.sync_directory(directory)


def finish_restart(
    filesystem: FileSystem, home: ManagedDirectory, partition: TopicPartition, directory: str
) -> None:
    """Continue a restart that a crash interrupted; does nothing without one. At a start only."""
    suffix = LOG_SUFFIX + RESTART_SUFFIX
    decided = [name for name in filesystem.list_directory(directory) if name.endswith(suffix)]
    for name in decided:
        _remove_records(filesystem, directory)
        home.restart(partition, int(name.removesuffix(suffix)))
        home.write_behind()
        filesystem.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(RESTART_SUFFIX)}")
        filesystem.sync_directory(directory)


# --- All steps on one thread ---


def write_lowered(cuts: Iterable[Truncation]) -> None:
    """Write the lowered checkpoints of all directories, each once. Any thread."""
    for home in {id(cut.home): cut.home for cut in cuts}.values():
        home.write_behind()


def truncate(cuts: Sequence[Truncation]) -> None:
    """Truncate logs on the owner's thread. Blocks."""
    for cut in cuts:
        cut.begin()
        cut.exclude()
        cut.find_start()
        cut.lower_checkpoints()
    write_lowered(cuts)
    for cut in cuts:
        try:
            cut.cut_files()
        except OSError as error:
            raise cut.home.shared.fail(error) from error
        cut.settle()


def restart(cut: Restart) -> None:
    """Restart a log on the owner's thread. Blocks."""
    cut.begin()
    cut.exclude()
    try:
        cut.decide()
        cut.move_checkpoints()
        cut.replace_files()
    except OSError as error:
        raise cut.home.shared.fail(error) from error
    cut.settle()
