"""`RecordingDisk`: records every change, and builds the disks that a power cut could leave.

The model is the weakest behaviour that POSIX allows. A write or truncation is durable after a sync
of that file. A name (created, renamed, removed) is durable after a sync of its directory; a sync of
the file has no effect on it. Changes that are not durable at the power cut may be lost or kept,
each independently, in any combination; the last one may be torn. `after(count, fate, seed)` returns
the disk after the first `count` changes:

- `Fate.LOST`: no unsynced change is kept;
- `Fate.SUBSET`: a random choice of unsynced changes is kept, and half of the kept writes are torn
  at a 512-byte sector;
- `Fate.TORN`: all changes are kept, but the last unsynced write only up to a random byte;
- `Fate.KEPT`: all changes are kept, as after kill -9.
"""

import random
from dataclasses import dataclass
from enum import Enum
from typing import Final

from typing_extensions import Buffer

from penstock.storage.disk.filesystem import File
from penstock.testing.memory_disk import Inode, MemoryDisk, MemoryFile

_SECTOR_BYTES: Final = 512


class Fate(Enum):
    """The outcome of unsynced changes."""

    LOST = "lost"
    SUBSET = "subset"
    TORN = "torn"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class Change:
    """One recorded change. `target` is the inode of a file, or of the directory for names."""

    kind: str
    """write, truncate, name, sync or sync_names."""
    target: int
    position: int = 0
    data: bytes = b""
    added: tuple[str, int, bool] | None = None
    """An added name: name, inode, whether it is a directory."""
    removed: str | None = None
    """A removed name; with `added`, a rename."""
    label: str = ""


class RecordingFile(MemoryFile):
    """A file that records its changes."""

    def __init__(self, disk: "RecordingDisk", inode: Inode, path: str) -> None:
        super().__init__(inode)
        self._disk = disk
        self._path = path

    def write_at(self, data: Buffer, position: int) -> int:
        """Write and record the change."""
        copy = bytes(memoryview(data).cast("B"))
        self._disk.record(Change("write", self.inode.number, position, copy, label=self._path))
        return super().write_at(copy, position)

    def truncate(self, size: int) -> None:
        """Truncate and record the change."""
        self._disk.record(Change("truncate", self.inode.number, size, label=self._path))
        super().truncate(size)

    def sync(self) -> None:
        """Record that everything written so far is durable."""
        self._disk.record(Change("sync", self.inode.number, label=self._path))


class RecordingDisk(MemoryDisk):
    """A memory disk that records its changes."""

    def __init__(self, base: MemoryDisk | None = None) -> None:
        super().__init__()
        self.changes: list[Change] = []
        self._base = _Image({}, {})
        if base is not None:
            self._adopt(base.root, self.root, {})
            self._base = _Image.of(self.root)

    def _adopt(self, source: Inode, target: Inode, copies: dict[Inode, Inode]) -> None:
        """Copy another disk's tree; all of it counts as durable."""
        for name, child in source.entries().items():
            copy = copies.get(child)
            if copy is not None:
                copy.links += 1
            else:
                copy = copies[child] = self.new_inode(is_directory=child.names is not None)
                copy.data = bytearray(child.data)
            target.entries()[name] = copy
            if child.names is not None:
                self._adopt(child, copy, copies)

    def record(self, change: Change) -> None:
        """Store a change."""
        self.changes.append(change)

    def open_file(self, path: str) -> File:
        """Open an existing file."""
        super().open_file(path)
        return RecordingFile(self, self.find(path), path)

    def create_file(self, path: str) -> File:
        """Open an empty file; truncate an existing one."""
        parent, name = self.parent_of(path)
        existing = parent.entries().get(name)
        super().create_file(path)
        inode = self.find(path)
        if existing is None:
            added = (name, inode.number, False)
            self.record(Change("name", parent.number, added=added, label=f"create {path}"))
        else:
            self.record(Change("truncate", inode.number, 0, label=path))
        return RecordingFile(self, inode, path)

    def rename(self, source: str, target: str) -> None:
        """Rename; both names change together."""
        inode = self.find(source)
        old, old_name = self.parent_of(source)
        new, new_name = self.parent_of(target)
        assert old is new, "renames stay in one directory"
        added = (new_name, inode.number, inode.names is not None)
        label = f"rename {source} {target}"
        self.record(Change("name", old.number, added=added, removed=old_name, label=label))
        super().rename(source, target)

    def remove_file(self, path: str) -> None:
        """Remove the name."""
        self.find(path)
        parent, name = self.parent_of(path)
        self.record(Change("name", parent.number, removed=name, label=f"remove {path}"))
        super().remove_file(path)

    def link_file(self, source: str, target: str) -> None:
        """Add a second name for a file."""
        super().link_file(source, target)
        parent, name = self.parent_of(target)
        added = (name, self.find(source).number, False)
        self.record(Change("name", parent.number, added=added, label=f"link {source} {target}"))

    def make_directory(self, path: str) -> None:
        """Create a directory."""
        super().make_directory(path)
        parent, name = self.parent_of(path)
        added = (name, self.find(path).number, True)
        self.record(Change("name", parent.number, added=added, label=f"mkdir {path}"))

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        super().remove_directory(path)
        parent, name = self.parent_of(path)
        self.record(Change("name", parent.number, removed=name, label=f"rmdir {path}"))

    def sync_directory(self, path: str) -> None:
        """Record that all names so far are durable."""
        super().sync_directory(path)
        self.record(Change("sync_names", self.find(path).number, label=path))

    def after(self, count: int, fate: Fate, seed: int = 0) -> MemoryDisk:
        """Return the disk that a power cut after `count` changes could leave."""
        image = self._base.copy()
        pending: list[Change] = []
        for change in self.changes[:count]:
            if change.kind in ("sync", "sync_names"):
                kinds = ("name",) if change.kind == "sync_names" else ("write", "truncate")
                for owed in pending:
                    if owed.target == change.target and owed.kind in kinds:
                        image.apply(owed)
                pending = [
                    owed
                    for owed in pending
                    if owed.target != change.target or owed.kind not in kinds
                ]
            else:
                pending.append(change)
        choice = random.Random(f"{seed}/{count}/{fate.value}")  # noqa: S311 - not for secrets
        for change in _survivors(pending, fate, choice):
            image.apply(change)
        return image.disk()


