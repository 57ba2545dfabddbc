"""`ProduceGate`: whether new data is taken, from what storage last saw of the disk."""

from penstock.core.errors import DiskFullError
from penstock.storage.disk_guard import DiskState
from penstock.storage.service import StorageService


class ProduceGate:
    """Answers for each produce request; costs one look at a variable."""

    def __init__(self, storage: StorageService, path: str) -> None:
        self._storage = storage
        self._path = path

    def __call__(self) -> DiskFullError | None:
        """None when produce is welcome, else the reason why not."""
        if self._storage.disk_guard(self._path).state is not DiskState.FULL:
            return None
        return DiskFullError(f"the disk of {self._path} is too full: produce waits, fetch goes on")
