"""`HandshakeBudget`: which handshakes may run, which must end, and whose step is next (pure).

A handshake costs about a millisecond of the event loop and 30 KB, and its client decides how long
it takes. Guarantees:

- at most `handshakes_max` handshakes have a place, and at most `per_address_max` of one address.
  The others wait in a line without TLS state: addresses take turns, and within one address the
  oldest is first;
- a handshake that is not complete after `seconds_max`, waiting included, is ended;
- while another one waits for its place, a handshake keeps it for `place_seconds_min`. Then the
  oldest of the address with the most places is ended, unless it waits for this broker;
- at most `waiting_max` wait: above, the oldest of the address with the most in the line is ended;
- steps are taken in the order in which they were asked for. The caller takes one in each turn of
  the event loop, so that requests wait for one step at most.

It knows neither sockets nor clocks: the caller passes the time, and ends and admits.
"""

from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from penstock.broker.tls.tls_limits import (
    RECORD_BYTES_MAX,
    RECORD_HEADER_BYTES,
    HandshakeLimits,
)
from penstock.core.client_host import host_of

One = TypeVar("One")

UPDATE_SECONDS: Final = 0.1
"""Time between two looks at the places while handshakes wait for one."""
_HANDSHAKE_RECORD: Final = 0x16
_MAJOR_VERSION: Final = 3


@dataclass(slots=True)
class Changes(Generic[One]):
    """What the caller must do."""

    admitted: list[One] = field(default_factory=list)
    expired: list[One] = field(default_factory=list)
    """They took too long."""
    crowded_out: list[One] = field(default_factory=list)
    """Others need their places."""


@dataclass(slots=True)
class _Address(Generic[One]):
    """The handshakes of one address, each in the order of time."""

    admitted: dict[One, float] = field(default_factory=dict)
    """Those with a place, and since when."""
    waiting: dict[One, None] = field(default_factory=dict)


class HandshakeBudget(Generic[One]):
    """All unfinished handshakes of one listener."""

    def __init__(self, limits: HandshakeLimits) -> None:
        self.limits = limits
        """May be replaced; handshakes above a lower limit stay until they end."""
        self._begun: dict[One, tuple[str, float]] = {}
        """Address and beginning of each, in the order of time."""
        self._addresses: dict[str, _Address[One]] = {}
        self._turns: dict[str, None] = {}
        """Addresses with waiting handshakes, in the order of their turns."""
        self._steps: dict[One, None] = {}
        self.admitted_count = 0
        self.waiting_count = 0

    def begin(self, one: One, address: str, now: float) -> None:
        """Add a handshake to the line; call `update` afterwards."""
        assert one not in self._begun
        host = host_of(address)
        self._begun[one] = host, now
        self._addresses.setdefault(host, _Address()).waiting[one] = None
        self._turns.setdefault(host)
        self.waiting_count += 1

    def end(self, one: One) -> None:
        """Remove a handshake that is complete or gone; call `update` afterwards."""
        found = self._begun.pop(one, None)
        if found is None:
            return
        self._steps.pop(one, None)
        own = self._addresses[found[0]]
        if own.admitted.pop(one, None) is not None:
            self.admitted_count -= 1
        else:
            del own.waiting[one]
            self.waiting_count -= 1
            if not own.waiting:
                del self._turns[found[0]]
        if not own.admitted and not own.waiting:
            del self._addresses[found[0]]

    def update(self, now: float) -> Changes[One]:
        """Decide which handshakes begin and which end; they are admitted or removed already."""
        changes: Changes[One] = Changes()
        for one in self._expired(now):
            self.end(one)
            changes.expired.append(one)
        self._admit(now, changes)
        self._make_room(now, changes)
        while self.waiting_count > self.limits.waiting_max:
            one = next(iter(max(self._addresses.values(), key=_waiting_count).waiting))
            self.end(one)
            changes.crowded_out.append(one)
        return changes

    def next_update(self, now: float) -> float | None:
        """Return the time of the next `update` that may change something; None if there is none."""
        if not self._begun:
            return None
        _, begun_at = next(iter(self._begun.values()))
        moment = begun_at + self.limits.seconds_max
        return min(moment, now + UPDATE_SECONDS) if self._turns else moment

    # --- Steps ---

    def ask_for_step(self, one: One) -> None:
        """Add a handshake to the queue of steps; it stays at its position if it is there."""
        if one in self._begun:
            self._steps.setdefault(one)

    def next_step(self) -> One | None:
        """Remove and return the handshake whose step is next."""
        for one in self._steps:
            del self._steps[one]
            return one
        return None

    # --- Decisions ---

    def _expired(self, now: float) -> list[One]:
        expired = []
        for one, (_, begun_at) in self._begun.items():
            if begun_at + self.limits.seconds_max > now:
                break
            expired.append(one)
        return expired

    def _admit(self, now: float, changes: Changes[One]) -> None:
        """Give free places to waiting addresses in turn."""
        blocked: list[str] = []
        while self._turns and self.admitted_count < self.limits.handshakes_max:
            address = next(iter(self._turns))
            del self._turns[address]
            own = self._addresses[address]
            if len(own.admitted) >= self.limits.per_address_max:
                blocked.append(address)
                continue
            one = next(iter(own.waiting))
            del own.waiting[one]
            own.admitted[one] = now
            self.waiting_count -= 1
            self.admitted_count += 1
            changes.admitted.append(one)
            if own.waiting:
                self._turns[address] = None
        for address in blocked:
            self._turns[address] = None

    def _make_room(self, now: float, changes: Changes[One]) -> None:
        """End handshakes that have had their time, as long as others wait for their places."""
        while self._turns:
            one = self._crowded_out(now)
            if one is None:
                return
            self.end(one)
            changes.crowded_out.append(one)
            self._admit(now, changes)

    def _crowded_out(self, now: float) -> One | None:
        """Return a handshake that must yield its place; None if there is none."""
        if self.admitted_count >= self.limits.handshakes_max:
            crowded = max(self._addresses.values(), key=_admitted_count)
            return self._yielding(crowded, now)
        for address in self._turns:
            one = self._yielding(self._addresses[address], now)
            if one is not None:
                return one
        return None

    def _yielding(self, own: _Address[One], now: float) -> One | None:
        for one, admitted_at in own.admitted.items():
            if admitted_at + self.limits.place_seconds_min > now:
                return None
            if one not in self._steps:
                return one
        return None


def _waiting_count(own: _Address[One]) -> int:
    return len(own.waiting)


def _admitted_count(own: _Address[One]) -> int:
    return len(own.admitted)


# --- Bytes of a handshake ---


def is_hello(received: bytes) -> bool:
    """Whether these first bytes of a connection can be the beginning of TLS."""
    return received[0] == _HANDSHAKE_RECORD and (
        len(received) == 1 or received[1] == _MAJOR_VERSION
    )


def whole_records(received: bytes) -> int:
    """Return the number of bytes that are whole TLS records; all, if OpenSSL must refuse one."""
    position, end = 0, len(received)
    while position + RECORD_HEADER_BYTES <= end:
        size = int.from_bytes(received[position + 3 : position + RECORD_HEADER_BYTES], "big")
        if size > RECORD_BYTES_MAX:
            return end
        if position + RECORD_HEADER_BYTES + size > end:
            break
        position += RECORD_HEADER_BYTES + size
    return position
