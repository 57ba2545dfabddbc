"""`close_directory`: a clean close of one data directory, until a deadline.

Order: unsynced data of logs is synced, caches are written, log starts and recovery points are
replaced, and only then the clean-shutdown marker is written. The marker says that all state is on
the disk that a start cannot derive: records, leader epochs, aborted transactions, their names,
checkpoints.

Most logs owe no sync. In flush mode `always` the last round synced all records, so only a log whose
names, epochs or start changed since needs one. A log without records needs none: a start creates it
again from the metadata, and its first batch syncs its names.

Indexes and producer snapshots are caches. They are written for a quick start, and where they are
small neither their files nor their names are synced, because a start does not depend on them:

- An index of one page is whole after a power cut, or it counts as shorter than it was. The start
  walks over the batches behind its last entry. A larger index is synced: with a hole in it each
  search would walk.
- A producer snapshot has a checksum. Without it the start replays the batches behind the one before
  it. Before segments below a snapshot are removed, it is synced (`LogSnapshots.sync_loaded`).

A log is small when a start without its caches reads at most `SMALL_LOG_BYTES` more. Creating three
files for each of ten thousand small logs takes seconds, so those get a second in all, and the stop
is clean with or without them.

After the deadline no more files are synced and no marker is written. The recovery points are
written, because they cover only synced data. The files are then as after a crash of the process: no
acknowledged record is lost, and the next start verifies the data past the recovery points.
"""

import logging
from collections.abc import Sequence
from typing import Final

from penstock.core.stopping import StopDeadline
from penstock.storage.disk.directory_sync import sync_directories
from penstock.storage.disk.filesystem import RETRIABLE_ERRNOS, File, write_fully
from penstock.storage.flush_work import ShortageError, execute_jobs
from penstock.storage.log.log_snapshots import SNAPSHOT_SUFFIX
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log.segment import segment_name
from penstock.storage.managed_directory import ManagedDirectory

logger = logging.getLogger(__name__)

_LOGS_SYNCED_AT_ONCE: Final = 64
"""Logs between two checks of the deadline: four times the threads that sync, so that they never
wait, and few enough to take a fraction of a second on a busy disk."""
_FILES_OF_LOG: Final = 4
"""Files that a log holds open meanwhile."""
SMALL_LOG_BYTES: Final = 65_536
"""The most that a start reads of a log whose caches were not written. Uncompiled, that took 1.4 ms
of CPU with batches of 98 bytes, and no time that could be measured with a single batch."""
_SMALL_LOGS_SECONDS: Final = 1.0
"""Time for the caches of all small logs: about 2,000 of one batch each, uncompiled, on a busy
machine."""
_SMALL_INDEX_BYTES: Final = 4_096
"""An index of this size is written in one piece: a page of memory and a block of the disk."""


def close_directory(
    directory: ManagedDirectory, logs: Sequence[PartitionLog], deadline: StopDeadline | None
) -> bool:
    """Sync and write everything for a clean start; return whether all of it is done.

    Raises `OSError` when the disk fails. Lack of room is not a failure: the stop is not clean.
    """
    owing = [log for log in logs if log.is_touched and log.owes_sync]
    changed = [log for log in logs if log.is_changed]
    large = [log for log in changed if not _is_small(log)]
    small = [log for log in changed if _is_small(log)]
    try:
        unsynced = len(owing) - _sync_owed(directory, owing, deadline)
        unwritten = len(large) - _write_caches(directory, large, deadline, 0.0)
        if deadline is not None:
            reserved_seconds = deadline.seconds_left - _SMALL_LOGS_SECONDS
            _write_caches(directory, small, deadline, reserved_seconds)
        else:
            _write_caches(directory, small, None, 0.0)
    except ShortageError as error:
        logger.warning(
            "no room in %s to write what a clean start needs: %s. The next start verifies the logs "
            "as after a crash; no acknowledged record is lost.",
            directory.path,
            error.__cause__,
        )
        return False
    if unsynced or unwritten:
        logger.warning(
            "the stop reached its deadline in %s: %d of %d logs not synced, indexes of %d of %d "
            "logs not written. The disk is busy. No acknowledged record is lost; the next start "
            "verifies the logs as after a crash.",
            directory.path,
            unsynced,
            len(owing),
            unwritten,
            len(large),
        )
    return not (unsynced or unwritten)


def _sync_owed(
    directory: ManagedDirectory, logs: Sequence[PartitionLog], deadline: StopDeadline | None
) -> int:
    """Sync the unsynced data of logs; return the number of logs that are done."""
    files_max = directory.shared.open_files.files_max
    at_once = max(1, min(_LOGS_SYNCED_AT_ONCE, files_max // _FILES_OF_LOG))
    for start in range(0, len(logs), at_once):
        if deadline is not None and deadline.is_over:
            return start
        part = logs[start : start + at_once]
        jobs = [log.take_flush_job(sealed_only=False) for log in part]
        try:
            execute_jobs(directory.shared.filesystem, jobs, directory.flusher.sync_files)
        except ShortageError:
            for log, job in zip(part, jobs, strict=True):
                log.flush_undone(job)
            raise
        for log, job in zip(part, jobs, strict=True):
            log.flush_done(job)
    return len(logs)


def _is_small(log: PartitionLog) -> bool:
    """Whether a start is quick without the indexes and the last producer snapshot of a log."""
    active = log.active
    return (
        active.size <= SMALL_LOG_BYTES
        and active.index_bytes <= _SMALL_INDEX_BYTES
        and log.snapshots.stored_offset >= active.base_offset
    )


def _write_caches(
    directory: ManagedDirectory,
    logs: Sequence[PartitionLog],
    deadline: StopDeadline | None,
    reserved_seconds: float,
) -> int:
    """Write indexes and producers; return the number of logs that are done.

    Stops when only `reserved_seconds` are left until the deadline.
    """
    for start in range(0, len(logs), _LOGS_SYNCED_AT_ONCE):
        if deadline is not None and deadline.seconds_left <= max(0.0, reserved_seconds):
            return start
        large: list[tuple[str, list[File]]] = []
        for log in logs[start : start + _LOGS_SYNCED_AT_ONCE]:
            try:
                files = _finish_indexes(log)
                _write_producers(directory, log)
            except OSError as error:
                if error.errno in RETRIABLE_ERRNOS:
                    raise ShortageError from error
                raise
            if files:
                large.append((log.directory, files))
        if large:
            directory.flusher.sync_files([file for _, files in large for file in files])
            sync_directories(directory.shared.filesystem, [path for path, _ in large])
    return len(logs)


def _finish_indexes(log: PartitionLog) -> list[File]:
    """Write the indexes of the active segment; return the files too large to stay unsynced."""
    active = log.active
    indexes = (active.offset_index, active.time_index)
    return [
        file
        for file, index in zip(active.finish_indexes(), indexes, strict=True)
        if index.stored_bytes > _SMALL_INDEX_BYTES
    ]


def _write_producers(directory: ManagedDirectory, log: PartitionLog) -> None:
    """Write a producer snapshot at the end of the log, unless there is one."""
    if log.end_offset == log.snapshots.stored_offset:
        return
    log.producers.map_end_offset = log.end_offset
    name = f"{segment_name(log.end_offset)}{SNAPSHOT_SUFFIX}"
    file = directory.shared.filesystem.create_file(f"{log.directory}/{name}")
    write_fully(file, log.producers.snapshot().to_bytes(), 0)
