"""`MemoryDisk`: a `FileSystem` in memory, with the semantics of inodes.

A directory maps names to inodes; a file is an inode with bytes. An open file keeps its inode when
the name is removed or given to another, as on a real disk. Everything is durable at once: for
crashes see `recording_disk`, for errors see `faulty_disk`.
"""

import errno
import threading
from collections.abc import Sequence

from typing_extensions import Buffer

from penstock.core.clock import SystemClock
from penstock.storage.disk.filesystem import File, Lock, Space, directory_in_use


class Usage:
    """Bytes in all files of a disk; counted at each write, because a walk would race."""

    __slots__ = ("_lock", "used_bytes")

    def __init__(self) -> None:
        self.used_bytes = 0
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        """Count `size` more bytes, or less."""
        with self._lock:
            self.used_bytes += size


class Inode:
    """A file's bytes, or a directory's names."""

    __slots__ = ("_counted_bytes", "_usage", "data", "links", "modified_ms", "names", "number")

    def __init__(self, number: int, *, is_directory: bool, usage: Usage | None = None) -> None:
        self.number = number
        self.data = bytearray()
        self._usage = usage
        self._counted_bytes = 0
        self.modified_ms = SystemClock().now_ms()
        self.names: dict[str, Inode] | None = {} if is_directory else None
        self.links = 1
        """Names of the file."""

    def entries(self) -> "dict[str, Inode]":
        """Names in a directory; `NotADirectoryError` for a file."""
        if self.names is None:
            raise NotADirectoryError(errno.ENOTDIR, "not a directory")
        return self.names

    def write(self, data: Buffer, position: int) -> None:
        """Write bytes; a gap before them becomes zeros."""
        view = memoryview(data).cast("B")
        if position > len(self.data):
            self.data.extend(bytes(position - len(self.data)))
        self.data[position : position + len(view)] = view
        self.modified_ms = SystemClock().now_ms()
        self._count()

    def truncate(self, size: int) -> None:
        """Cut the bytes, or extend them with zeros."""
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))
        self.modified_ms = SystemClock().now_ms()
        self._count()

    def _count(self) -> None:
        """Count how the size changed, while the file has a name."""
        if self._usage is not None:
            self._usage.add(len(self.data) - self._counted_bytes)
            self._counted_bytes = len(self.data)

    def join(self, usage: Usage) -> None:
        """Count this file, or all in this directory, from now on."""
        if self._usage is usage:
            return  # a second name of the same file
        self._usage, self._counted_bytes = usage, 0
        self._count()
        for child in (self.names or {}).values():
            child.join(usage)

    def leave(self) -> None:
        """A name of the file is gone; without any, later writes to it do not count."""
        self.links -= 1
        if self.links:
            return
        usage, self._usage = self._usage, None
        if usage is not None:
            usage.add(-self._counted_bytes)


class MemoryFile:
    """An open file over an inode."""

    def __init__(self, inode: Inode) -> None:
        self.inode = inode

    def write_at(self, data: Buffer, position: int) -> int:
        """Write everything at `position`."""
        self.inode.write(data, position)
        return len(memoryview(data).cast("B"))

    def read_into(self, buffer: Buffer, position: int) -> int:
        """Fill `buffer` from `position`."""
        view = memoryview(buffer).cast("B")
        part = self.inode.data[position : position + len(view)]
        view[: len(part)] = part
        return len(part)

    def read_into_nowait(self, buffer: Buffer, position: int) -> int:
        """As `read_into`: memory never waits."""
        return self.read_into(buffer, position)

    def view_nowait(self, position: int, size: int) -> memoryview:
        """A copy: the file's own bytes move when it grows."""
        part = bytes(self.inode.data[position : position + size])
        if len(part) != size:
            raise BlockingIOError(errno.EAGAIN, "beyond the end")
        return memoryview(part)

    def sync(self) -> None:
        """Do nothing: memory has no disk."""

    def truncate(self, size: int) -> None:
        """Cut or extend the file."""
        self.inode.truncate(size)

    def size(self) -> int:
        """Bytes in the file."""
        return len(self.inode.data)

    def close(self) -> None:
        """Do nothing: there is no descriptor."""


