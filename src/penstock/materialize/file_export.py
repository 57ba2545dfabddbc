"""A consistent copy of the SQLite file, by SQLite's backup API.

Guarantees: the copy is the state of one commit, with rows and positions, although the writer goes
on. It is one file without a WAL, deleted as soon as it is open: a crash leaves at most a file that
the next start deletes. It needs the room of the database on the same disk; without that room it
fails before it begins. `is_cancelled` ends it.

Blocking code for a thread; the caller bounds how many run.
"""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from penstock.core.errors import PenstockError

PAGES_PER_STEP: Final = 2_000
FREE_BYTES_MIN: Final = 67_108_864
"""Disk space that an export leaves free for the writer."""
_PREFIX: Final = "penstock-export-"


class ExportError(PenstockError):
    """The copy could not be written."""


class ExportCancelledError(PenstockError):
    """The client is gone, or the process stops."""


def copy_to_file(path: Path, is_cancelled: Callable[[], bool]) -> BinaryIO:
    """Return an open, unnamed file with a copy of the database."""
    needed = path.stat().st_size + _size(Path(f"{path}-wal")) + FREE_BYTES_MIN
    free = shutil.disk_usage(path.parent).free
    if free < needed:
        raise ExportError(
            f"an export needs {needed} bytes of disk space, and {free} are free.",
            hint="Free disk space on the disk of the store.",
        )
    descriptor, name = tempfile.mkstemp(".sqlite", _PREFIX, path.parent)
    os.close(descriptor)
    try:
        _copy(path, name, is_cancelled)
        return Path(name).open("rb")
    except sqlite3.Error as error:
        raise ExportError(f"the export failed: {error}.", hint="Repeat it later.") from error
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(name + suffix)


def delete_leftovers(folder: Path) -> None:
    """Delete files of exports that a crash interrupted."""
    for found in folder.glob(f"{_PREFIX}*"):
        found.unlink(missing_ok=True)


def _copy(path: Path, name: str, is_cancelled: Callable[[], bool]) -> None:
    def check(_status: int, _remaining: int, _total: int) -> None:
        if is_cancelled():
            raise ExportCancelledError("the export was cancelled.")

    source = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=5.0
    )
    target = sqlite3.connect(name, isolation_level=None)
    try:
        # A snapshot that stays open: without it, each commit of the writer restarts the copy.
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        target.execute("PRAGMA synchronous = OFF")
        source.backup(target, pages=PAGES_PER_STEP, progress=check, sleep=0)
        source.execute("COMMIT")
        target.execute("PRAGMA journal_mode = DELETE").fetchall()
    finally:
        target.close()
        source.close()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
