"""`CheckTurns`: how many passwords of one address are checked at a time (pure).

A check computes for milliseconds on a few threads, or asks a directory. Guarantees: an address has
at most `CHECKS_PER_ADDRESS_MAX` checks in progress; its others wait for their turn, in order, so a
flood of bad logins from one address leaves places to the others, and a thousand clients behind one
address log in one after the other. A login that has ended meanwhile is skipped without a check.

It reads no clock: the deadline of a login ends the wait. IPv6 addresses count by their first 64
bits. It does NOT bound the checks of all addresses together: the threads do.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from penstock.core.client_host import host_of

CHECKS_PER_ADDRESS_MAX: Final = 4
"""As many as a directory is asked at a time: one address alone is not slowed down."""

Begin = Callable[[], bool]
"""Begins a check; returns False if its login has ended."""


class CheckTurns:
    """The checks of one broker."""

    def __init__(self) -> None:
        self._running: dict[str, int] = {}
        self._waiting: dict[str, deque[Begin]] = {}

    def join(self, address: str, begin: Begin) -> None:
        """Call `begin` when it is its turn, perhaps now; `leave` follows each begun check."""
        host = host_of(address)
        if self._running.get(host, 0) >= CHECKS_PER_ADDRESS_MAX:
            self._waiting.setdefault(host, deque()).append(begin)
        else:
            self._begin(host, begin)

    def leave(self, address: str) -> None:
        """A check has ended."""
        host = host_of(address)
        self._count(host, -1)
        waiting = self._waiting.get(host)
        while waiting and self._running.get(host, 0) < CHECKS_PER_ADDRESS_MAX:
            self._begin(host, waiting.popleft())
        if not waiting:
            self._waiting.pop(host, None)

    def _begin(self, host: str, begin: Begin) -> None:
        self._count(host, 1)
        if not begin():
            self._count(host, -1)

    def _count(self, host: str, change: int) -> None:
        count = self._running.get(host, 0) + change
        if count:
            self._running[host] = count
        else:
            self._running.pop(host, None)

    @property
    def hosts(self) -> int:
        """Addresses with checks that run or wait."""
        return len(self._running.keys() | self._waiting.keys())
