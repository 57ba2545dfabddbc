"""One connection: its requests in order, its answers in the same order, and how many at once.

Requests are handled as they come; an answer that is ready early waits for those before it. What is
guaranteed:

- answers leave in the order of requests, however they complete;
- at most `REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX` requests of a connection are being handled;
- the bytes of a request count against the node's budget until it is answered.

It knows neither sockets nor the event loop: `broker.listener` gives it a way to write and to close.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from penstock.broker.budget import MemoryBudget
from penstock.broker.context import Answer, NoAnswer
from penstock.broker.dispatch import Dispatcher
from penstock.core.deferred import Deferred
from penstock.core.limits import REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX
from penstock.protocol.connection import Request, encode_response_frame
from penstock.protocol.encoder_source import Buffer

logger = logging.getLogger(__name__)


class Writer(Protocol):
    """Where answers go."""

    def __call__(self, buffers: list[Buffer]) -> None:
        """Send these bytes."""
        ...


class _Slot:
    """The place of one answer."""

    __slots__ = ("buffers", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.buffers: list[Buffer] | None = None


class Session:
    """The requests of one connection."""

    __slots__ = (
        "_budget",
        "_close",
        "_dispatcher",
        "_is_collecting",
        "_slots",
        "_write",
        "is_closed",
        "on_room",
    )

    def __init__(
        self,
        dispatcher: Dispatcher,
        budget: MemoryBudget,
        write: Writer,
        close: Callable[[], None],
        on_room: Callable[[], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._budget = budget
        self._write = write
        self._close = close
        self.on_room = on_room
        self._slots: deque[_Slot] = deque()
        self._is_collecting = False
        self.is_closed = False

    @property
    def in_flight(self) -> int:
        """Requests that wait for their answer or for their turn."""
        return len(self._slots)

    @property
    def has_room(self) -> bool:
        """Whether another request may be handled now."""
        return len(self._slots) < REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX

    def begin_burst(self) -> None:
        """Hold answers back until `end_burst`, so that pipelined requests share one write."""
        self._is_collecting = True

    def end_burst(self) -> None:
        """Send what has become ready since `begin_burst`."""
        self._is_collecting = False
        if self._slots and self._slots[0].buffers is not None:
            self._send_ready()

    def handle(self, request: Request) -> None:
        """Start one request. Raises `PeerError` when its bytes are not a request."""
        slot = _Slot(request)
        answer = self._dispatcher.dispatch(request)
        self._slots.append(slot)
        self._budget.reserve(request.frame_bytes)
        if isinstance(answer, Deferred):
            answer.then(lambda result: self._complete(slot, result))
        else:
            self._complete(slot, answer)

    def close(self) -> None:
        """The connection is gone: answers that are still to come go nowhere."""
        self.is_closed = True
        while self._slots:
            self._budget.release(self._slots.popleft().request.frame_bytes)

    def _complete(self, slot: _Slot, answer: Answer) -> None:
        if self.is_closed:
            return
        if isinstance(answer, NoAnswer):
            if answer.close_connection:
                self._close()
                return
            slot.buffers = []
        else:
            slot.buffers = encode_response_frame(slot.request, answer)
        if not self._is_collecting and self._slots[0] is slot:
            self._send_ready()

    def _send_ready(self) -> None:
        slots = self._slots
        was_full = not self.has_room
        out: list[Buffer] = []
        while slots and (buffers := slots[0].buffers) is not None:
            out += buffers
            self._budget.release(slots.popleft().request.frame_bytes)
        if out:
            self._write(out)
        if was_full:
            self.on_room()
