"""`Lanes`: several connections and requests in flight; answers are handled as they arrive.

Guarantees: the time of an answer is read when its bytes arrive, not when the answer is used, as far
as one thread can: a wait covers all connections at once. A lane keeps the order of its requests. It
retries nothing: in a measurement a lost answer is an error.
"""

import select
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from penstock.client.security.options import NO_SECURITY, Security
from penstock.client.transport.addresses import Address
from penstock.client.transport.blocking import BlockingConnection, connect
from penstock.client.transport.call import Call, Ticket

CLIENT_ID: Final = "penstock-bench"
_SELECT_DESCRIPTORS_MAX: Final = 1024
"""FD_SETSIZE: `select` accepts only descriptors below it."""

Key = TypeVar("Key", bound=Hashable)
Note = TypeVar("Note")
Result = TypeVar("Result")


@dataclass(slots=True)
class _Lane(Generic[Note]):
    connection: BlockingConnection
    under_way: "deque[tuple[Ticket[Any], Note]]" = field(default_factory=deque)


class Lanes(Generic[Key, Note]):
    """The connections of one client, each with a key; each request has a note."""

    def __init__(
        self, in_flight_max: int, timeout_seconds: float, security: Security = NO_SECURITY
    ) -> None:
        self._in_flight_max = in_flight_max
        self._security = security
        self._timeout_seconds = timeout_seconds
        self._lanes: dict[Key, _Lane[Note]] = {}

    def open(self, key: Key, address: Address) -> None:
        """Connect now, so that the first request does not include the connection time."""
        if key not in self._lanes:
            opened = connect(
                address,
                timeout_seconds=self._timeout_seconds,
                client_id=CLIENT_ID,
                security=self._security,
            )
            self._lanes[key] = _Lane(opened)

    def close(self) -> None:
        """Close all connections."""
        for lane in self._lanes.values():
            lane.connection.close()
        self._lanes.clear()

    def has_room(self, key: Key) -> bool:
        """Whether another request may be sent on this connection."""
        return len(self._lanes[key].under_way) < self._in_flight_max

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight."""
        return not any(lane.under_way for lane in self._lanes.values())

    def send(self, key: Key, call: Call[Any], note: Note) -> None:
        """Send a request."""
        lane = self._lanes[key]
        lane.under_way.append((lane.connection.send(call), note))

    def carry(self, key: Key, call: Call[Result]) -> Result:
        """Send one request and wait for its answer; for requests that are not measured."""
        return self._lanes[key].connection.carry(call)

    def collect(self, take: Callable[[Any, Note], None]) -> bool:
        """Pass every received answer to `take`; return whether there was one."""
        any_came = False
        for lane in self._lanes.values():
            while lane.under_way and lane.connection.has_answer(lane.under_way[0][0]):
                ticket, note = lane.under_way.popleft()
                take(lane.connection.receive(ticket), note)
                any_came = True
        return any_came

    def wait(self, seconds: float) -> None:
        """Wait until an answer arrives, at most `seconds`."""
        waiting = [lane.connection.fileno() for lane in self._lanes.values() if lane.under_way]
        seconds = max(0.0, seconds)
        if max(waiting, default=0) < _SELECT_DESCRIPTORS_MAX:
            # `select` waits with microsecond precision, which the due times of batches need.
            select.select(waiting, [], [], seconds)
            return
        poll = select.poll()
        for descriptor in waiting:
            poll.register(descriptor, select.POLLIN)
        poll.poll(seconds * 1000)
