"""The `FileSystem` port and its implementation for a real disk.

Guarantees of every implementation (tests/contracts/test_filesystem.py):

- `File.write_at` may write less than it was given, as `pwrite` may; it returns how much it wrote.
- Bytes are durable after `File.sync`, and not before. A name (new, renamed or removed) is durable
  after `sync_directory` of the directory it is in, and not before. Syncing a file says nothing
  about its name: ext4 often keeps both, POSIX promises neither.
- `File.read_into_nowait` raises `BlockingIOError` instead of waiting for the disk; it may return
  less than requested even when more is there.
- `File.view_nowait` returns bytes that do not change while the file is not truncated below them.
  On a real disk they can be sent to a socket without being read (`file_range`).
- A `File` stays readable after its name is removed, and closes itself with its last reference:
  dropping
  the last reference is the normal way to close, because another thread may be inside a call.

It is not an abstraction of paths: they are plain `str` with `/`. Errors are `OSError` as the system
raises them; `partition_log` and `flusher` decide what an error means for a log.
"""

import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Final, NamedTuple, Protocol

from typing_extensions import Buffer

from penstock.core.errors import DataDirectoryLockedError
from penstock.storage.disk.file_range import map_range

_NO_NOWAIT: Final = (errno.EOPNOTSUPP, errno.EINVAL)
"""Errors of a file system without RWF_NOWAIT."""

_PROBE_BYTES: Final = 65_536
"""Distance between the bytes that are checked before a mapping is trusted to be in memory, where
the kernel cannot be asked. It reads ahead and drops pages in larger pieces; a missed piece costs
one wait."""

FULL_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No space, no quota, or a size limit of this process: the disk itself is healthy."""
DESCRIPTOR_ERRNOS: Final = (errno.EMFILE, errno.ENFILE)
"""A file could not be opened: no write or sync was tried, so no data is lost."""
RETRIABLE_ERRNOS: Final = (*FULL_ERRNOS, *DESCRIPTOR_ERRNOS, errno.ENOMEM)
"""Errors that pass when space or memory is freed. They never excuse a failed sync of data."""


def _native_question() -> Callable[[int, int, int], int] | None:
    """`native_cache.is_cached` where it was compiled."""
    try:
        # By name: import-linter knows no modules but those of Python.
        question: Callable[[int, int, int], int] = import_module(
            "penstock.storage.native_cache"
        ).is_cached
    except ImportError:
        return None
    return question


_ask_kernel: Final = _native_question()


class Space(NamedTuple):
    """Room on the disk that holds a path, in bytes."""

    free_bytes: int
    total_bytes: int


class File(Protocol):
    """An open file, read and written at positions."""

    def write_at(self, data: Buffer, position: int) -> int:
        """Write at `position`; how many bytes were written."""
        ...

    def read_into(self, buffer: Buffer, position: int) -> int:
        """Fill `buffer` from `position`; return the bytes read, 0 at the end."""
        ...

    def read_into_nowait(self, buffer: Buffer, position: int) -> int:
        """Read into `buffer` from memory only; `BlockingIOError` when the disk would be needed."""
        ...

    def view_nowait(self, position: int, size: int) -> memoryview:
        """`size` bytes from memory, without a copy where the system can; or `BlockingIOError`."""
        ...

    def sync(self) -> None:
        """Return when the bytes and the size are on the disk."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file, or extend it with zeros, to `size` bytes."""
        ...

    def size(self) -> int:
        """Bytes in the file."""
        ...

    def close(self) -> None:
        """Close the descriptor now; closing twice is harmless."""
        ...


class Lock(Protocol):
    """A lock that ends with the process or with `release`."""

    def release(self) -> None:
        """Release the lock."""
        ...


