"""`SimulatedDisk`: the disk of one simulated broker, with faults and crashes drawn from a seed.

Bytes are durable after a sync of their file, names after a sync of their directory
(`penstock.testing.volatile_disk`). A crash of the process keeps everything that was written. A
power cut keeps, for each file on its own: the synced bytes only, or a part of the later ones, whose
last sector may be torn; and for each directory the synced names or the present ones.

Faults: a sync fails (EIO; the storage engine takes the directory offline), the disk is full, a sync
takes long. A sync takes virtual time: on the event loop it blocks the broker, on a thread it delays
the report. It does NOT rot bits: damage below a recovery point has tests of its own.
"""

import errno
import random
from contextlib import suppress
from typing import Final

from typing_extensions import Buffer

from penstock.storage.disk.filesystem import File, Space
from penstock.storage.disk.memory_disk import Inode
from penstock.testing.volatile_disk import VolatileDisk, VolatileFile
from tests.cluster_sim.loop import SimulatedLoop

SYNC_SECONDS: Final = (0.0001, 0.0012)
SLOW_SYNC_SECONDS: Final = (0.02, 0.6)
SECTOR_BYTES: Final = 512


class SimulatedFile(VolatileFile):
    """A file of a simulated disk."""

    def __init__(self, disk: "SimulatedDisk", inode: Inode) -> None:
        super().__init__(disk, inode)
        self._simulated = disk

    def write_at(self, data: Buffer, position: int) -> int:
        """Write, unless the disk is full."""
        self._simulated.before_write(len(memoryview(data).cast("B")))
        return super().write_at(data, position)

    def sync(self) -> None:
        """Sync, after the time that the disk takes, or fail."""
        self._simulated.before_sync()
        super().sync()


class SimulatedDisk(VolatileDisk):
    """A disk with faults."""

    def __init__(
        self, loop: SimulatedLoop, draws: random.Random, root: Inode | None = None
    ) -> None:
        super().__init__(root)
        self._loop = loop
        self._random = draws
        self.is_slow = False
        self.is_full = False
        self.is_failing = False
        """Whether syncs fail."""
        self.is_detached = False
        """Whether it belongs to a dead process, whose changes are dropped."""

    def before_write(self, _size: int) -> None:
        """Raise if the disk is full."""
        if self.is_full:
            raise OSError(errno.ENOSPC, "no space left on device (simulated)")

    def before_sync(self) -> None:
        """Take the time of a sync, and raise if syncs fail."""
        bounds = SLOW_SYNC_SECONDS if self.is_slow else SYNC_SECONDS
        self._loop.block(self._random.uniform(*bounds))
        if self.is_failing:
            raise OSError(errno.EIO, "input/output error (simulated)")

    # --- FileSystem ---

    def open_file(self, path: str) -> File:
        """Open an existing file."""
        super().open_file(path)
        return SimulatedFile(self, self.find(path))

    def create_file(self, path: str) -> File:
        """Open an empty file; truncate an existing one."""
        if self.is_full:
            raise OSError(errno.ENOSPC, "no space left on device (simulated)")
        super().create_file(path)
        return SimulatedFile(self, self.find(path))

    def sync_directory(self, path: str) -> None:
        """Sync names, after the time that the disk takes."""
        self.before_sync()
        super().sync_directory(path)

    def space(self, path: str) -> Space:
        """Return the room, which a full disk does not report at once."""
        return super().space(path)

    def find_directory(self, name: str) -> str | None:
        """Return the path of the directory with this name; None if there is none."""
        waiting = [("", self.root)]
        while waiting:
            path, inode = waiting.pop()
            for child, below in (inode.names or {}).items():
                if below.names is not None:
                    if child == name:
                        return f"{path}/{child}"
                    waiting.append((f"{path}/{child}", below))
        return None

    def remove_if_present(self, path: str) -> None:
        """Remove a file, also from the names that survive a power cut."""
        directory, _, name = path.rpartition("/")
        with suppress(FileNotFoundError):
            self.find(directory).entries().pop(name, None)
            self._synced_names.get(self.find(directory), {}).pop(name, None)

    # --- Crashes ---

    def after_kill(self) -> "SimulatedDisk":
        """Return the disk after a crash of the process: everything written is there."""
        return SimulatedDisk(self._loop, self._random, self._copy(self.root, has_power=True))

    def after_power_loss(self) -> "SimulatedDisk":
        """Return the disk after a power cut: the synced state, and a part of the rest."""
        return SimulatedDisk(self._loop, self._random, self._copy(self.root, has_power=False))

    def _copy(self, inode: Inode, *, has_power: bool) -> Inode:
        copy = Inode(inode.number, is_directory=inode.names is not None)
        copy.modified_ms = inode.modified_ms
        if inode.names is None:
            copy.data = bytearray(inode.data) if has_power else self._survived(inode)
            return copy
        names = inode.names
        if not has_power and self._random.random() < 0.5:
            names = self._synced_names.get(inode, inode.names)
        copy.entries().update(
            {name: self._copy(child, has_power=has_power) for name, child in names.items()}
        )
        return copy

    def _survived(self, inode: Inode) -> bytearray:
        undo = self._undo.get(inode)
        if undo is None:
            return bytearray(inode.data)
        kind = self._random.random()
        synced = undo.undone(inode.data)
        if kind < 0.5:
            return synced
        if undo.replaced or len(inode.data) < undo.size:
            # Replaced bytes: the old state or the new one.
            return synced if kind < 0.75 else bytearray(inode.data)
        kept = bytearray(inode.data[: self._random.randint(undo.size, len(inode.data))])
        if kind > 0.8 and len(kept) > undo.size:
            torn = max(undo.size, len(kept) - self._random.randint(1, SECTOR_BYTES))
            kept[torn:] = bytes(len(kept) - torn)
        return kept
