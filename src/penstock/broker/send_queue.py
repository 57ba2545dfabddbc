"""Clients that are slow to take their answers: how much waits for one, and since when none moved.

The kernel holds up to 4 MiB for a slow peer and makes room for more only when a third of that is
free. Who reads ten kilobytes a second would seem to take nothing for minutes if only the event
loop's own buffer were looked at, so the kernel is asked too. Where it does not tell (not on Linux),
the loop's buffer is all that is known. That costs a system call: for timers, not for every answer.
"""

import asyncio
import struct
import sys
from typing import Final

_COUNT: Final = struct.Struct("=i")
_UNKNOWN: Final = -1


class Stall:
    """Since when a client has taken nothing (pure)."""

    __slots__ = ("_since", "_unsent_before")

    def __init__(self) -> None:
        self._since = 0.0
        self._unsent_before = _UNKNOWN

    def begin(self, now: float) -> None:
        """Answers have begun to wait. How many bytes is not asked: this is on every large one."""
        self._since = now
        self._unsent_before = _UNKNOWN

    def lasts(self, unsent: int, now: float, seconds_max: float) -> bool:
        """Whether nothing was taken for so long, now that so many bytes wait."""
        if unsent != self._unsent_before:
            if self._unsent_before != _UNKNOWN:
                self._since = now
            self._unsent_before = unsent
        return now - self._since >= seconds_max


def unsent_bytes(transport: asyncio.WriteTransport) -> int:
    """Bytes that were written and that the peer has not acknowledged."""
    own_bytes = transport.get_write_buffer_size()
    connected = transport.get_extra_info("socket")
    if sys.platform != "linux" or connected is None:
        return own_bytes
    import fcntl
    import termios

    try:
        told = fcntl.ioctl(connected.fileno(), termios.TIOCOUTQ, bytes(_COUNT.size))
    except (OSError, ValueError):
        # It was closed meanwhile: its descriptor is -1, which is no number of a file.
        return own_bytes
    (kernel_bytes,) = _COUNT.unpack(told)
    return own_bytes + int(kernel_bytes)
