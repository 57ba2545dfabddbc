"""`DiskGuard`: free-space watermarks: what is refused and what is still allowed. Pure.

Below the soft mark (10 % free) retention should run early. Below the hard mark (5 % free, but at
least 1 GiB, and no more than a tenth of a small disk) new data is refused with a retriable error,
while fetches, deletions and retention go on: a full disk stops produce, nothing else, and space
that is freed resumes it. Resuming needs a little more room than stopping did, or the guard would
flap.

`service` samples the disk; nobody asks it for each append.
"""

from enum import Enum
from typing import Final

from penstock.storage.filesystem import Space

_SOFT_SHARE: Final = 0.10
_HARD_SHARE: Final = 0.05
_HARD_BYTES_MIN: Final = 1_073_741_824
_HARD_SHARE_MAX: Final = 0.10
_RESUME_FACTOR: Final = 1.2


class DiskState(Enum):
    """How much room there is."""

    OPEN = "room enough"
    LOW = "retention should run"
    FULL = "new data is refused"


class DiskGuard:
    """The state of one disk, with hysteresis."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state = DiskState.OPEN

    def sample(self, space: Space) -> DiskState:
        """Take a measurement into account; the new state."""
        hard_bytes = max(_HARD_SHARE * space.total_bytes, float(_HARD_BYTES_MIN))
        hard_bytes = min(hard_bytes, _HARD_SHARE_MAX * space.total_bytes)
        if self.state is DiskState.FULL:
            hard_bytes *= _RESUME_FACTOR
        soft_bytes = max(_SOFT_SHARE * space.total_bytes, hard_bytes)
        if space.free_bytes < hard_bytes:
            self.state = DiskState.FULL
        elif space.free_bytes < soft_bytes:
            self.state = DiskState.LOW
        else:
            self.state = DiskState.OPEN
        return self.state
