"""The data directory of a supervisor: its mark, its lock, and the metadata of all workers.

    .lock                 held while the supervisor runs
    meta.properties       metadata.store=supervisor, workers=N
    metadata.sqlite3      the metadata of all workers
    worker-K/             the data directory of worker K

Guarantees: a directory with the data of one broker, or of more workers than are asked for, is
refused before anything is written; the mark makes a broker alone refuse this directory. A worker of
a supervisor that was killed ends by itself within seconds: a start waits for it that long.
"""

import time
from typing import Final

from penstock.core.errors import ConfigError, DataDirectoryLockedError
from penstock.core.stopping import STOP_SECONDS_MAX
from penstock.node.identity import METADATA_FILE, STORE_KEY, SUPERVISOR
from penstock.node.workers.worker_settings import worker_directory
from penstock.storage.disk.data_directory import (
    LOCK_FILE,
    META_FILE,
    make_directories,
    read_properties,
    write_properties,
)
from penstock.storage.disk.filesystem import DiskFileSystem, Lock

WORKERS_KEY: Final = "workers"
_LOOK_SECONDS: Final = 0.05


def claim_directory(path: str, count: int) -> Lock:
    """Lock and mark the directory for this number of workers; return the lock."""
    filesystem = DiskFileSystem()
    try:
        make_directories(filesystem, path)
        lock = filesystem.lock(f"{path}/{LOCK_FILE}")
    except OSError as error:
        raise ConfigError(
            f"the data directory {path} cannot be used: {error.strerror}",
            hint="Check its permissions, or choose another with --data-dir (node.data_dir).",
        ) from error
    try:
        _check(filesystem, path, count)
        for number in range(1, count + 1):
            _wait_until_free(filesystem, worker_directory(path, number))
    except BaseException:
        lock.release()
        raise
    mark = {"version": "1", STORE_KEY: SUPERVISOR, WORKERS_KEY: str(count)}
    if read_properties(filesystem, path) != mark:
        write_properties(filesystem, path, mark)
    return lock


def _check(filesystem: DiskFileSystem, path: str, count: int) -> None:
    found = read_properties(filesystem, path)
    is_marked = found.get(STORE_KEY) == SUPERVISOR
    if not is_marked and {META_FILE, METADATA_FILE} & set(filesystem.list_directory(path)):
        raise ConfigError(
            f"{path} has the data of one broker, which workers do not share.",
            hint="Choose another data directory for --workers, or start without --workers.",
        )
    before = int(found.get(WORKERS_KEY, "0")) if is_marked else 0
    if count < before:
        raise ConfigError(
            f"{path} has the data of {before} workers: with {count}, partitions of the others "
            "would have no leader.",
            hint=f"Start with --workers {before} or more.",
        )


def _wait_until_free(filesystem: DiskFileSystem, path: str) -> None:
    """Wait for a worker whose supervisor was killed: it ends by itself."""
    deadline = time.monotonic() + STOP_SECONDS_MAX
    while True:
        try:
            filesystem.lock(f"{path}/{LOCK_FILE}").release()
        except FileNotFoundError:
            return
        except DataDirectoryLockedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_LOOK_SECONDS)
        else:
            return
