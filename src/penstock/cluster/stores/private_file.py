"""The files of the metadata store, readable by their owner only.

The store has the keys of SCRAM users. A program that reads them can guess passwords without asking
the broker, and can log in as a user after it has seen one login of that user (RFC 5802, section 9).
SQLite creates a file with the umask's mode, and its log (`-wal`, `-shm`) with the mode of the file.
So a new file is created here, empty, before SQLite opens it; files of earlier versions lose the
permissions of group and others.

It NEVER opens an existing file: closing it again would end the locks that this process has on it.
It never fails: a file of another user, or on a read-only disk, stays as it is.
"""

import os
from contextlib import suppress
from typing import Final

from penstock.cluster.stores.memory_database import MEMORY_PREFIX

_OWNER_ONLY: Final = 0o600
_OTHERS: Final = 0o077
_PERMISSIONS: Final = 0o777
_MEMORY: Final = (":memory:", MEMORY_PREFIX)
_SUFFIXES: Final = ("", "-wal", "-shm", "-journal")


def create_private(path: str) -> None:
    """Create an empty file that its owner only can read, unless there is one."""
    if path.startswith(_MEMORY):
        return
    # An error is SQLite's to report: it opens the file next.
    with suppress(OSError):
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
        os.close(os.open(path, flags, _OWNER_ONLY))


def restrict_to_owner(path: str) -> None:
    """Remove the permissions of group and others from a database of this user."""
    for suffix in _SUFFIXES:
        with suppress(OSError):
            found = os.stat(path + suffix)
            if found.st_uid == os.geteuid() and found.st_mode & _OTHERS:
                os.chmod(path + suffix, found.st_mode & _PERMISSIONS & ~_OTHERS)
