"""When each client opened its connections to a port, from the system's tables of sockets (Linux).

The lists of open files name the sockets of a process, and cost little; the table of all connections
of the machine may be long, and is read only when a process has a new socket.
"""

import contextlib
import os
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

WATCH_SECONDS: Final = 0.02
CONNECT_SECONDS: Final = 20.0
_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_REMOTE_COLUMN: Final = 2
_SOCKET_COLUMN: Final = 9
_PREFIX: Final = "socket:["


class ConnectionWatch:
    """The times of the connections of each process, by the name of its client."""

    def __init__(self, processes: Mapping[str, int], port: int) -> None:
        self._processes = processes
        self._port = port
        self._opened: dict[str, list[float]] = {client: [] for client in processes}
        self._known = {client: _sockets(pid) for client, pid in processes.items()}
        """Earlier sockets are those of other connections."""
        self._looks: Counter[str] = Counter()

    def look(self) -> None:
        """Note the connections that are new."""
        now = time.monotonic()
        new = {
            client: _sockets(pid) - self._known[client] for client, pid in self._processes.items()
        }
        unknown: set[str] = set().union(*new.values())
        self._looks.update(unknown)
        # A socket may be without a connection for a while, or for ever: it is tried less and less.
        if not any(self._looks[one].bit_count() == 1 for one in unknown):
            return
        connected, others = _connections(self._port)
        for client, sockets in new.items():
            self._opened[client] += [now] * len(sockets & connected)
            self._known[client] |= sockets & (connected | others)

    def wait_until_settled(self, seconds: float) -> None:
        """Wait until each client has connected, and none has for this long."""
        deadline = time.monotonic() + CONNECT_SECONDS
        while True:
            self.look()
            last = [times[-1] for times in self._opened.values() if times]
            now = time.monotonic()
            if len(last) == len(self._opened) and now - max(last) > seconds:
                return
            assert now < deadline, self._opened
            time.sleep(WATCH_SECONDS)

    def look_until(self, time_seconds: float) -> None:
        """Look again and again, until this time of the monotonic clock."""
        while time.monotonic() < time_seconds:
            self.look()
            time.sleep(WATCH_SECONDS)

    def opened_since(self, client: str, time_seconds: float) -> int:
        """How many connections it opened since this time of the monotonic clock."""
        return sum(at >= time_seconds for at in self._opened[client])


def _sockets(pid: int) -> set[str]:
    """The numbers of the sockets of a process."""
    found = set()
    for file in os.listdir(f"/proc/{pid}/fd"):
        # It may be closed by now.
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/{pid}/fd/{file}")
            if target.startswith(_PREFIX):
                found.add(target[len(_PREFIX) : -1])
    return found


def _connections(port: int) -> tuple[set[str], set[str]]:
    """The sockets with a connection to this port, and those with another one."""
    ending = f":{port:04X}"
    connected: set[str] = set()
    others: set[str] = set()
    for table in _TABLES:
        for line in table.read_text().splitlines()[1:]:
            columns = line.split()
            chosen = connected if columns[_REMOTE_COLUMN].endswith(ending) else others
            chosen.add(columns[_SOCKET_COLUMN])
    return connected, others
