"""`asyncio.BufferedProtocol` around `ServerConnection`: reads, writes, back-pressure, nothing else.

Bytes are received into the buffer of the frame they belong to and never copied again. What is
guaranteed for each connection:

- reading pauses while its requests, its unsent answers or the node's memory budget are at a bound;
- a peer that breaks the protocol is disconnected and counted; the others notice nothing;
- a request that was begun and not finished, a peer that takes no answer, and an idle connection are
  each ended after their time. One timer serves all connections: an idle one costs no wake-ups.
"""

import asyncio
import logging
from collections import Counter as Multiset
from typing import Final, cast

from penstock.broker.budget import MemoryBudget
from penstock.broker.dispatch import Dispatcher
from penstock.broker.session import Session
from penstock.core.deadlines import DeadlineTable
from penstock.core.errors import PeerError
from penstock.core.limits import SLOW_READER_SECONDS_MAX, WRITE_BUFFER_BYTES_HIGH
from penstock.core.metrics import Registry
from penstock.core.settings import ListenerSettings
from penstock.protocol.connection import ServerConnection
from penstock.protocol.encoder_source import Buffer
from penstock.protocol.framing import ReadArena

logger = logging.getLogger(__name__)

_NEVER: Final = float("inf")


class ListenerState:
    """What the connections of one listener share."""

    def __init__(
        self, settings: ListenerSettings, dispatcher: Dispatcher, metrics: Registry
    ) -> None:
        self.settings = settings
        self.dispatcher = dispatcher
        self.loop = asyncio.get_running_loop()
        self.budget = MemoryBudget(settings.request_bytes_in_flight_max)
        self.arena = ReadArena()
        self.connections: set[ConnectionProtocol] = set()
        self.by_address: Multiset[str] = Multiset()
        self.deadlines: DeadlineTable[ConnectionProtocol] = DeadlineTable()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = _NEVER
        counter = metrics.counter
        self.opened = counter("connections_opened_total", "Connections accepted.")
        self.refused = counter("connections_refused_total", "Connections above a limit, closed.")
        self.broken = counter("protocol_errors_total", "Connections closed for bytes not Kafka's.")
        self.timed_out = counter(
            "connections_timed_out_total", "Connections ended by a time limit."
        )
        self.requests = counter("requests_total", "Requests received whole.")
        self.received = counter("received_bytes_total", "Bytes received.")
        self.sent = counter("sent_bytes_total", "Bytes of answers.")
        metrics.gauge("connections", "Open connections.", lambda: len(self.connections))
        metrics.gauge(
            "request_bytes_in_flight", "Bytes being handled.", lambda: self.budget.reserved_bytes
        )

    def check_by(self, connection: "ConnectionProtocol", deadline: float) -> None:
        """Have `connection.check_time` called at `deadline` or before."""
        if deadline < connection.check_at:
            if connection.check_key is not None:
                self.deadlines.discard(connection, connection.check_key)
            connection.check_at = deadline
            connection.check_key = self.deadlines.add(connection, deadline)
            self._set_alarm()

    def forget(self, connection: "ConnectionProtocol") -> None:
        """The connection is gone."""
        self.connections.discard(connection)
        if connection.check_key is not None:
            self.deadlines.discard(connection, connection.check_key)

    def _set_alarm(self) -> None:
        deadline = self.deadlines.next_deadline()
        if deadline is not None and deadline < self._alarm_at:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm_at = deadline
            self._alarm = self.loop.call_at(deadline, self._ring)

    def _ring(self) -> None:
        self._alarm, self._alarm_at = None, _NEVER
        now = self.loop.time()
        for connection in self.deadlines.expire(now):
            connection.check_at, connection.check_key = _NEVER, None
            connection.check_time(now)
        self._set_alarm()

    def stop(self) -> None:
        """No more timers."""
        if self._alarm is not None:
            self._alarm.cancel()


