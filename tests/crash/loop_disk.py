"""`LoopDisk`: an ext4 file system in a file, whose power can be cut.

The cut is the kernel's own: `FS_IOC_SHUTDOWN` without flushing the journal. From then on every
write and sync fails with EIO; after unmounting and mounting, synced data exists and unsynced data
is lost, names included. It does not tear or reorder single sectors: the enumeration of crash points
(`workload`) does that.

A sync that overlaps the cut may return success although its data is lost (`overlapping_syncs`
measures it: the aborted journal has no transaction to wait for). No power cut does that: a
processor without power returns nothing. So `stop_processor` stops each process that uses the disk
before `cut`, and the process is killed, never continued.

It needs root, loop devices and mkfs.ext4. Where they are missing it is an error that says so, never
a skip: a proof that did not run proves nothing.
"""

import fcntl
import os
import signal
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.oracle.cache import OracleError, run, tool

IMAGE_BYTES = 512 << 20
"""Sparse: only what is written takes room."""
_FS_IOC_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = struct.pack("=I", 2)
_STOPPED: Final = frozenset("TtDZX")
"""States of threads that run no instruction of theirs; one in D stops when its system call ends."""
_STOP_SECONDS_MAX: Final = 10.0


def stop_processor(process_id: int) -> None:
    """Stop all threads of a child: none of them sees the result of a system call from now on."""
    os.kill(process_id, signal.SIGSTOP)
    deadline = time.monotonic() + _STOP_SECONDS_MAX
    while not _STOPPED.issuperset(_thread_states(process_id)):
        if time.monotonic() > deadline:
            raise OracleError(f"process {process_id} did not stop in {_STOP_SECONDS_MAX:.0f} s")


def _thread_states(process_id: int) -> Iterator[str]:
    for thread in Path(f"/proc/{process_id}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            # The state follows the name, which may have spaces and parentheses.
            yield (thread / "stat").read_text().rpartition(")")[2].split()[0]


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
        """Cut the power: unsynced data is lost, and every later write fails.

        For a power cut, `stop_processor` comes first.
        """
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