class FileSystem(Protocol):
    """Names, files and directories."""

    def open_file(self, path: str) -> File:
        """Open an existing file for reading and writing."""
        ...

    def create_file(self, path: str) -> File:
        """Open an empty file for reading and writing; an existing one of this name is truncated."""
        ...

    def read_file(self, path: str) -> bytes:
        """All bytes of a small file; `FileNotFoundError` when there is none."""
        ...

    def file_size(self, path: str) -> int:
        """Bytes in the file of this name."""
        ...

    def modified_ms(self, path: str) -> int:
        """When the file of this name was last written, in milliseconds since 1970."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time that `modified_ms` returns."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename, atomically; an existing file of the target name is replaced."""
        ...

    def remove_file(self, path: str) -> None:
        """Take the name away."""
        ...

    def link_file(self, source: str, target: str) -> None:
        """Add a second name for a file; `FileExistsError` when the name is in use."""
        ...

    def link_count(self, path: str) -> int:
        """Names of the file of this name."""
        ...

    def file_number(self, path: str) -> int:
        """The number of the file of this name; all its names have the same."""
        ...

    def make_directory(self, path: str) -> None:
        """Create a directory; its parent exists."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def list_directory(self, path: str) -> Sequence[str]:
        """Names in the directory, in no order."""
        ...

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory of this name."""
        ...

    def sync_directory(self, path: str) -> None:
        """Return when the names in this directory are on the disk."""
        ...

    def space(self, path: str) -> Space:
        """Room on the disk that holds `path`."""
        ...

    def lock(self, path: str) -> Lock:
        """Take the lock file `path`, or raise `DataDirectoryLockedError` at once."""
        ...


class DiskFile:
    """A descriptor. One Python call for each system call: this is the hot path."""

    __slots__ = ("_descriptor", "_is_mapped")

    def __init__(self, descriptor: int, *, is_mapped: bool = True) -> None:
        self._descriptor = descriptor
        self._is_mapped = is_mapped

    @property
    def descriptor(self) -> int:
        """For `sync_pool`, which syncs many files at once. Open while this object is held."""
        return self._descriptor

    def write_at(self, data: Buffer, position: int) -> int:
        """Write at `position`; how many bytes were written."""
        return os.pwrite(self._descriptor, data, position)

    def read_into(self, buffer: Buffer, position: int) -> int:
        """Fill `buffer` from `position`; return the bytes read."""
        return os.preadv(self._descriptor, (buffer,), position)

    def read_into_nowait(self, buffer: Buffer, position: int) -> int:
        """Read into `buffer` from the page cache; raise `BlockingIOError` on a miss."""
        try:
            return os.preadv(self._descriptor, (buffer,), position, os.RWF_NOWAIT)
        except BlockingIOError:
            raise
        except OSError as error:
            if error.errno not in _NO_NOWAIT:
                raise
            return os.preadv(self._descriptor, (buffer,), position)

    def view_nowait(self, position: int, size: int) -> memoryview:
        """The page cache itself, mapped (`file_range`): a large answer goes out without a copy.

        Without a mapping (not wanted, no descriptor or address space left) it is a read.
        """
        if not self.is_cached(position, size):
            raise BlockingIOError(errno.EAGAIN, "not in memory")
        if self._is_mapped:
            with suppress(OSError, ValueError):
                return map_range(self, self._descriptor, position, size).view()
        buffer = bytearray(size)
        if self.read_into_nowait(buffer, position) != size:
            raise BlockingIOError(errno.EAGAIN, "not in memory")
        return memoryview(buffer)

    @property
    def is_open(self) -> bool:
        """Whether the descriptor is still open."""
        return self._descriptor >= 0

    def is_cached(self, position: int, size: int) -> bool:
        """Whether the range is in the page cache: touching a page that is not waits for the disk.

        On kernels without `cachestat` only some pages of the range are checked.
        """
        if (
            _ask_kernel is not None
            and (answer := _ask_kernel(self._descriptor, position, size)) >= 0
        ):
            return answer == 1
        descriptor, probe, last = self._descriptor, (bytearray(1),), position + size - 1
        try:
            for place in range(position, last, _PROBE_BYTES):
                if os.preadv(descriptor, probe, place, os.RWF_NOWAIT) != 1:
                    return False
            return os.preadv(descriptor, probe, last, os.RWF_NOWAIT) == 1
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _NO_NOWAIT:
                raise
            # Unknown; the range is read as if it were cached.
            return self.size() > last

    def load(self, position: int, size: int) -> None:
        """Read the range into the page cache; waits for the disk."""
        read_fully(self, size, position)

    def send_to(self, descriptor: int, position: int, size: int) -> int:
        """Send bytes of the file to a socket, without a copy in this process (Linux)."""
        return os.sendfile(descriptor, self._descriptor, position, size)

    def sync(self) -> None:
        """fdatasync: bytes and size, not the times, which no recovery needs."""
        os.fdatasync(self._descriptor)

    def truncate(self, size: int) -> None:
        """Cut or extend the file."""
        os.ftruncate(self._descriptor, size)

    def size(self) -> int:
        """Bytes in the file."""
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Close the descriptor."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


