"""`ProduceGate`: accepts or rejects produce, by storage's last measurement of the disk."""

from typing import Final

from penstock.core.errors import DiskFullError
from penstock.storage.disk.disk_guard import DiskGuard, DiskState

_MEBIBYTE: Final = 1_048_576


class ProduceGate:
    """Called for each produce request; costs one read of a variable."""

    def __init__(self, guard: DiskGuard) -> None:
        self._guard = guard

    def __call__(self) -> DiskFullError | None:
        """Return None if produce is accepted, else the error."""
        guard = self._guard
        if guard.state is not DiskState.FULL:
            return None
        # The message has no path: a client must not learn the machine's directories.
        return DiskFullError(
            f"the broker's disk has {guard.space.free_bytes // _MEBIBYTE} MiB free: produce is "
            f"refused until {guard.marks.resume_at_bytes // _MEBIBYTE} MiB are free. Try again "
            "later; deleting topics or records makes room"
        )
