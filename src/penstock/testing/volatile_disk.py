"""`VolatileDisk`: a memory disk that loses all unsynced changes at a power cut.

Only a sync of their file keeps bytes, and only a sync of their directory keeps names: the harshest
disk that POSIX allows. `after_power_cut` returns a new disk with the durable state of that moment.
The old disk continues unchanged, so that a broker that is already dead to its clients can end its
threads.

Only undo information is kept: for an append-only log, one number. It shows one outcome of a crash,
the worst. `recording_disk` has all the others, torn writes among them.
"""

import threading

from typing_extensions import Buffer

from penstock.storage.disk.filesystem import File
from penstock.testing.memory_disk import Inode, MemoryDisk, MemoryFile


class _Undo:
    """Restores a file to its last sync: its size, and the bytes that were replaced."""

    __slots__ = ("replaced", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.replaced: list[tuple[int, bytes]] = []

    def save(self, data: bytearray, begin: int, end: int) -> None:
        """Store synced bytes that are about to change."""
        old = bytes(data[begin : min(end, self.size)])
        if old:
            self.replaced.append((begin, old))

    def undone(self, data: bytearray) -> bytearray:
        """Return the bytes of the last sync."""
        before = data[: self.size]
        for position, old in reversed(self.replaced):
            before[position : position + len(old)] = old
        return before


class VolatileFile(MemoryFile):
    """A file whose changes are undone by a power cut until they are synced."""

    def __init__(self, disk: "VolatileDisk", inode: Inode) -> None:
        super().__init__(inode)
        self._disk = disk

    def write_at(self, data: Buffer, position: int) -> int:
        """Write everything at `position`."""
        size = len(memoryview(data).cast("B"))
        with self._disk.change:
            self._disk.undo_of(self.inode).save(self.inode.data, position, position + size)
            return super().write_at(data, position)

    def truncate(self, size: int) -> None:
        """Cut or extend the file."""
        with self._disk.change:
            self._disk.undo_of(self.inode).save(self.inode.data, size, len(self.inode.data))
            super().truncate(size)

    def sync(self) -> None:
        """Keep all bytes written so far at a later power cut, if the file's name is durable."""
        with self._disk.change:
            self._disk.keep(self.inode)


class VolatileDisk(MemoryDisk):
    """A memory disk that remembers its durable state."""

    def __init__(self, root: Inode | None = None) -> None:
        super().__init__(root)
        self.change = threading.RLock()
        """Held during changes: a sync on one thread may run beside an append on another."""
        self._undo: dict[Inode, _Undo] = {}
        self._synced_names: dict[Inode, dict[str, Inode]] = {}
        """Directories whose names changed since their last sync, with the synced names."""

    def undo_of(self, inode: Inode) -> _Undo:
        """Return the undo information for later changes of a file."""
        undo = self._undo.get(inode)
        if undo is None:
            undo = self._undo[inode] = _Undo(len(inode.data))
        return undo

    def keep(self, inode: Inode) -> None:
        """Discard the undo information of a synced file."""
        self._undo.pop(inode, None)

    def after_power_cut(self) -> "VolatileDisk":
        """Return a disk with the present durable state."""
        with self.change:
            return VolatileDisk(self._durable(self.root, {}))

    def _durable(self, inode: Inode, copies: dict[Inode, Inode]) -> Inode:
        if inode in copies:
            copies[inode].links += 1
            return copies[inode]
        copy = copies[inode] = Inode(inode.number, is_directory=inode.names is not None)
        if inode.names is None:
            undo = self._undo.get(inode)
            copy.data = bytearray(inode.data) if undo is None else undo.undone(inode.data)
            copy.modified_ms = inode.modified_ms
            return copy
        names = self._synced_names.get(inode, inode.names)
        copy.entries().update({name: self._durable(child, copies) for name, child in names.items()})
        return copy

    def _note_names(self, directory: Inode) -> None:
        """Store the synced names of a directory before they change."""
        if directory not in self._synced_names:
            self._synced_names[directory] = dict(directory.entries())

    # --- FileSystem ---

    def open_file(self, path: str) -> File:
        """Open an existing file."""
        super().open_file(path)
        return VolatileFile(self, self.find(path))

    def create_file(self, path: str) -> File:
        """Open an empty file; truncate an existing one."""
        with self.change:
            parent, name = self.parent_of(path)
            existing = parent.entries().get(name)
            if existing is None:
                self._note_names(parent)
            else:
                self.undo_of(existing).save(existing.data, 0, len(existing.data))
            super().create_file(path)
            inode = self.find(path)
            self.undo_of(inode)
            return VolatileFile(self, inode)

    def rename(self, source: str, target: str) -> None:
        """Rename."""
        with self.change:
            self.find(source)
            self._note_names(self.parent_of(source)[0])
            self._note_names(self.parent_of(target)[0])
            super().rename(source, target)

    def remove_file(self, path: str) -> None:
        """Remove the name."""
        with self.change:
            inode = self.find(path)
            parent, _ = self.parent_of(path)
            self._note_names(parent)
            super().remove_file(path)
            if not inode.links and inode not in self._synced_names[parent].values():
                # No power cut restores the file: its name was never durable.
                self._undo.pop(inode, None)

    def link_file(self, source: str, target: str) -> None:
        """Add a second name for a file."""
        with self.change:
            self._note_names(self.parent_of(target)[0])
            super().link_file(source, target)

    def make_directory(self, path: str) -> None:
        """Create a directory."""
        with self.change:
            self._note_names(self.parent_of(path)[0])
            super().make_directory(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        with self.change:
            self.find(path)
            self._note_names(self.parent_of(path)[0])
            super().remove_directory(path)

    def sync_directory(self, path: str) -> None:
        """Keep the present names at a later power cut; discard files without a name."""
        with self.change:
            super().sync_directory(path)
            directory = self.find(path)
            before = self._synced_names.pop(directory, {})
            named = set(directory.entries().values())
            for inode in before.values():
                if inode not in named and not (inode.names is None and inode.links):
                    self._undo.pop(inode, None)
                    self._synced_names.pop(inode, None)
