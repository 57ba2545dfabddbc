"""`LogManager`: all logs under the data directories: load, create, delete, checkpoint, close.

Guarantees: a log that it returns is whole. A log that cannot be served is in `problems`, with the
reason, and using it raises; its files are not changed. The cost of periodic duties grows with the
changed logs, not with all logs, except for retention, which checks each log's oldest segment.

Order at a clean stop: unsynced data is synced, checkpoints are written, then the marker
(`clean_close`). While a partition is quarantined no marker is written, so that the next start
verifies again.

Plain blocking code, called by the thread that owns the logs; `service` runs slow parts elsewhere.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from uuid import UUID, uuid4

from penstock.core.clock import Clock
from penstock.core.errors import DiskFullError, QuarantinedLogError, RecordsError, StorageError
from penstock.core.limits import FILES_OPEN_MAX
from penstock.core.stopping import StopDeadline
from penstock.core.types import TopicPartition
from penstock.storage.clean_close import close_directory
from penstock.storage.disk import data_directory as names
from penstock.storage.disk.filesystem import RETRIABLE_ERRNOS, FileSystem, write_fully
from penstock.storage.disk.open_files import OpenFiles
from penstock.storage.flusher import Flusher
from penstock.storage.log.log_directory import LogDirectory
from penstock.storage.log.log_loader import create_log, load_log
from penstock.storage.log.log_settings import FlushMode, LogSettings
from penstock.storage.log.log_types import LogProblem
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log.segment import LOG_SUFFIX, segment_name
from penstock.storage.log_installation import finish_installations
from penstock.storage.log_truncation import Restart, Truncation, finish_restart, restart, truncate
from penstock.storage.managed_directory import (
    DetachedSegments,
    ManagedDirectory,
    Removal,
    emptiest_directory,
)

logger = logging.getLogger(__name__)


class LogManager:
    """Every log of this node."""

    def __init__(
        self,
        filesystem: FileSystem,
        data_directories: list[str],
        clock: Clock,
        *,
        flush_mode: FlushMode = FlushMode.ALWAYS,
        new_id: Callable[[], str] = lambda: uuid4().hex,
        files_open_max: int = FILES_OPEN_MAX,
    ) -> None:
        assert data_directories, "at least one data directory"
        self._filesystem = filesystem
        self._clock = clock
        self._new_id = new_id
        self._open_files = OpenFiles(files_open_max, keeps_unsynced=flush_mode is FlushMode.ALWAYS)
        self._directories = [
            ManagedDirectory(LogDirectory(path, filesystem, self._open_files, flush_mode), clock)
            for path in data_directories
        ]
        self.flushers: list[Flusher] = [directory.flusher for directory in self._directories]
        """One for each data directory."""
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._homes: dict[TopicPartition, ManagedDirectory] = {}
        """The data directory of each log, also of damaged ones."""
        self._quarantined: dict[TopicPartition, QuarantinedLogError] = {}
        self.problems: list[LogProblem] = []
        """Problems found while loading, for the operator."""
        self.withholds_clean_marker = False

    @property
    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """All logs that are served."""
        return self._logs

    def damaged_logs(self) -> dict[TopicPartition, UUID | None]:
        """Logs that are not served because of damage, with the topic id of each."""
        return {
            partition: self._read_topic_id(
                f"{self._homes[partition].path}/{names.log_name(partition)}"
            )
            for partition in self._quarantined
        }

    # --- Loading ---

    def lock(self) -> None:
        """Lock the directories, creating missing ones; `start` does it if they are unlocked."""
        for directory in self._directories:
            if directory.lock is None:
                names.make_directories(self._filesystem, directory.path)
                directory.lock = self._filesystem.lock(f"{directory.path}/{names.LOCK_FILE}")

    def unlock(self) -> None:
        """Unlock the directories, if they are still locked: another process may use them."""
        for directory in self._directories:
            if directory.lock is not None:
                directory.lock.release()
                directory.lock = None

    def start(
        self, settings_for: Callable[[str], LogSettings] = lambda _topic: LogSettings()
    ) -> None:
        """Lock the directories and load every log; `settings_for` returns a topic's settings."""
        self.lock()
        finish_installations(self._directories)
        for directory in self._directories:
            self._load_directory(directory, settings_for)

    def _load_directory(
        self, directory: ManagedDirectory, settings_for: Callable[[str], LogSettings]
    ) -> None:
        filesystem, path = self._filesystem, directory.path
        is_clean = names.take_clean_marker(filesystem, path)
        notes = directory.read_checkpoints()
        for text in filter(None, notes):
            self.problems.append(LogProblem(path, None, text, is_served=True))
        for name in sorted(filesystem.list_directory(path)):
            partition = names.parse_log_name(name)
            if partition is not None:
                settings = settings_for(partition.topic)
                if partition in directory.cleaned_offsets:
                    # It was compacted at least once, whatever its policy is now.
                    settings = replace(settings, is_compacted=True)
                self._load(directory, partition, settings, is_clean=is_clean and not notes[0])
            elif name.endswith((names.DELETE_SUFFIX, names.INSTALL_SUFFIX)):
                directory.doomed.append(f"{path}/{name}")
        if not is_clean:
            # Data that was verified and synced need not be verified again.
            self._write_recovery_points(directory, self._logs_in(directory))

    def _load(
        self,
        directory: ManagedDirectory,
        partition: TopicPartition,
        settings: LogSettings,
        *,
        is_clean: bool,
    ) -> None:
        path = f"{directory.path}/{names.log_name(partition)}"
        if not self._filesystem.is_directory(path):
            return
        if partition in self._logs or partition in self._quarantined:
            self._report(path, partition, "the same partition is in two data directories")
            return
        try:
            finish_restart(self._filesystem, directory, partition, path)
            loaded = load_log(
                self._filesystem,
                self._open_files,
                path,
                settings,
                recovery_point=directory.recovery_points.get(partition, 0),
                log_start_offset=directory.log_starts.get(partition, 0),
                is_clean=is_clean,
            )
        except (StorageError, RecordsError) as error:
            self._quarantine(directory, partition, error)
            return
        if loaded.cut:
            text = f"cut a torn tail at offset {loaded.end_offset}: {loaded.cut}"
            self.problems.append(LogProblem(path, partition, text, is_served=True))
        for note in loaded.notes:
            self.problems.append(LogProblem(path, partition, note, is_served=True))
        topic_id = self._read_topic_id(path)
        log = PartitionLog(directory.shared, partition, topic_id, settings, loaded)
        committed = directory.high_watermarks.get(partition, 0)
        log.high_watermark = min(max(committed, log.log_start_offset), log.end_offset)
        self._logs[partition] = log
        self._homes[partition] = directory

    def _read_topic_id(self, path: str) -> UUID | None:
        try:
            data = self._filesystem.read_file(f"{path}/{names.PARTITION_FILE}")
        except FileNotFoundError:
            return None
        return names.parse_partition_metadata(data)

    def _quarantine(
        self, directory: ManagedDirectory, partition: TopicPartition, error: Exception
    ) -> QuarantinedLogError:
        wrapped = QuarantinedLogError(str(error))
        self._quarantined[partition] = wrapped
        self._homes[partition] = directory
        self._report(f"{directory.path}/{names.log_name(partition)}", partition, str(error))
        return wrapped.again()

    def _report(self, path: str, partition: TopicPartition, message: str) -> None:
        self.problems.append(LogProblem(path, partition, message, is_served=False))

    def lost_logs(self) -> list[TopicPartition]:
        """Partitions that had durable data, and whose directory is missing."""
        return [
            partition
            for directory in self._directories
            for partition, offset in directory.recovery_points.items()
            if offset and partition not in self._logs and partition not in self._quarantined
        ]

    # --- Single logs ---

    def get_log(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The log, or None when there is none; raises `QuarantinedLogError` for a damaged one."""
        log = self._logs.get(topic_partition)
        if log is None and topic_partition in self._quarantined:
            raise self._quarantined[topic_partition].again()
        return log

    def home_of(self, topic_partition: TopicPartition) -> ManagedDirectory:
        """The data directory that a log is in."""
        return self._homes[topic_partition]

    def create_log(
        self, topic_partition: TopicPartition, topic_id: UUID, settings: LogSettings
    ) -> PartitionLog:
        """A new, empty log; it becomes durable with its first batch."""
        assert topic_partition not in self._logs, f"{topic_partition} exists"
        if topic_partition in self._quarantined:
            raise self._quarantined[topic_partition].again()
        directory = emptiest_directory(self._directories, self._homes.values())
        path = f"{directory.path}/{names.log_name(topic_partition)}"
        filesystem = self._filesystem
        try:
            directory.forget([topic_partition])
            directory.write_forgotten()
            filesystem.make_directory(path)
            metadata = f"{path}/{names.PARTITION_FILE}"
            write_fully(
                filesystem.create_file(metadata), names.format_partition_metadata(topic_id), 0
            )
            loaded = create_log(filesystem, self._open_files, path)
        except FileExistsError as error:
            # Unknown files are in the way; every other log is served.
            raise self._quarantine(directory, topic_partition, error) from error
        except OSError as error:
            raise self._creation_failed(directory, path, error) from error
        loaded.unsynced.append(metadata)
        log = PartitionLog(directory.shared, topic_partition, topic_id, settings, loaded)
        self._logs[topic_partition] = log
        self._homes[topic_partition] = directory
        return log

    def _creation_failed(
        self, directory: ManagedDirectory, path: str, error: OSError
    ) -> StorageError:
        """Remove the files of a log that could not be created."""
        if error.errno not in RETRIABLE_ERRNOS:
            return directory.shared.fail(error)
        with suppress(OSError):
            # By name: listing a directory takes a descriptor, and there may be none.
            for name in (names.PARTITION_FILE, segment_name(0) + LOG_SUFFIX):
                with suppress(FileNotFoundError):
                    self._filesystem.remove_file(f"{path}/{name}")
            self._filesystem.remove_directory(path)
        return DiskFullError(f"no room in {directory.path} for a new log: {error}")

    def take_out(
        self, partitions: Iterable[TopicPartition], *, keep: bool = False
    ) -> list[Removal]:
        """Take logs out of service; owner's thread. `Removal.rename` frees their names.

        A log that is damaged is kept under another name, as all are with `keep`.
        """
        removals: dict[str, Removal] = {}
        for partition in partitions:
            home = self._homes.pop(partition, None)
            if home is None:
                continue
            path = f"{home.path}/{names.log_name(partition)}"
            is_damaged = self._quarantined.pop(partition, None) is not None
            if is_damaged:
                self.problems = [problem for problem in self.problems if problem.path != path]
            else:
                self._close(self._logs.pop(partition), home)
            home.forget([partition])
            rename = names.stray_name if keep or is_damaged else names.deleted_name
            removal = removals.setdefault(home.path, Removal(home, []))
            removal.moves.append((path, f"{home.path}/{rename(partition, self._new_id())}"))
        return list(removals.values())

    @staticmethod
    def _close(log: PartitionLog, home: ManagedDirectory) -> None:
        log.close(StorageError(f"{log.topic_partition} is deleted"))
        if log.is_dirty:
            home.shared.dirty.remove(log)
        log.snapshots.drop(log, home.shared)
        home.flusher.forget(log)
        home.unsettled.discard(log)

    def delete_logs(self, partitions: Iterable[TopicPartition]) -> None:
        """Take logs out of service; `purge_deleted` removes their files later."""
        for removal in self.take_out(partitions):
            removal.rename()

    def set_aside(self, partitions: Iterable[TopicPartition]) -> None:
        """Rename logs that belong to no topic: they are never loaded and never deleted."""
        for removal in self.take_out(partitions, keep=True):
            removal.rename()

    def delete_log(self, topic_partition: TopicPartition) -> None:
        """Take one log out of service."""
        self.delete_logs([topic_partition])

    def purge_deleted(self) -> None:
        """Remove the files of deleted logs. Slow; any thread."""
        for directory in self._directories:
            directory.purge()

    def truncate_log(self, topic_partition: TopicPartition, offset: int) -> None:
        """Cut a log back to `offset`, or to where the batch that holds it begins, durably.

        Below its start the log begins anew at `offset`. Blocks; `StorageService` does not.
        """
        log, home = self._logs[topic_partition], self._homes[topic_partition]
        if offset < log.log_start_offset:
            restart(Restart(log, home, offset))
        elif offset < log.end_offset:
            truncate([Truncation(log, home, offset)])

    def restart_log(self, topic_partition: TopicPartition, offset: int) -> None:
        """Drop all records of a log, durably; it is empty and begins at `offset`. Blocks."""
        log, home = self._logs[topic_partition], self._homes[topic_partition]
        restart(Restart(log, home, offset))

    # --- Duties ---

    def _logs_in(self, directory: ManagedDirectory) -> list[PartitionLog]:
        return [log for log in self._logs.values() if self._homes[log.topic_partition] is directory]

    def _write_recovery_points(
        self, directory: ManagedDirectory, logs: Iterable[PartitionLog]
    ) -> None:
        for log in logs:
            directory.recovery_points[log.topic_partition] = log.synced_offset
        directory.write_recovery_points()

    def take_moved(self) -> list[tuple[ManagedDirectory, list[PartitionLog]]]:
        """Note the synced offsets of logs that moved since the last time; owner's thread."""
        taken = []
        for directory in self._directories:
            moved, directory.flusher.moved = directory.flusher.moved, set()
            logs = [log for log in moved if isinstance(log, PartitionLog) and log.problem is None]
            for log in logs:
                directory.recovery_points[log.topic_partition] = log.synced_offset
                log.snapshot_if_due()
            directory.shared.take_missed_snapshots()
            if logs and directory.shared.failure is None:
                taken.append((directory, logs))
        return taken

    def take_high_watermarks(self) -> list[ManagedDirectory]:
        """Note the high watermarks of replicated logs; the directories where one moved."""
        return [
            directory
            for directory in self._directories
            if directory.take_high_watermarks(self._logs_in(directory))
            and directory.shared.failure is None
        ]

    def checkpoint_recovery_points(self) -> None:
        """Write how far logs are synced, where that moved."""
        for directory, _ in self.take_moved():
            directory.write_recovery_points()

    def detach_old_segments(
        self, logs: Iterable[PartitionLog], now_ms: int
    ) -> list[DetachedSegments]:
        """Detach the segments that retention deletes from the logs; owner's thread."""
        detached = []
        for log in logs:
            try:
                gone = log.delete_old_segments(now_ms)
            except (OSError, StorageError, RecordsError) as error:
                # No disk space to roll, or times that cannot be read: the log keeps its segments.
                logger.warning("retention passes over %s: %s", log.topic_partition, error)
                continue
            if gone:
                home = self._homes[log.topic_partition]
                home.log_starts[log.topic_partition] = log.log_start_offset
                detached.append(DetachedSegments(log, gone))
        return detached

    def remove_segments(self, detached: list[DetachedSegments]) -> list[DetachedSegments]:
        """Remove detached segments' files; return those to retry. Slow; any thread."""
        waiting = []
        for directory in self._directories:
            # The log itself and not its name: another log may have the same name by now.
            mine = [
                entry
                for entry in detached
                if self._logs.get(entry.log.topic_partition) is entry.log
                and self._homes.get(entry.log.topic_partition) is directory
            ]
            if mine and directory.shared.failure is None and not directory.remove_segments(mine):
                waiting += mine
        return waiting

    def run_retention(self, now_ms: int) -> int:
        """Delete segments by retention; return their number."""
        detached = self.detach_old_segments(list(self._logs.values()), now_ms)
        self.remove_segments(detached)
        return sum(len(gone) for _, gone in detached)

    # --- Stopping ---

    def close(self, deadline: StopDeadline | None = None) -> None:
        """Sync unsynced data, write checkpoints and the clean marker, unlock the directories.

        After the `deadline` no marker is written: the next start verifies as after a crash.
        """
        for directory in self._directories:
            assert not directory.flusher.is_round_under_way, "stop the flusher first"
            try:
                if directory.shared.failure is None:
                    self._close_directory(directory, deadline)
            except OSError as error:
                directory.shared.fail(error)
            finally:
                for log in self._logs_in(directory):
                    log.close(StorageError("the broker has stopped"))
                if directory.lock is not None:
                    directory.lock.release()
                    directory.lock = None

    def _close_directory(self, directory: ManagedDirectory, deadline: StopDeadline | None) -> None:
        logs = [log for log in self._logs_in(directory) if log not in directory.unsettled]
        is_clean = close_directory(directory, logs, deadline) and not directory.unsettled
        directory.log_starts.update(
            {log.topic_partition: log.log_start_offset for log in logs if log.log_start_offset}
        )
        directory.write_log_starts()
        self._write_recovery_points(directory, logs)
        if directory.take_high_watermarks(logs):
            directory.write_high_watermarks()
        unserved = (problem.path for problem in self.problems if not problem.is_served)
        is_clean = is_clean and not self.withholds_clean_marker
        if is_clean and not any(path.startswith(directory.path + "/") for path in unserved):
            names.write_clean_marker(self._filesystem, directory.path)
