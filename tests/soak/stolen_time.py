"""`StolenTime`: how long the host took processors from this machine.

A virtual machine shares its processors. While the host uses them for others, every process stands
still, and clocks of CPU time continue: such a moment says nothing about a broker. The kernel counts
stolen time in hundredths of a second, over all processors; on a machine of one's own it stays 0,
and elsewhere than on Linux it is taken for 0.
"""

import os
from pathlib import Path
from typing import Final

FILE: Final = Path("/proc/stat")
LINE_BYTES_MAX: Final = 256
STOLEN_FIELD: Final = 8
UNIT_SECONDS: Final = 0.01


class StolenTime:
    """Stolen time between two looks."""

    def __init__(self, file: Path = FILE) -> None:
        self._file = os.open(file, os.O_RDONLY) if file.exists() else None
        self._seen = self._read()

    def _read(self) -> int:
        if self._file is None:
            return 0
        line = os.pread(self._file, LINE_BYTES_MAX, 0).partition(b"\n")[0]
        return int(line.split()[STOLEN_FIELD])

    def seconds(self) -> float:
        """Return the stolen seconds since the last look, at most."""
        before, self._seen = self._seen, self._read()
        return (self._seen - before) * UNIT_SECONDS
