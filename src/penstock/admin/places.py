"""`Places`: which connection of the admin port ends when there are too many (pure).

Guarantees: at most `places_max` connections, and at most `per_address_max` of one address. A new
connection above a bound takes the place of one that waits: of the same address, or, when all
places are taken, of the address with the most connections. The one that waits longest ends first.
So silent connections never keep a probe out, whatever address they come from. A connection whose
request is being carried out is never ended; if all of them are, the new one ends.

IPv6 addresses count by their first 64 bits. It knows neither sockets nor clocks: the caller ends.
"""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from penstock.core.client_host import host_of

One = TypeVar("One")


@dataclass(slots=True)
class _Host(Generic[One]):
    """The connections of one address."""

    count: int = 0
    waiting: dict[One, None] = field(default_factory=dict)
    """Those without a request that is carried out; the one that waits longest is first."""


class Places(Generic[One]):
    """All connections of one port."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host[One]] = {}
        self._keys: dict[One, str] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def take(self, one: One, address: str, *, places_max: int, per_address_max: int) -> One | None:
        """Add a connection that waits; return the one that must end, which is removed already."""
        key = self._keys[one] = host_of(address)
        host = self._hosts.setdefault(key, _Host())
        host.count += 1
        host.waiting[one] = None
        if host.count > per_address_max:
            crowded = host
        elif len(self._keys) > places_max:
            crowded = max((each for each in self._hosts.values() if each.waiting), key=_count)
        else:
            return None
        ended = next(iter(crowded.waiting))
        self.leave(ended)
        return ended

    def work(self, one: One) -> None:
        """A request of this connection is carried out: it keeps its place until `rest`."""
        if one in self._keys:
            self._hosts[self._keys[one]].waiting.pop(one, None)

    def rest(self, one: One) -> None:
        """The request is answered: the connection waits for another one."""
        if one in self._keys:
            waiting = self._hosts[self._keys[one]].waiting
            waiting.pop(one, None)
            waiting[one] = None

    def leave(self, one: One) -> None:
        """Remove a connection; do nothing if it is removed already."""
        key = self._keys.pop(one, None)
        if key is None:
            return
        host = self._hosts[key]
        host.count -= 1
        host.waiting.pop(one, None)
        if not host.count:
            del self._hosts[key]


def _count(host: _Host[One]) -> int:
    return host.count
