"""`DiskGuard`: free-space watermarks that stop and resume produce. Pure.

Below the hard mark new data is refused with a retriable error, while fetches, deletions and
retention go on: a full disk stops produce, nothing else, and space that is freed resumes it. Below
twice the hard mark the disk is low: retention should run early, and operators should be warned.
Produce resumes only with a little more space than it stopped at, or the guard would flap.

The hard mark is a number of bytes or a share of the disk, whichever is more. The number of bytes is
cut to a tenth of a small disk: a broker on a disk of 1 GiB must not refuse everything.

`disk_watch` samples the disk; appends do not.
"""

from enum import Enum
from typing import Final, NamedTuple

from penstock.storage.disk.filesystem import Space

FREE_BYTES_MIN_DEFAULT: Final = 134_217_728
"""128 MiB: a second of produce at full speed, and room for indexes and checkpoints."""
_SMALL_DISK_SHARE_MAX: Final = 0.10
_SOFT_FACTOR: Final = 2.0
_RESUME_FACTOR: Final = 1.2


class DiskState(Enum):
    """How much free space a disk has."""

    OPEN = "room enough"
    LOW = "retention should run"
    FULL = "new data is refused"


class DiskMarks(NamedTuple):
    """Free bytes at which the state changes."""

    refuse_below_bytes: int
    resume_at_bytes: int
    low_below_bytes: int


class DiskGuard:
    """The state of one disk, with hysteresis."""

    __slots__ = ("_free_bytes_min", "_free_share_min", "space", "state")

    def __init__(
        self, *, free_bytes_min: int = FREE_BYTES_MIN_DEFAULT, free_share_min: float = 0.0
    ) -> None:
        self._free_bytes_min = free_bytes_min
        self._free_share_min = free_share_min
        self.state = DiskState.OPEN
        self.space = Space(0, 0)
        """The last measurement; all zero before the first."""

    def change_marks(self, *, free_bytes_min: int, free_share_min: float) -> None:
        """Use other marks starting with the next sample; the state is unchanged until then."""
        self._free_bytes_min = free_bytes_min
        self._free_share_min = free_share_min

    @property
    def marks(self) -> DiskMarks:
        """The marks on a disk of the size that was last measured."""
        total_bytes = self.space.total_bytes
        hard_bytes = max(
            min(self._free_bytes_min, _SMALL_DISK_SHARE_MAX * total_bytes),
            self._free_share_min * total_bytes,
        )
        return DiskMarks(
            round(hard_bytes), round(_RESUME_FACTOR * hard_bytes), round(_SOFT_FACTOR * hard_bytes)
        )

    def sample(self, space: Space) -> DiskState:
        """Apply a measurement; return the new state."""
        self.space = space
        marks = self.marks
        is_full = self.state is DiskState.FULL
        if space.free_bytes < (marks.resume_at_bytes if is_full else marks.refuse_below_bytes):
            self.state = DiskState.FULL
        elif space.free_bytes < marks.low_below_bytes:
            self.state = DiskState.LOW
        else:
            self.state = DiskState.OPEN
        return self.state