class MemoryLock:
    """A lock that lives as long as its disk."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        """Release the lock."""
        self._held.discard(self._path)


class MemoryDisk:
    """A tree of inodes. At first it has only the root."""

    def __init__(self, root: Inode | None = None, *, total_bytes: int = 1 << 40) -> None:
        self.root = root or Inode(0, is_directory=True)
        self._usage = Usage()
        self.root.join(self._usage)
        self._numbers = 0
        self._locks: set[str] = set()
        self._total_bytes = total_bytes

    # --- Resolving names ---

    def find(self, path: str) -> Inode:
        """The inode of a path; `FileNotFoundError` when there is none."""
        inode = self.root
        for part in filter(None, path.split("/")):
            following = inode.entries().get(part)
            if following is None:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            inode = following
        return inode

    def parent_of(self, path: str) -> tuple[Inode, str]:
        """The directory that holds a path, and the last part of its name."""
        directory, _, name = path.rstrip("/").rpartition("/")
        parent = self.find(directory)
        parent.entries()
        return parent, name

    def new_inode(self, *, is_directory: bool) -> Inode:
        """An inode with a number of its own."""
        self._numbers += 1
        return Inode(self._numbers, is_directory=is_directory, usage=self._usage)

    # --- FileSystem ---

    def open_file(self, path: str) -> File:
        """Open an existing file."""
        inode = self.find(path)
        if inode.names is not None:
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return MemoryFile(inode)

    def create_file(self, path: str) -> File:
        """Open a file, empty."""
        parent, name = self.parent_of(path)
        inode = parent.entries().get(name)
        if inode is None:
            inode = parent.entries()[name] = self.new_inode(is_directory=False)
        inode.truncate(0)
        return MemoryFile(inode)

    def read_file(self, path: str) -> bytes:
        """All bytes of a file."""
        return bytes(self.find(path).data)

    def file_size(self, path: str) -> int:
        """Bytes in the file of this name."""
        return len(self.find(path).data)

    def modified_ms(self, path: str) -> int:
        """When the file of this name was last written."""
        return self.find(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time that `modified_ms` returns."""
        self.find(path).modified_ms = modified_ms

    def rename(self, source: str, target: str) -> None:
        """Rename."""
        inode = self.find(source)
        old, old_name = self.parent_of(source)
        new, new_name = self.parent_of(target)
        del old.entries()[old_name]
        replaced = new.entries().get(new_name)
        new.entries()[new_name] = inode
        if replaced is not None and replaced is not inode:
            replaced.leave()

    def remove_file(self, path: str) -> None:
        """Remove the name."""
        inode = self.find(path)
        parent, name = self.parent_of(path)
        del parent.entries()[name]
        inode.leave()

    def link_file(self, source: str, target: str) -> None:
        """Add a second name for a file."""
        inode = self.find(source)
        if inode.names is not None:
            raise PermissionError(errno.EPERM, "is a directory", source)
        parent, name = self.parent_of(target)
        if name in parent.entries():
            raise FileExistsError(errno.EEXIST, "exists", target)
        parent.entries()[name] = inode
        inode.links += 1

    def link_count(self, path: str) -> int:
        """Names of the file of this name."""
        return self.find(path).links

    def file_number(self, path: str) -> int:
        """The number of the file of this name."""
        return id(self.find(path))

    def make_directory(self, path: str) -> None:
        """Create a directory."""
        parent, name = self.parent_of(path)
        if name in parent.entries():
            raise FileExistsError(errno.EEXIST, "exists", path)
        parent.entries()[name] = self.new_inode(is_directory=True)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        if self.find(path).entries():
            raise OSError(errno.ENOTEMPTY, "not empty", path)
        parent, name = self.parent_of(path)
        del parent.entries()[name]

    def list_directory(self, path: str) -> Sequence[str]:
        """Names in the directory."""
        return list(self.find(path).entries())

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory of this name."""
        try:
            return self.find(path).names is not None
        except (FileNotFoundError, NotADirectoryError):
            return False

    def sync_directory(self, path: str) -> None:
        """Check that the path is a directory."""
        self.find(path).entries()

    def space(self, path: str) -> Space:
        """The capacity given, less the size of all files."""
        self.find(path)
        return Space(self._total_bytes - self._usage.used_bytes, self._total_bytes)

    def lock(self, path: str) -> Lock:
        """Take a lock, or raise at once."""
        if path in self._locks:
            raise directory_in_use(path)
        self.create_file(path)
        self._locks.add(path)
        return MemoryLock(self._locks, path)
