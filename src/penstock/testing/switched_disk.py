"""`SwitchedDisk`: a `FileSystem` around another one, with two switches: full, and cut off.

Full: every write fails as on a full disk; reads, deletions and renames work. The reported free
space does not change, so that writing resumes with the switch and not a second later.

Cut off: no change reaches the disk any more, and writers get no error. It is for a broker that is
dead to its clients and ends its threads: the data written before the cut stays unchanged, as after
kill -9.
"""

import errno
from collections.abc import Sequence

from typing_extensions import Buffer

from penstock.storage.disk.filesystem import File, FileSystem, Lock, Space
from penstock.testing.memory_disk import Inode, MemoryFile


class SwitchedFile:
    """A file behind the switches of its disk."""

    __slots__ = ("_disk", "_file")

    def __init__(self, disk: "SwitchedDisk", file: File) -> None:
        self._disk = disk
        self._file = file

    def write_at(self, data: Buffer, position: int) -> int:
        """Write, unless the disk is full or cut off."""
        if self._disk.is_cut_off:
            return len(memoryview(data).cast("B"))
        if self._disk.is_full:
            raise OSError(errno.ENOSPC, "no space left on device (asked for by the test)")
        return self._file.write_at(data, position)

    def read_into(self, buffer: Buffer, position: int) -> int:
        """Fill `buffer` starting at `position`."""
        return self._file.read_into(buffer, position)

    def read_into_nowait(self, buffer: Buffer, position: int) -> int:
        """Read into `buffer` from memory only."""
        return self._file.read_into_nowait(buffer, position)

    def view_nowait(self, position: int, size: int) -> memoryview:
        """Return bytes from memory."""
        return self._file.view_nowait(position, size)

    def sync(self) -> None:
        """Sync, unless the disk is cut off."""
        if not self._disk.is_cut_off:
            self._file.sync()

    def truncate(self, size: int) -> None:
        """Truncate, unless the disk is cut off."""
        if not self._disk.is_cut_off:
            self._file.truncate(size)

    def size(self) -> int:
        """Return the number of bytes in the file."""
        return self._file.size()

    def close(self) -> None:
        """Close the descriptor."""
        self._file.close()


class SwitchedDisk:
    """A disk with two switches."""

    def __init__(self, filesystem: FileSystem) -> None:
        self.filesystem = filesystem
        self.is_full = False
        """Whether writes fail because the disk is full."""
        self.is_cut_off = False
        """Whether changes are dropped."""

    def open_file(self, path: str) -> File:
        """Open an existing file."""
        return SwitchedFile(self, self.filesystem.open_file(path))

    def create_file(self, path: str) -> File:
        """Open an empty file; a temporary one without a name when the disk is cut off."""
        if self.is_cut_off:
            return MemoryFile(Inode(0, is_directory=False))
        return SwitchedFile(self, self.filesystem.create_file(path))

    def read_file(self, path: str) -> bytes:
        """Return all bytes of a file."""
        return self.filesystem.read_file(path)

    def file_size(self, path: str) -> int:
        """Return the number of bytes in the file of this name."""
        return self.filesystem.file_size(path)

    def modified_ms(self, path: str) -> int:
        """Return the last write time of the file of this name."""
        return self.filesystem.modified_ms(path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of the last write, unless the disk is cut off."""
        if not self.is_cut_off:
            self.filesystem.set_modified_ms(path, modified_ms)

    def rename(self, source: str, target: str) -> None:
        """Rename, unless the disk is cut off."""
        if not self.is_cut_off:
            self.filesystem.rename(source, target)

    def remove_file(self, path: str) -> None:
        """Remove the name, unless the disk is cut off."""
        if not self.is_cut_off:
            self.filesystem.remove_file(path)

    def link_file(self, source: str, target: str) -> None:
        """Add a second name for a file, unless the disk is full or cut off."""
        if self.is_cut_off:
            return
        if self.is_full:
            raise OSError(errno.ENOSPC, "no space left on device (asked for by the test)")
        self.filesystem.link_file(source, target)

    def link_count(self, path: str) -> int:
        """Return the number of names of the file."""
        return self.filesystem.link_count(path)

    def file_number(self, path: str) -> int:
        """Return the number of the file."""
        return self.filesystem.file_number(path)

    def make_directory(self, path: str) -> None:
        """Create a directory, unless the disk is cut off."""
        if not self.is_cut_off:
            self.filesystem.make_directory(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory, unless the disk is cut off."""
        if not self.is_cut_off:
            self.filesystem.remove_directory(path)

    def list_directory(self, path: str) -> Sequence[str]:
        """Return the names in the directory."""
        return self.filesystem.list_directory(path)

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory of this name."""
        return self.filesystem.is_directory(path)

    def sync_directory(self, path: str) -> None:
        """Sync names, unless the disk is cut off."""
        if not self.is_cut_off:
            self.filesystem.sync_directory(path)

    def space(self, path: str) -> Space:
        """Return the free space of the disk, independent of the switches."""
        return self.filesystem.space(path)

    def lock(self, path: str) -> Lock:
        """Acquire the lock file."""
        return self.filesystem.lock(path)
