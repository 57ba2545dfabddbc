"""`FaultyDisk`: a `FileSystem` around another one that fails on demand.

Faults, all off at first:

- a number of bytes after which the disk is full: the write that crosses it is short, as on a real
  disk, and the next one fails;
- short writes;
- an error on the next write, sync, directory sync or any operation by name;
- reads that miss the memory;
- a hook before each operation (for delays, counts and order).
"""

import errno
from collections.abc import Callable, Sequence

from typing_extensions import Buffer

from penstock.storage.disk.filesystem import File, FileSystem, Lock, Space


class FaultyFile:
    """A file whose operations may fail."""

    def __init__(self, disk: "FaultyDisk", file: File, path: str) -> None:
        self._disk = disk
        self._file = file
        self._path = path

    def write_at(self, data: Buffer, position: int) -> int:
        """Write the number of bytes that the faults allow."""
        self._disk.before("write", self._path)
        view = memoryview(data).cast("B")
        allowed = self._disk.allowed_bytes(len(view))
        return self._file.write_at(view[:allowed], position)

    def read_into(self, buffer: Buffer, position: int) -> int:
        """Read, unless a fault is set."""
        self._disk.before("read", self._path)
        return self._file.read_into(buffer, position)

    def read_into_nowait(self, buffer: Buffer, position: int) -> int:
        """Read from memory; raise `BlockingIOError` when `is_cold` is set."""
        self._disk.before("read", self._path)
        if self._disk.is_cold:
            raise BlockingIOError(errno.EAGAIN, "not in memory")
        return self._file.read_into_nowait(buffer, position)

    def view_nowait(self, position: int, size: int) -> memoryview:
        """Return a view of memory; raise `BlockingIOError` when `is_cold` is set."""
        self._disk.before("read", self._path)
        if self._disk.is_cold:
            raise BlockingIOError(errno.EAGAIN, "not in memory")
        return self._file.view_nowait(position, size)

    def sync(self) -> None:
        """Sync, unless a fault is set."""
        self._disk.before("sync", self._path)
        self._file.sync()

    def truncate(self, size: int) -> None:
        """Truncate, unless a fault is set."""
        self._disk.before("truncate", self._path)
        self._file.truncate(size)

    def size(self) -> int:
        """Return the number of bytes in the file."""
        return self._file.size()

    def close(self) -> None:
        """Close the descriptor."""
        self._file.close()


class FaultyDisk:
    """A file system that fails on demand."""

    def __init__(self, filesystem: FileSystem) -> None:
        self._filesystem = filesystem
        self.bytes_left: int | None = None
        """Bytes that can still be written before the disk is full; None for no limit."""
        self.write_bytes_max: int | None = None
        """Longest single write; a longer write is cut short."""
        self.is_cold = False
        """Whether non-blocking reads find nothing in memory."""
        self.failures: dict[str, list[int]] = {}
        """Error numbers that the next operations of a name raise, in order."""
        self.hook: Callable[[str, str], None] | None = None
        """Called before each operation with its name and path."""
        self.operations: list[tuple[str, str]] = []
        """Every operation so far: name and path."""

    def fail_next(self, operation: str, error_number: int) -> None:
        """Let the next operation of this name (write, sync, rename, and so on) fail."""
        self.failures.setdefault(operation, []).append(error_number)

    def before(self, operation: str, path: str) -> None:
        """Record an operation, and raise its fault if one is set."""
        self.operations.append((operation, path))
        if self.hook is not None:
            self.hook(operation, path)
        numbers = self.failures.get(operation)
        if numbers:
            number = numbers.pop(0)
            raise OSError(number, f"injected: {errno.errorcode[number]}", path)

    def allowed_bytes(self, size: int) -> int:
        """Return the bytes that a write may store; raise `OSError` when the disk is full."""
        if self.write_bytes_max is not None:
            size = min(size, self.write_bytes_max)
        if self.bytes_left is not None:
            if self.bytes_left == 0 and size:
                raise OSError(errno.ENOSPC, "injected: full")
            size = min(size, self.bytes_left)
            self.bytes_left -= size
        return size

    def open_file(self, path: str) -> File:
        """Open an existing file."""
        self.before("open", path)
        return FaultyFile(self, self._filesystem.open_file(path), path)

    def create_file(self, path: str) -> File:
        """Open an empty file; truncate an existing one."""
        self.before("create", path)
        return FaultyFile(self, self._filesystem.create_file(path), path)

    def read_file(self, path: str) -> bytes:
        """Return all bytes of a file."""
        self.before("read", path)
        return self._filesystem.read_file(path)

    def file_size(self, path: str) -> int:
        """Return the number of bytes in the file of this name."""
        return self._filesystem.file_size(path)

    def modified_ms(self, path: str) -> int:
        """Return the last write time of the file of this name."""
        return self._filesystem.modified_ms(path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time that `modified_ms` returns."""
        self._filesystem.set_modified_ms(path, modified_ms)

    def rename(self, source: str, target: str) -> None:
        """Rename."""
        self.before("rename", target)
        self._filesystem.rename(source, target)

    def remove_file(self, path: str) -> None:
        """Remove the name."""
        self.before("remove", path)
        self._filesystem.remove_file(path)

    def link_file(self, source: str, target: str) -> None:
        """Add a second name for a file."""
        self.before("link", target)
        self._filesystem.link_file(source, target)

    def link_count(self, path: str) -> int:
        """Return the number of names of the file."""
        return self._filesystem.link_count(path)

    def file_number(self, path: str) -> int:
        """Return the number of the file."""
        return self._filesystem.file_number(path)

    def make_directory(self, path: str) -> None:
        """Create a directory."""
        self.before("make_directory", path)
        self._filesystem.make_directory(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        self.before("remove_directory", path)
        self._filesystem.remove_directory(path)

    def list_directory(self, path: str) -> Sequence[str]:
        """Return the names in the directory."""
        return self._filesystem.list_directory(path)

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory of this name."""
        return self._filesystem.is_directory(path)

    def sync_directory(self, path: str) -> None:
        """Sync names, unless a fault is set."""
        self.before("sync_directory", path)
        self._filesystem.sync_directory(path)

    def space(self, path: str) -> Space:
        """Return the free space of the disk, less when a limit is set."""
        space = self._filesystem.space(path)
        if self.bytes_left is None:
            return space
        return Space(min(space.free_bytes, self.bytes_left), space.total_bytes)

    def lock(self, path: str) -> Lock:
        """Acquire the lock file."""
        return self._filesystem.lock(path)
