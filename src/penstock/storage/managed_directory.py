"""`ManagedDirectory`: one data directory in use: flusher, lock, checkpoints, and deletions.

The recovery points and log starts in memory are those of the files or of their next version; they
never pass synced data. The owner's thread changes them. Writing is serialised, and reads the newest
state under the lock, so any thread may write and the last file is the newest.

High watermarks are a hint: a missing or damaged file counts as empty, and a log then starts with
its log start. An entry is never above the committed records: `lower` follows each truncation.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from penstock.core.clock import Clock
from penstock.core.types import TopicPartition
from penstock.storage.disk.checkpoint import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    format_offsets,
    replace_file,
)
from penstock.storage.disk.data_directory import DELETE_SUFFIX, read_offsets
from penstock.storage.disk.filesystem import DESCRIPTOR_ERRNOS, RETRIABLE_ERRNOS, FileSystem, Lock
from penstock.storage.flusher import Flusher
from penstock.storage.log.log_directory import LogDirectory
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log.segment import Segment

logger = logging.getLogger(__name__)


class DetachedSegments(NamedTuple):
    """Segments that were detached from their log and whose files still exist."""

    log: PartitionLog
    segments: list[Segment]


class ManagedDirectory:
    """One data directory in use."""

    def __init__(self, shared: LogDirectory, clock: Clock) -> None:
        self.shared = shared
        self.path = shared.path
        self.flusher = Flusher(shared, clock)
        shared.gaps = self
        self.lock: Lock | None = None
        self.recovery_points: dict[TopicPartition, int] = {}
        """As checkpointed; never above the synced offset."""
        self.log_starts: dict[TopicPartition, int] = {}
        self.cleaned_offsets: dict[TopicPartition, int] = {}
        """Up to where logs are compacted; a log with an entry may have gaps."""
        self.high_watermarks: dict[TopicPartition, int] = {}
        """Of logs with replicas on other brokers, as checkpointed."""
        self.unsettled: set[PartitionLog] = set()
        """Logs whose files are being cut: their state in memory is not that of the files."""
        self.doomed: list[str] = []
        """Directories of deleted logs whose files still exist."""
        self._unwritten: set[TopicPartition] = set()
        """Partitions that are dropped here and still in the files."""
        self._behind: set[str] = set()
        """Files whose entries were lowered in memory, or dropped where that is not usual."""
        self._write_lock = threading.Lock()

    def write_recovery_points(self) -> None:
        """Replace the recovery-point checkpoint. Any thread; the last one has the newest state."""
        self._write(RECOVERY_POINT_FILE, self.recovery_points)

    def write_log_starts(self) -> None:
        """Replace the log-start checkpoint."""
        self._write(LOG_START_FILE, self.log_starts)

    def write_cleaned_offsets(self) -> None:
        """Replace the cleaner's checkpoint."""
        self._write(CLEANER_FILE, self.cleaned_offsets)

    def write_high_watermarks(self) -> None:
        """Replace the checkpoint of high watermarks."""
        self._write(HIGH_WATERMARK_FILE, self.high_watermarks)

    def _write(self, name: str, table: dict[TopicPartition, int]) -> None:
        with self._write_lock:
            data = format_offsets(dict(table))
            replace_file(self.shared.filesystem, self.path, name, data)

    def write_behind(self) -> None:
        """Write the files that `lower`, `restart` or `forget` changed. Any thread."""
        for name, write in (
            (RECOVERY_POINT_FILE, self.write_recovery_points),
            (LOG_START_FILE, self.write_log_starts),
            (CLEANER_FILE, self.write_cleaned_offsets),
            (HIGH_WATERMARK_FILE, self.write_high_watermarks),
        ):
            if name in self._behind:
                self._behind.discard(name)
                try:
                    write()
                except OSError:
                    self._behind.add(name)
                    raise

    def read_checkpoints(self) -> list[str]:
        """Read all checkpoints at a start; return errors, those of the recovery points first."""
        filesystem, path = self.shared.filesystem, self.path
        self.recovery_points, first = read_offsets(filesystem, path, RECOVERY_POINT_FILE)
        self.log_starts, second = read_offsets(filesystem, path, LOG_START_FILE)
        self.cleaned_offsets, third = read_offsets(filesystem, path, CLEANER_FILE)
        self.high_watermarks, fourth = read_offsets(filesystem, path, HIGH_WATERMARK_FILE)
        if fourth:
            logger.warning("high watermarks start at the log starts: %s", fourth)
        return [first, second, third]

    def note_gaps(self, topic_partition: TopicPartition, log_start_offset: int) -> None:
        """Note that a log has gaps; `write_cleaned_offsets` makes it durable."""
        self.cleaned_offsets.setdefault(topic_partition, log_start_offset)

    def take_high_watermarks(self, logs: Iterable[PartitionLog]) -> bool:
        """Note the high watermarks of replicated logs; whether one moved. Owner's thread."""
        table, has_moved = self.high_watermarks, False
        for log in logs:
            if log.is_replicated and log.problem is None:
                offset = log.high_watermark
                if table.get(log.topic_partition) != offset:
                    table[log.topic_partition] = offset
                    has_moved = True
        return has_moved

    def lower(self, partition: TopicPartition, offset: int) -> None:
        """Limit a log's checkpointed offsets to `offset`; `write_behind` makes it durable."""
        for name, table in (
            (RECOVERY_POINT_FILE, self.recovery_points),
            (CLEANER_FILE, self.cleaned_offsets),
            (HIGH_WATERMARK_FILE, self.high_watermarks),
        ):
            if table.get(partition, 0) > offset:
                table[partition] = offset
                self._behind.add(name)

    def restart(self, partition: TopicPartition, offset: int) -> None:
        """Set a log's checkpointed offsets for an empty log at `offset`, as `lower` does."""
        self.lower(partition, offset)
        self.recovery_points[partition] = self.log_starts[partition] = offset
        self._behind |= {RECOVERY_POINT_FILE, LOG_START_FILE}

    def install(self, partition: TopicPartition, start_offset: int, synced_offset: int) -> None:
        """Set a log's checkpointed offsets for an installed log, as `lower` does; it has gaps."""
        self.recovery_points[partition] = self.cleaned_offsets[partition] = synced_offset
        self.log_starts[partition] = start_offset
        self._behind |= {RECOVERY_POINT_FILE, LOG_START_FILE, CLEANER_FILE}
        if partition in self.high_watermarks:
            self.high_watermarks[partition] = synced_offset
            self._behind.add(HIGH_WATERMARK_FILE)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop partitions from the checkpoints; `write_forgotten` makes it durable."""
        for partition in partitions:
            tables = (self.recovery_points, self.log_starts)
            rare = (
                (CLEANER_FILE, self.cleaned_offsets),
                (HIGH_WATERMARK_FILE, self.high_watermarks),
            )
            for name, table in rare:
                if table.pop(partition, None) is not None:
                    self._behind.add(name)
                    self._unwritten.add(partition)
            if any(partition in table for table in tables):
                for table in tables:
                    table.pop(partition, None)
                self._unwritten.add(partition)

    def write_forgotten(self) -> None:
        """Remove dropped partitions from the files: their names may be used again."""
        forgotten = set(self._unwritten)
        if forgotten:
            self.write_recovery_points()
            self.write_log_starts()
            self.write_behind()
            self._unwritten -= forgotten

    def rename_logs(self, moves: Iterable[tuple[str, str]]) -> None:
        """Rename directories of logs that are out of service. Any thread.

        Deleting frees space, so a full disk must not stop it: `write_forgotten` is called again
        before one of the names is used. A name that is not durably removed is harmless, because the
        metadata knows that its topic is deleted.
        """
        filesystem = self.shared.filesystem
        try:
            _unless(RETRIABLE_ERRNOS, self.write_forgotten)
            for source, target in moves:
                with suppress(FileNotFoundError):
                    filesystem.rename(source, target)
                    if target.endswith(DELETE_SUFFIX):
                        self.doomed.append(target)
            _unless(DESCRIPTOR_ERRNOS, lambda: filesystem.sync_directory(self.path))
        except OSError as error:
            raise self.shared.fail(error) from error

    def purge(self) -> None:
        """Remove the files of deleted logs. Slow; any thread, also several at once."""
        while True:
            try:
                path = self.doomed.pop()
            except IndexError:
                return
            try:
                remove_tree(self.shared.filesystem, path)
            except OSError:
                # The space is not needed at once; the next call retries.
                self.doomed.append(path)
                return

    def remove_segments(self, detached: Iterable[DetachedSegments]) -> bool:
        """Remove the files of detached segments; return whether it is done. Any thread.

        First the new starts become durable, the snapshot that replaces the removed batches, and the
        names of the remaining segments: a crash in between must leave neither a hole nor an empty
        log. When there is no disk space, the caller retries.
        """
        filesystem = self.shared.filesystem
        try:
            self.write_log_starts()
            for log, segments in detached:
                log.snapshots.sync_loaded(filesystem, log.directory)
                filesystem.sync_directory(log.directory)
                for segment in segments:
                    segment.remove()
        except OSError as error:
            if error.errno not in RETRIABLE_ERRNOS:
                self.shared.fail(error)
            return False
        return True


class Removal(NamedTuple):
    """Logs out of service whose directories still have their names."""

    directory: ManagedDirectory
    moves: list[tuple[str, str]]

    def rename(self) -> None:
        """Free the names. Any thread."""
        self.directory.rename_logs(self.moves)


def emptiest_directory(
    directories: Iterable[ManagedDirectory], homes: Iterable[ManagedDirectory]
) -> ManagedDirectory:
    """The data directory in service with the fewest logs, as Apache Kafka chooses.

    `homes` has the directory of each log.
    """
    listed = list(directories)
    online = [entry for entry in listed if entry.shared.failure is None]
    if not online:
        failure = listed[0].shared.failure
        assert failure is not None
        raise failure.again()
    if len(online) == 1:
        return online[0]
    counts = dict.fromkeys(map(id, online), 0)
    for home in homes:
        if id(home) in counts:
            counts[id(home)] += 1
    return min(online, key=lambda entry: counts[id(entry)])


def _unless(errnos: tuple[int, ...], call: Callable[[], None]) -> None:
    """Call, and ignore errors with these numbers."""
    try:
        call()
    except OSError as error:
        if error.errno not in errnos:
            raise


def remove_tree(filesystem: FileSystem, path: str) -> None:
    """Remove a log's directory with its files; it has no directories in it."""
    try:
        for name in filesystem.list_directory(path):
            filesystem.remove_file(f"{path}/{name}")
        filesystem.remove_directory(path)
    except FileNotFoundError:
        return