class ConnectionProtocol(asyncio.BufferedProtocol):
    """One connection of a Kafka client."""

    __slots__ = (
        "_address",
        "_connection",
        "_frame_since",
        "_is_draining",
        "_is_writable",
        "_last_request_at",
        "_partial_bytes",
        "_reader",
        "_reads_paused",
        "_session",
        "_state",
        "_transport",
        "_unsent_before",
        "check_at",
        "check_key",
    )

    def __init__(self, state: ListenerState) -> None:
        self._state = state
        self._connection = ServerConnection(state.dispatcher.version_ranges, state.arena)
        self._reader = self._connection.reader
        self._session = Session(
            state.dispatcher, state.budget, self._write, self.abort, self._resume
        )
        self._transport: asyncio.Transport | None = None
        self._address = ""
        self._frame_since: float | None = None
        self._last_request_at = 0.0
        self._unsent_before = -1
        self._is_writable = True
        self._reads_paused = False
        self._is_draining = False
        self._partial_bytes = 0
        self.check_at = _NEVER
        self.check_key: int | None = None

    # --- Called by the event loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected; above a limit it is closed at once."""
        state = self._state
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._address = peer[0] if isinstance(peer, tuple) else ""
        state.connections.add(self)
        state.by_address[self._address] += 1
        settings = state.settings
        if (
            len(state.connections) > settings.connections_max
            or state.by_address[self._address] > settings.connections_per_address_max
        ):
            state.refused.value += 1
            self.abort()
            return
        state.opened.value += 1
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_HIGH)
        self._last_request_at = state.loop.time()
        state.check_by(self, self._last_request_at + settings.connection_idle_seconds_max)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came."""
        self._state.received.value += nbytes
        try:
            self._reader.buffer_updated(nbytes)
            self._handle_requests()
        except PeerError as error:
            self._peer_was_wrong(error)

    def eof_received(self) -> bool:
        """The client will send no more. Answers to what it sent before still go out."""
        if self._session.in_flight:
            self._is_draining = True
            return True
        return False

    def pause_writing(self) -> None:
        """The client does not read as fast as it asks."""
        self._is_writable = False
        self._unsent_before = -1
        self._update_reading()
        self._state.check_by(self, self._state.loop.time() + SLOW_READER_SECONDS_MAX)

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._is_writable = True
        self._resume()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's)
        """The connection is gone."""
        state = self._state
        state.forget(self)
        state.by_address[self._address] -= 1
        if not state.by_address[self._address]:
            del state.by_address[self._address]
        state.budget.stop_waiting(self._resume_soon)
        self._session.close()
        state.budget.release(self._partial_bytes)
        self._partial_bytes = 0

    # --- Requests ---

    def _handle_requests(self) -> None:
        session, connection = self._session, self._connection
        handled = 0
        session.begin_burst()
        try:
            # Not held back by the budget: what is whole is in memory already, and answering it
            # is what frees memory.
            while session.has_room and self._is_writable:
                request = connection.next_request()
                if request is None:
                    break
                handled += 1
                session.handle(request)
                if session.is_closed:
                    return
        finally:
            if not session.is_closed:
                session.end_burst()
        self._state.requests.value += handled
        self._reserve_partial()
        self._watch_frame(handled)
        self._update_reading()

    def _reserve_partial(self) -> None:
        """Count the memory of a request that is still arriving."""
        partial_bytes = self._reader.frame_bytes
        if partial_bytes != self._partial_bytes:
            self._state.budget.reserve(partial_bytes)
            self._state.budget.release(self._partial_bytes)
            self._partial_bytes = partial_bytes

    def _watch_frame(self, handled: int) -> None:
        """Note since when a request is incomplete, so that a dripping peer can be ended."""
        if handled:
            self._last_request_at = self._state.loop.time()
            self._frame_since = None
        if self._reader.frame_started and self._frame_since is None:
            now = self._state.loop.time()
            self._frame_since = now
            self._state.check_by(self, now + self._state.settings.frame_completion_seconds_max)

    def _update_reading(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        # Who has begun a request that is counted may finish it; nobody begins another.
        spent = self._state.budget.is_spent and not self._partial_bytes
        if spent:
            self._state.budget.wait(self._resume_soon)
        pause = spent or not self._is_writable or not self._session.has_room or self._is_draining
        if pause and not self._reads_paused:
            self._reads_paused = True
            self._transport.pause_reading()
        elif not pause and self._reads_paused:
            self._reads_paused = False
            self._transport.resume_reading()

    def _resume_soon(self) -> None:
        self._state.loop.call_soon(self._resume)

    def _resume(self) -> None:
        """A bound that held this connection back may be gone: go on with what was received."""
        if self._session.is_closed:
            return
        try:
            self._handle_requests()
        except PeerError as error:
            self._peer_was_wrong(error)

    # --- Answers and endings ---

    def _write(self, buffers: list[Buffer]) -> None:
        assert self._transport is not None
        self._state.sent.value += sum(map(len, buffers))
        if len(buffers) == 1:
            self._transport.write(buffers[0])
        else:
            self._transport.writelines(buffers)
        if self._is_draining and not self._session.in_flight:
            self._transport.close()

    def _peer_was_wrong(self, error: PeerError) -> None:
        self._state.broken.value += 1
        logger.info("closing the connection from %s: %s", self._address, error)
        self.abort()

    def abort(self) -> None:
        """Drop the connection at once."""
        if self._transport is not None:
            self._transport.abort()
        self._session.close()

    def check_time(self, now: float) -> None:
        """End the connection if it has used up a time limit, else look again when it might have."""
        assert self._transport is not None
        settings = self._state.settings
        frame_limit = settings.frame_completion_seconds_max
        if self._frame_since is not None and now - self._frame_since >= frame_limit:
            self._time_out("a request was begun and not finished")
        elif not self._is_writable and self._unsent_before == self._unsent():
            self._time_out("the client does not read its answers")
        elif not self._session.in_flight and self._is_idle(now):
            self._time_out("the connection was idle")
        else:
            self._unsent_before = self._unsent()
            self._state.check_by(self, self._next_check(now))

    def _is_idle(self, now: float) -> bool:
        return now - self._last_request_at >= self._state.settings.connection_idle_seconds_max

    def _next_check(self, now: float) -> float:
        settings = self._state.settings
        moments = [max(now, self._last_request_at) + settings.connection_idle_seconds_max]
        if not self._session.in_flight:
            moments = [self._last_request_at + settings.connection_idle_seconds_max]
        if self._frame_since is not None:
            moments.append(self._frame_since + settings.frame_completion_seconds_max)
        if not self._is_writable:
            moments.append(now + SLOW_READER_SECONDS_MAX)
        return min(moments)

    def _unsent(self) -> int:
        assert self._transport is not None
        return self._transport.get_write_buffer_size()

    def _time_out(self, reason: str) -> None:
        self._state.timed_out.value += 1
        logger.info("closing the connection from %s: %s", self._address, reason)
        self.abort()

    # --- Shutdown ---

    def finish(self) -> None:
        """Take no more requests; close when those that were accepted are answered."""
        if self._transport is None or self._transport.is_closing():
            return
        self._is_draining = True
        self._update_reading()
        if not self._session.in_flight:
            self._transport.close()