def directory_in_use(lock_path: str) -> DataDirectoryLockedError:
    """The error for a data directory whose lock file another process holds."""
    directory = lock_path.rpartition("/")[0] or "."
    return DataDirectoryLockedError(
        f"the data directory {directory} is in use by another process",
        hint="Stop that process, or choose another directory with --data-dir (node.data_dir).",
    )


class DiskLock:
    """An advisory lock on an open file."""

    __slots__ = ("_file",)

    def __init__(self, file: int) -> None:
        self._file = file

    def release(self) -> None:
        """Close the file, which ends the lock."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


class DiskFileSystem:
    """The disk of this machine.

    `is_mapped` is for a consumer of views that lets the kernel copy them, as uvloop does. A page
    that cannot be read is then an error of the send. A copy by the process itself, as in asyncio's
    transports, would end the process (SIGBUS).
    """

    __slots__ = ("_is_mapped",)

    def __init__(self, *, is_mapped: bool = True) -> None:
        self._is_mapped = is_mapped

    def open_file(self, path: str) -> File:
        """Open an existing file for reading and writing."""
        return DiskFile(os.open(path, os.O_RDWR | os.O_CLOEXEC), is_mapped=self._is_mapped)

    def create_file(self, path: str) -> File:
        """Open a file for reading and writing, empty."""
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        return DiskFile(os.open(path, flags, 0o644), is_mapped=self._is_mapped)

    def read_file(self, path: str) -> bytes:
        """All bytes of a small file."""
        with open(path, "rb", buffering=0) as file:
            return file.read()

    def file_size(self, path: str) -> int:
        """Bytes in the file of this name."""
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        """When the file of this name was last written."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time that `modified_ms` returns."""
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def rename(self, source: str, target: str) -> None:
        """Rename, atomically."""
        os.rename(source, target)

    def remove_file(self, path: str) -> None:
        """Take the name away."""
        os.unlink(path)

    def link_file(self, source: str, target: str) -> None:
        """Add a second name for a file."""
        os.link(source, target, follow_symlinks=False)

    def link_count(self, path: str) -> int:
        """Names of the file of this name."""
        return os.stat(path, follow_symlinks=False).st_nlink

    def file_number(self, path: str) -> int:
        """The number of the file of this name."""
        return os.stat(path, follow_symlinks=False).st_ino

    def make_directory(self, path: str) -> None:
        """Create a directory."""
        os.mkdir(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def list_directory(self, path: str) -> Sequence[str]:
        """Names in the directory."""
        return os.listdir(path)

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory of this name."""
        return os.path.isdir(path)

    def sync_directory(self, path: str) -> None:
        """Sync the directory itself."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def space(self, path: str) -> Space:
        """Room for a process without privileges."""
        answer = os.statvfs(path)
        return Space(answer.f_bavail * answer.f_frsize, answer.f_blocks * answer.f_frsize)

    def lock(self, path: str) -> Lock:
        """Take the lock file, or raise at once."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise directory_in_use(path) from error
        return DiskLock(descriptor)


def write_fully(file: File, data: Buffer, position: int) -> None:
    """Write all of `data`, continuing after short writes, or raise `OSError`."""
    view = memoryview(data).cast("B")
    while view:
        written = file.write_at(view, position)
        if written <= 0:
            raise OSError(errno.ENOSPC, "nothing was written")
        position += written
        view = view[written:]


def read_fully(file: File, size: int, position: int) -> bytearray:
    """Up to `size` bytes from `position`; less only where the file ends."""
    buffer = bytearray(size)
    view = memoryview(buffer)
    filled = 0
    while filled < size:
        count = file.read_into(view[filled:], position + filled)
        if count == 0:
            view.release()
            del buffer[filled:]
            break
        filled += count
    return buffer