def _survivors(pending: list[Change], fate: Fate, choice: random.Random) -> list[Change]:
    """Return the unsynced changes that survive the power cut, some of them torn."""
    if fate is Fate.LOST:
        return []
    if fate is Fate.KEPT:
        return pending
    if fate is Fate.SUBSET:
        kept = [change for change in pending if choice.random() < 0.5]
        return [_torn_at_sector(change, choice) for change in kept]
    survivors = list(pending)
    for number in range(len(survivors) - 1, -1, -1):
        change = survivors[number]
        if change.kind == "write" and change.data:
            size = choice.randrange(len(change.data))
            survivors[number] = Change("write", change.target, change.position, change.data[:size])
            break
    return survivors


def _torn_at_sector(change: Change, choice: random.Random) -> Change:
    """Half of the writes lose one sector, which becomes zeros."""
    if change.kind != "write" or not change.data or choice.random() < 0.5:
        return change
    cut = choice.randrange(0, len(change.data))
    cut -= (change.position + cut) % _SECTOR_BYTES
    cut = max(cut, 0)
    end = min(cut + _SECTOR_BYTES, len(change.data))
    data = change.data[:cut] + bytes(end - cut) + change.data[end:]
    return Change("write", change.target, change.position, data)


class _Image:
    """The durable state: bytes of files and names in directories, by inode number."""

    def __init__(
        self, data: dict[int, bytearray], names: dict[int, dict[str, tuple[int, bool]]]
    ) -> None:
        self._data = data
        self._names = names

    @classmethod
    def of(cls, root: Inode) -> "_Image":
        """Return the image of a tree of inodes."""
        image = cls({}, {})
        stack = [root]
        while stack:
            inode = stack.pop()
            if inode.names is None:
                image._data[inode.number] = bytearray(inode.data)
                continue
            image._names[inode.number] = {
                name: (child.number, child.names is not None) for name, child in inode.names.items()
            }
            stack += inode.names.values()
        return image

    def copy(self) -> "_Image":
        """Return a copy of the image."""
        return _Image(
            {number: bytearray(data) for number, data in self._data.items()},
            {number: dict(names) for number, names in self._names.items()},
        )

    def apply(self, change: Change) -> None:
        """Apply one change to the durable state."""
        if change.kind == "name":
            names = self._names.setdefault(change.target, {})
            if change.removed is not None:
                names.pop(change.removed, None)
            if change.added is not None:
                name, number, is_directory = change.added
                names[name] = (number, is_directory)
            return
        inode = Inode(0, is_directory=False)
        inode.data = self._data.setdefault(change.target, bytearray())
        if change.kind == "write":
            inode.write(change.data, change.position)
        else:
            inode.truncate(change.position)

    def disk(self) -> MemoryDisk:
        """Return the tree that can be reached from the root."""
        disk = MemoryDisk()
        self._fill(disk, disk.root, 0, {})
        return disk

    def _fill(
        self, disk: MemoryDisk, directory: Inode, number: int, files: dict[int, Inode]
    ) -> None:
        for name, (child_number, is_directory) in self._names.get(number, {}).items():
            if child_number in files:
                child = files[child_number]
                child.links += 1
                directory.entries()[name] = child
                continue
            child = disk.new_inode(is_directory=is_directory)
            directory.entries()[name] = child
            if is_directory:
                self._fill(disk, child, child_number, files)
            else:
                files[child_number] = child
                child.data = bytearray(self._data.get(child_number, b""))
