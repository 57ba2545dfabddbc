"""`StolenTime`: whether the host took a processor away from this machine meanwhile.

A virtual machine shares its processors. While the host uses them for others, every process stands
still, and clocks of CPU time go on: such a moment says nothing about a broker. A measurement leaves
it out and counts how often. The kernel counts stolen time in hundredths of a second; on a machine
of one's own it stays 0, and elsewhere than on Linux it is taken for 0.
"""

import os
from pathlib import Path
from typing import Final

FILE: Final = Path("/proc/stat")
LINE_BYTES_MAX: Final = 256
STOLEN_FIELD: Final = 8


class StolenTime:
    """Notices stolen time between two looks."""

    def __init__(self, file: Path = FILE) -> None:
        self._file = os.open(file, os.O_RDONLY) if file.exists() else None
        self._seen = self._read()

    def _read(self) -> int:
        if self._file is None:
            return 0
        line = os.pread(self._file, LINE_BYTES_MAX, 0).partition(b"\n")[0]
        return int(line.split()[STOLEN_FIELD])

    def look(self) -> bool:
        """Return whether time was stolen since the last look."""
        before, self._seen = self._seen, self._read()
        return self._seen > before

    def was_stolen(self) -> bool:
        """Return whether time was stolen since the last look, without being a look."""
        return self._read() > self._seen
