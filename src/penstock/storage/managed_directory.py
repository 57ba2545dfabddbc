"""`ManagedDirectory`: one data directory in use: its flusher, its lock and its checkpoints.

The recovery points and log starts in memory are what the files say or will say next; they never run
ahead of what is synced. Writing is serialised, and takes the newest state under the lock, so any
thread may write and the last writer is right.
"""

import threading
from collections.abc import Iterable
from typing import NamedTuple

from penstock.core.clock import Clock
from penstock.core.types import TopicPartition
from penstock.storage.checkpoint import (
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    format_offsets,
    replace_file,
)
from penstock.storage.filesystem import FULL_ERRNOS, Lock
from penstock.storage.flusher import Flusher
from penstock.storage.log_directory import LogDirectory
from penstock.storage.partition_log import PartitionLog
from penstock.storage.segment import Segment


class DetachedSegments(NamedTuple):
    """Segments that are no part of their log any more and whose files are still there."""

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
        """As checkpointed; never above what is synced."""
        self.log_starts: dict[TopicPartition, int] = {}
        self.properties: dict[str, str] = {}
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

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop partitions from the checkpoints, durably: their names may be used again."""
        known = [
            partition
            for partition in partitions
            if partition in self.recovery_points or partition in self.log_starts
        ]
        if not known:
            return
        before = dict(self.recovery_points), dict(self.log_starts)
        for partition in known:
            self.recovery_points.pop(partition, None)
            self.log_starts.pop(partition, None)
        try:
            self.write_recovery_points()
            self.write_log_starts()
        except OSError:
            self.recovery_points, self.log_starts = before
            raise

    def remove_segments(self, detached: Iterable[DetachedSegments]) -> bool:
        """Remove the files of segments that their logs let go; whether it is done. Any thread.

        First the new starts are durable, and the names of the segments that stay: a crash in
        between must not leave a hole or nothing. On a full disk it is to be tried again.
        """
        filesystem = self.shared.filesystem
        try:
            self.write_log_starts()
            for log, segments in detached:
                filesystem.sync_directory(log.directory)
                for segment in segments:
                    segment.remove()
        except OSError as error:
            if error.errno not in FULL_ERRNOS:
                self.shared.fail(error)
            return False
        return True
