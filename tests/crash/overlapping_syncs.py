"""Counts syncs that returned success and lost their data, because the disk was cut meanwhile.

    python -m tests.crash.overlapping_syncs ROUNDS

Three threads append to three files of an ext4 and sync each append, as a broker does with three
partitions, until the disk is cut. Once with the disk cut under running threads, and once with the
process stopped first (`loop_disk.stop_processor`). The first number is not 0 on the kernels that we
know: after `FS_IOC_SHUTDOWN` the journal is aborted, and a sync that waits for no transaction any
more returns 0. The second must be 0, or no test of this folder that cuts power proves anything.

It is no test of Penstock, and no part of it runs.
"""

import mmap
import os
import random
import struct
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.crash.loop_disk import LoopDisk, stop_processor

FILES: Final = 3
APPEND_BYTES_MAX: Final = 900
LOAD_SECONDS: Final = (0.02, 0.08)
_SYNCED: Final = struct.Struct("=q")
_BYTE: Final = b"x"


def _append(path: Path, synced: mmap.mmap, number: int) -> None:
    """Append and sync until the disk fails; the end of what was synced is in shared memory."""
    dice = random.Random(number)
    position = 0
    with suppress(OSError), path.open("xb", buffering=0) as file:
        while True:
            position += file.write(_BYTE * dice.randrange(1, APPEND_BYTES_MAX))
            os.fdatasync(file.fileno())
            _SYNCED.pack_into(synced, number * _SYNCED.size, position)


def _start(folder: Path, synced: mmap.mmap) -> int:
    """A process that appends; its id."""
    process_id = os.fork()
    if process_id:
        return process_id
    threads = [
        threading.Thread(target=_append, args=(folder / f"file-{number}", synced, number))
        for number in range(FILES)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(0)


def lost_files(disk: LoopDisk, number: int, *, is_stopped_first: bool) -> int:
    """One round: the files that lack bytes whose sync returned success."""
    folder = disk.path / f"{is_stopped_first}-{number}"
    folder.mkdir()
    os.sync()
    with mmap.mmap(-1, FILES * _SYNCED.size) as synced:
        process_id = _start(folder, synced)
        time.sleep(random.Random(number).uniform(*LOAD_SECONDS))
        if is_stopped_first:
            stop_processor(process_id)
        disk.cut()
        if is_stopped_first:
            os.kill(process_id, 9)
        os.waitpid(process_id, 0)
        disk.restore()
        ends = [_SYNCED.unpack_from(synced, at * _SYNCED.size)[0] for at in range(FILES)]
    return sum(_good_bytes(folder / f"file-{at}") < end for at, end in enumerate(ends))


def _good_bytes(path: Path) -> int:
    data = path.read_bytes() if path.exists() else b""
    return len(data) - len(data.lstrip(_BYTE))


def main(rounds: int) -> None:
    """Print both counts."""
    with tempfile.TemporaryDirectory() as folder:
        disk = LoopDisk(Path(folder))
        try:
            for is_stopped_first in (False, True):
                lost = sum(
                    lost_files(disk, number, is_stopped_first=is_stopped_first)
                    for number in range(rounds)
                )
                order = "stopped first" if is_stopped_first else "running"
                print(f"process {order}: {lost} of {rounds * FILES} files lost synced bytes")
        finally:
            disk.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
