"""`ManagedDirectory`: one data directory in use: its flusher, its lock and its checkpoints.

The recovery points and log starts in memory are what the files say or will say next; they never run
ahead of what is synced. Writing is serialised, and takes the newest state under the lock, so any
thread may write and the last writer is right.
"""

import threading
from collections.abc import Iterable

from penstock.core.clock import Clock
from penstock.core.types import TopicPartition
from penstock.storage.checkpoint import (
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    format_offsets,
    replace_file,
)
from penstock.storage.filesystem import Lock
from penstock.storage.flusher import Flusher
from penstock.storage.log_directory import LogDirectory


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
        if known:
            for partition in known:
                self.recovery_points.pop(partition, None)
                self.log_starts.pop(partition, None)
            self.write_recovery_points()
            self.write_log_starts()
