"""The disk operations of a flush round, in the order that durability needs.

Notes of gaps, epochs, data, names. Lack of space for a small file, or of a descriptor, is a
`ShortageError`: no data is lost and the jobs are owed again. Every other error, and any error of a
sync of data, is raised unchanged and takes the directory out of service.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.storage.disk.directory_sync import sync_directories
from penstock.storage.disk.filesystem import (
    DESCRIPTOR_ERRNOS,
    RETRIABLE_ERRNOS,
    File,
    FileSystem,
    write_fully,
)
from penstock.storage.log.log_directory import FlushJob, GapNotes
from penstock.storage.log.log_loader import LEADER_EPOCH_FILE


class ShortageError(Exception):
    """No space for a small file, or no file could be opened; caught by the flusher."""


def sync_in_turn(files: list[File]) -> None:
    """Sync files one after the other."""
    for file in files:
        file.sync()


def execute_jobs(
    filesystem: FileSystem,
    jobs: list[FlushJob],
    sync_files: Callable[[list[File]], None] = sync_in_turn,
) -> None:
    """Write and sync the jobs of several logs, in the order that durability needs.

    Step by step over all jobs, not job by job: a file system with a journal commits the other files
    of a step with the first one.
    """
    _write_gaps(jobs)
    _replace_epochs(filesystem, jobs, sync_files)
    sync_files([file for job in jobs for file in job.files])
    try:
        sync_directories(
            filesystem,
            [job.log.directory for job in jobs if job.sync_directory or job.epochs is not None],
        )
        parents = {job.log.directory.rpartition("/")[0] for job in jobs if job.sync_parent}
        for parent in parents:
            filesystem.sync_directory(parent)
    except OSError as error:
        if error.errno in DESCRIPTOR_ERRNOS:
            raise ShortageError from error
        raise


def _write_gaps(jobs: list[FlushJob]) -> None:
    """Write the notes of first gaps, once for each data directory."""
    written: list[GapNotes] = []
    for job in jobs:
        if job.gaps is not None and job.gaps not in written:
            with _reporting_full_disk():
                job.gaps.write_cleaned_offsets()
            written.append(job.gaps)


def _replace_epochs(
    filesystem: FileSystem, jobs: list[FlushJob], sync_files: Callable[[list[File]], None]
) -> None:
    """Write leader epochs aside, sync, rename; their names are synced with the others."""
    written: list[tuple[str, File]] = []
    with _reporting_full_disk():
        for job in jobs:
            if job.epochs is not None:
                path = f"{job.log.directory}/{LEADER_EPOCH_FILE}"
                file = filesystem.create_file(f"{path}.tmp")
                write_fully(file, job.epochs, 0)
                written.append((path, file))
        sync_files([file for _, file in written])
        for path, _ in written:
            filesystem.rename(f"{path}.tmp", path)


@contextmanager
def _reporting_full_disk() -> Iterator[None]:
    """Distinguish a full disk from a broken one while a small file is written."""
    try:
        yield
    except OSError as error:
        if error.errno in RETRIABLE_ERRNOS:
            raise ShortageError from error
        raise
