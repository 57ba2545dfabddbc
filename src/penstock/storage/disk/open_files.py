"""`OpenFiles`: a bound on the descriptors that segments and indexes keep open.

A log of one terabyte has a thousand segments and a broker has thousands of logs; descriptors are
limited to 20,000 and connections need most of them. A holder opens its file through this table and
keeps the handle; when the table is full the holder that opened its file first and has not used it
since must release it (the clock algorithm: a used holder gets a second chance). A release only
drops a reference: a thread that is inside a read or a sync holds its own, and the descriptor closes
after it.

A file with unsynced writes stays open until it is synced. The kernel reports a failed writeback
once, to the descriptors that are open; with none, the error may be lost before the file is opened
again, and the sync would succeed without the data. Such files may exceed the bound, until their
round. That holds where appends are acknowledged after the sync; other modes promise nothing before.

It is not a cache of contents, and the hot path does not call it: a holder sets `was_used` itself.
"""

import threading
from collections import OrderedDict
from typing import Final, Protocol

from penstock.core.limits import FILES_OPEN_MAX

_UNSYNCED_LOOKS: Final = 64
"""Unsynced files that are skipped for one that is opened. There are more only when a request writes
to thousands of partitions; checking all of them each time would stop the loop."""


class FileHolder(Protocol):
    """An object that keeps one open file and can open it again."""

    was_used: bool

    @property
    def is_dirty(self) -> bool:
        """Whether the file was written and not handed to the flusher."""
        ...

    def release_file(self) -> None:
        """Drop the handle; the next use opens the file again."""
        ...


class OpenFiles:
    """The holders of open files, in the order of opening."""

    def __init__(self, files_max: int = FILES_OPEN_MAX, *, keeps_unsynced: bool = True) -> None:
        assert files_max > 0
        self.files_max = files_max
        self._keeps_unsynced = keeps_unsynced
        self._holders: OrderedDict[FileHolder, None] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._holders)

    def opened(self, holder: FileHolder) -> None:
        """`holder` has just opened its file; release the files of others above the bound."""
        with self._lock:
            self._holders[holder] = None
            chances = len(self._holders)
            looks = _UNSYNCED_LOOKS
            while len(self._holders) > self.files_max:
                oldest = next(iter(self._holders))
                # The file that was just opened is about to be written or read.
                if oldest is holder or (self._keeps_unsynced and oldest.is_dirty):
                    self._holders.move_to_end(oldest)
                    looks -= 1
                    if looks == 0:
                        return
                elif oldest.was_used and chances > 0:
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
