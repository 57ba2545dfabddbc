"""`LoopDisk`: an ext4 file system in a file, whose power can be cut.

The cut is the kernel's own: `FS_IOC_SHUTDOWN` without flushing the journal. From then on every
write and sync fails with EIO; after unmounting and mounting, synced data exists and unsynced data
is lost, names included. It does not tear or reorder single sectors: the enumeration of crash points
(`workload`) does that.

It needs root, loop devices and mkfs.ext4. Where they are missing it is an error that says so, never
a skip: a proof that did not run proves nothing.
"""

import fcntl
import os
import struct
from pathlib import Path

from tests.oracle.cache import OracleError, run, tool

IMAGE_BYTES = 512 << 20
"""Sparse: only what is written takes room."""
_FS_IOC_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = struct.pack("=I", 2)


class LoopDisk:
    """One mounted image; `close` unmounts it."""

    def __init__(self, folder: Path, image_bytes: int = IMAGE_BYTES) -> None:
        if os.geteuid() != 0:
            raise OracleError("mounting an ext4 image needs root: run this test as root")
        self._mount = tool("mount", "install util-linux")
        self._unmount = tool("umount", "install util-linux")
        self._image = folder / "disk.ext4"
        self.path = folder / "disk"
        self._is_mounted = False
        folder.mkdir(parents=True, exist_ok=True)
        self.path.mkdir()
        with self._image.open("wb") as image:
            image.truncate(image_bytes)
        run([tool("mkfs.ext4", "install e2fsprogs"), "-q", "-F", self._image])
        self.mount()

    def mount(self) -> None:
        """Mount the image; the journal is replayed, as after a real cut."""
        run([self._mount, "-o", "loop", self._image, self.path])
        self._is_mounted = True

    def cut(self) -> None:
        """No power from now on: what is not synced is lost, and every write fails."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _FS_IOC_SHUTDOWN, _NO_LOG_FLUSH)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Unmount; nobody may use it any more."""
        if self._is_mounted:
            run([self._unmount, self.path])
            self._is_mounted = False

    def restore(self) -> None:
        """Power again: unmount and mount. Nobody may use the disk meanwhile."""
        self.close()
        self.mount()
