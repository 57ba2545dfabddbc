"""`ManagedDirectory`: one data directory in use: flusher, lock, checkpoints, and deletions.

The recovery points and log starts in memory are those of the files or of their next version; they
never pass synced data. The owner's thread changes them. Writing is serialised, and reads the newest
state under the lock, so any thread may write and the last file is the newest.
"""

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from penstock.core.clock import Clock
from penstock.core.types import TopicPartition
from penstock.storage.disk.checkpoint import (
    CLEANER_FILE,
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
        self.lock: Lock | None = None
        self.recovery_points: dict[TopicPartition, int] = {}
        """As checkpointed; never above the synced offset."""
        self.log_starts: dict[TopicPartition, int] = {}
        self.cleaned_offsets: dict[TopicPartition, int] = {}
        """Up to where logs are compacted; a log with an entry may have gaps."""
        self.doomed: list[str] = []
        """Directories of deleted logs whose files still exist."""
        self._unwritten: set[TopicPartition] = set()
        """Partitions that are dropped here and still in the files."""
        self._is_cleaner_behind = False
        """Whether one of them is in the cleaner's file."""
        self._write_lock = threading.Lock()

    def write_recovery_points(self) -> None:
        """Replace the recovery-point checkpoint. Any thread; the last one has the newest state."""
        with self._write_lock:
            data = format_offsets(dict(self.recovery_points))
            replace_file(self.shared.filesystem, self.path, RECOVERY_POINT_FILE, data)

    def write_log_starts(self) -> None:
        """Replace the log-start checkpoint."""
        with self._write_lock:
            data = format_offsets(dict(self.log_starts))
            replace_file(self.shared.filesystem, self.path, LOG_START_FILE, data)

    def write_cleaned_offsets(self) -> None:
        """Replace the cleaner's checkpoint."""
        with self._write_lock:
            data = format_offsets(dict(self.cleaned_offsets))
            replace_file(self.shared.filesystem, self.path, CLEANER_FILE, data)

    def read_checkpoints(self) -> list[str]:
        """Read all checkpoints at a start; return errors, those of the recovery points first."""
        filesystem, path = self.shared.filesystem, self.path
        self.recovery_points, first = read_offsets(filesystem, path, RECOVERY_POINT_FILE)
        self.log_starts, second = read_offsets(filesystem, path, LOG_START_FILE)
        self.cleaned_offsets, third = read_offsets(filesystem, path, CLEANER_FILE)
        return [first, second, third]

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop partitions from the checkpoints; `write_forgotten` makes it durable."""
        for partition in partitions:
            tables = (self.recovery_points, self.log_starts, self.cleaned_offsets)
            if any(partition in table for table in tables):
                self._is_cleaner_behind |= partition in self.cleaned_offsets
                for table in tables:
                    table.pop(partition, None)
                self._unwritten.add(partition)

    def write_forgotten(self) -> None:
        """Remove dropped partitions from the files: their names may be used again."""
        forgotten = set(self._unwritten)
        if forgotten:
            self.write_recovery_points()
            self.write_log_starts()
            if self._is_cleaner_behind:
                self._is_cleaner_behind = False
                self.write_cleaned_offsets()
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
