"""`OpenFiles`: a bound on the descriptors that segments and indexes keep open.

A log of one terabyte has a thousand segments and a broker has thousands of logs; descriptors are
limited to 20,000 and connections need most of them. A holder opens its file through this table and
keeps the handle; when the table is full the one that was opened first and not used since must let
go (the clock algorithm: a used holder gets a second chance). Letting go drops a reference, no more:
a thread that is inside a read or a sync holds its own, and the descriptor closes after it.

It is not a cache of contents, and nobody asks it on the hot path: a holder sets `was_used` itself.
"""

import threading
from collections import OrderedDict
from typing import Protocol

from penstock.core.limits import FILES_OPEN_MAX


class FileHolder(Protocol):
    """Something that keeps one open file and can open it again."""

    was_used: bool

    def release_file(self) -> None:
        """Drop the handle; the next use opens the file again."""
        ...


class OpenFiles:
    """Who keeps a file open, in the order of opening."""

    def __init__(self, files_max: int = FILES_OPEN_MAX) -> None:
        assert files_max > 0
        self.files_max = files_max
        self._holders: OrderedDict[FileHolder, None] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._holders)

    def opened(self, holder: FileHolder) -> None:
        """`holder` has just opened its file; somebody else may have to let go."""
        with self._lock:
            self._holders[holder] = None
            chances = len(self._holders)
            while len(self._holders) > self.files_max:
                oldest = next(iter(self._holders))
                if oldest.was_used and chances > 0:
                    oldest.was_used = False
                    self._holders.move_to_end(oldest)
                    chances -= 1
                else:
                    del self._holders[oldest]
                    oldest.release_file()

    def closed(self, holder: FileHolder) -> None:
        """`holder` has no file any more."""
        with self._lock:
            self._holders.pop(holder, None)
