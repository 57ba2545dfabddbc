"""Room behind the last batch of an active segment: zeros that later appends overwrite.

A sync of a file that grew waits for the data, then for the new size in the inode, then for the
disk's cache; a sync of a file that did not grow has no inode to wait for. So before a small append
passes the end of its file, zeros are written up to the next step, and the appends that follow
change no size. On ext4 such a sync took two thirds of the time and of the processor.

Guarantees: bytes between `Segment.size` and the end of its file are zeros, and no reader sees them.
They are cut when the segment is sealed and at a clean stop. That cut is synced for sealed segments
only, so a start recognizes room. A disk without space for the zeros is not an error: the append
then grows the file itself.
"""

from typing import Final

from penstock.storage.disk.filesystem import RETRIABLE_ERRNOS
from penstock.storage.log.segment import Segment

ROOM_STEP_BYTES_MIN: Final = 4_096
"""Room for the first appends of a segment: a block of the file system, which one byte would take
up too. Larger appends get no room: they would overwrite all of it."""
ROOM_STEP_BYTES_MAX: Final = 65_536
"""Room once a segment has as much data. Written in one sync, so that hundreds after it are short;
an active segment uses at most this much of the disk without data."""

_ZEROS: Final = memoryview(bytes(ROOM_STEP_BYTES_MAX + ROOM_STEP_BYTES_MIN))


def room_end(end: int) -> int:
    """The size of a file that has to hold `end` bytes.

    A whole block while the segment is small, which costs no space of the disk; more when it is not.
    """
    step = ROOM_STEP_BYTES_MIN if end < ROOM_STEP_BYTES_MAX else ROOM_STEP_BYTES_MAX
    return (end + step - 1) // step * step


def make_room(segment: Segment, size: int, size_max: int) -> None:
    """Write zeros for an append of `size` bytes and some more, unless it is above `size_max`."""
    start = segment.size
    if size > size_max or start + size <= segment.room_end:
        return
    zeros = _ZEROS[: room_end(start + size) - start]
    try:
        segment.room_end = start + segment.file().write_at(zeros, start)
    except OSError as error:
        if error.errno not in RETRIABLE_ERRNOS:
            raise


def find_room(segment: Segment, position: int) -> bool:
    """Whether an opened segment has only room after `position`; then sets its `size` to it.

    Room is zeros, ends with a block and is no longer than one step; other zeros are not ours.
    """
    size = segment.size - position
    if segment.size % ROOM_STEP_BYTES_MIN or not 0 < size <= len(_ZEROS):
        return False
    if segment.read(position, size, nowait=False) != _ZEROS[:size]:
        return False
    segment.room_end, segment.size = segment.size, position
    return True
