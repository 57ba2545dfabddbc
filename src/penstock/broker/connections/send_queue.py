"""Clients that read answers slowly: unsent bytes of each, and since when none were sent.

The kernel holds up to 4 MiB for a slow peer and makes room for more only when a third of that is
free. A client that reads ten kilobytes a second would seem to read nothing for minutes if only the
event loop's own buffer counted, so the kernel is asked too. Outside Linux the kernel does not
report it, and only the loop's buffer is known. That costs a system call: for timers, not for every
answer.
"""

import asyncio
import struct
import sys
from typing import Final

from penstock.broker.pacing.budget import MemoryBudget

_COUNT: Final = struct.Struct("=i")
_UNKNOWN: Final = -1


class Stall:
    """Since when a client has read nothing (pure)."""

    __slots__ = ("_since", "_unsent_before")

    def __init__(self) -> None:
        self._since = 0.0
        self._unsent_before = _UNKNOWN

    def begin(self, now: float) -> None:
        """Answers have begun to wait. Unsent bytes are not read: this runs for every large one."""
        self._since = now
        self._unsent_before = _UNKNOWN

    def lasts(self, unsent: int, now: float, seconds_max: float) -> bool:
        """Whether the client has read nothing for `seconds_max`; `unsent` bytes wait now."""
        if unsent != self._unsent_before:
            if self._unsent_before != _UNKNOWN:
                self._since = now
            self._unsent_before = unsent
        return now - self._since >= seconds_max


class UnsentBytes:
    """The answers that wait for one client, as a part of the broker's budget for all of them."""

    __slots__ = ("_budget", "count_bytes")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self.count_bytes = 0

    def set(self, count_bytes: int) -> None:
        """Set how many bytes wait."""
        self._budget.reserve(count_bytes)
        self._budget.release(self.count_bytes)
        self.count_bytes = count_bytes


def unsent_bytes(transport: asyncio.WriteTransport) -> int:
    """Bytes that were written and that the peer has not acknowledged."""
    own_bytes = transport.get_write_buffer_size()
    connected = transport.get_extra_info("socket")
    if sys.platform != "linux" or connected is None:
        return own_bytes
    import fcntl
    import termios

    try:
        answer = fcntl.ioctl(connected.fileno(), termios.TIOCOUTQ, bytes(_COUNT.size))
    except (OSError, ValueError):
        # It was closed meanwhile: its descriptor is -1, which is not a valid one.
        return own_bytes
    (kernel_bytes,) = _COUNT.unpack(answer)
    return own_bytes + int(kernel_bytes)
