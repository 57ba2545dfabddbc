"""`asyncio.BufferedProtocol` around `ServerConnection`: reads, writes, back-pressure, nothing else.

Bytes are received into the buffer of the frame they belong to and never copied again. Guarantees
for each connection:

- reading pauses while its requests, its unsent answers or the node's memory budget are at a bound,
  and while a quota says that its client has to wait; answers still go out;
- its requests are handled within its share of a turn of the event loop (`turns`); the rest waits
  for a later turn, and nothing is read from it meanwhile;
- a peer that breaks the protocol is disconnected and counted; the others notice nothing. So is a
  connection whose requests fail by a defect of ours, in whichever turn;
- a connection with an incomplete request, one whose peer reads no answer, and an idle one are each
  closed at their time limit (`time_limits`, `alarms`).
"""

import asyncio
import logging
from typing import Final, cast

from penstock.broker.connections import endings
from penstock.broker.connections.alarms import NEVER
from penstock.broker.connections.file_sender import FileSender
from penstock.broker.connections.listener_state import ListenerState
from penstock.broker.connections.send_queue import unsent_bytes
from penstock.broker.connections.session import Session
from penstock.broker.connections.time_limits import TimeLimits
from penstock.broker.peer import Peer
from penstock.core.errors import PeerError
from penstock.core.limits import SOCKET_BUFFER_BYTES_HIGH
from penstock.protocol.connection import ServerConnection
from penstock.protocol.encoder_source import Buffer

logger = logging.getLogger(__name__)

SHORT_READ_BYTES: Final = 4_096
"""Bytes read from a connection that was silent while memory became short: enough for most requests,
and 48 MiB if all twelve thousand send them."""


class ConnectionProtocol(asyncio.BufferedProtocol):
    """One connection of a Kafka client."""

    __slots__ = (
        "_address",
        "_connection",
        "_is_draining",
        "_is_held",
        "_is_queued",
        "_is_writable",
        "_partial_bytes",
        "_reader",
        "_reads_paused",
        "_resumes",
        "_sender",
        "_session",
        "_state",
        "_times",
        "_transport",
        "_turns",
        "_unsent_counted",
        "check_at",
        "check_key",
        "turn_seconds",
        "turn_tag",
    )

    def __init__(self, state: ListenerState) -> None:
        self._state = state
        self._connection = ServerConnection(state.dispatcher.version_ranges, state.arena)
        self._reader = self._connection.reader
        self._session = Session(
            state.dispatcher,
            state.handling,
            self._write,
            self.abort,
            self._resume_soon,
            self._mute,
        )
        self._session.on_peer_error = self._peer_was_wrong
        self._turns = state.turns
        self.turn_tag = 0.0
        self.turn_seconds = 0.0
        self._is_queued = False
        self._transport: asyncio.Transport | None = None
        self._address = ""
        self._times = TimeLimits()
        self._is_held = False
        self._unsent_counted = 0
        self._sender: FileSender | None = None
        """Sender of the last large answer; while it has bytes left, nothing goes to the
        transport."""
        self._is_writable = True
        self._reads_paused = False
        self._resumes = False
        self._is_draining = False
        self._partial_bytes = 0
        self.check_at = NEVER
        self.check_key: int | None = None

    # --- Called by the event loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected; above a limit it is closed at once."""
        state = self._state
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._address = peer[0] if isinstance(peer, tuple) else ""
        self._session.peer = Peer(self._address)
        state.opened.value += 1
        state.connections.add(self)
        state.by_address[self._address] += 1
        settings = state.settings
        refusal = ""
        if len(state.connections) > settings.connections_max:
            refusal = endings.TOO_MANY
        elif state.by_address[self._address] > settings.connections_per_address_max:
            refusal = endings.TOO_MANY_OF_ADDRESS
        if refusal:
            state.endings.refused[refusal].value += 1
            self.abort()
            return
        self._transport.set_write_buffer_limits(high=SOCKET_BUFFER_BYTES_HIGH)
        now = state.loop.time()
        self._times.last_request_at = now
        state.check_by(self, now + settings.connection_idle_seconds_max)
        if state.quotas.holds_connections and (wait_ms := state.quotas.hold_ms(self._address)):
            # Too many new connections from this address: closed, as in Kafka, after a delay.
            self._is_held = True
            state.endings.refused[endings.TOO_SOON].value += 1
            self._mute(wait_ms)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes; a short one for a new request while memory is short."""
        buffer = self._reader.get_buffer(sizehint)
        if self._partial_bytes or not self._state.receiving.is_spent:
            return buffer
        return buffer[:SHORT_READ_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes were received."""
        self._state.received.value += nbytes
        self._session.received()
        self._reader.buffer_updated(nbytes)
        self._handle_requests()

    def eof_received(self) -> bool:
        """The client will send no more. Answers to its earlier requests are still sent, soon."""
        self._is_draining = True
        self._session.hurry()
        return not self._is_drained()

    def pause_writing(self) -> None:
        """The client reads answers more slowly than it sends requests."""
        state = self._state
        self._is_writable = False
        check_at = self._times.begin_stall(state.loop.time(), state.settings)
        self._update_reading()
        state.check_by(self, check_at)

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._is_writable = True
        self._count_unsent(0)
        self._resume()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's)
        """The connection is gone."""
        state = self._state
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        state.closed.value += 1
        state.forget(self)
        state.by_address[self._address] -= 1
        if not state.by_address[self._address]:
            del state.by_address[self._address]
        self._count_unsent(0)
        state.handling.stop_waiting(self._resume_soon)
        self._session.close()
        state.receiving.release(self._partial_bytes)
        self._partial_bytes = 0
        state.receiving.stop_waiting(self._resume_soon)
        # No object here waits for the garbage collector, which visits old objects seldom.
        self._reader.forget_all()
        self._transport = None

    # --- Requests ---

    def _handle_requests(self) -> None:
        """Handle received requests, within this connection's share of the turn."""
        session = self._session
        if self._is_queued:
            return
        begun = session.time
        try:
            self._handle_until(begun + self._turns.slice_seconds(self))
        except PeerError as error:
            session.resumed()
            self._peer_was_wrong(error)
        except Exception:
            # Its requests are in an unknown state, and while it waits nothing is read from it.
            logger.exception("a request from %s failed; its connection is closed", self._address)
            self._state.dispatcher.failed()
            self.abort()
        self._end_turn(session.time - begun)

    def _end_turn(self, seconds: float) -> None:
        self._turns.spend(self, seconds)
        if self._is_queued:
            self._turns.join(self, seconds)

    def _handle_until(self, deadline: float) -> None:
        session = self._session
        handled = self._handle_burst(deadline)
        while session.wants_room and session.has_room and self._is_writable and not self._is_queued:
            handled += self._handle_burst(deadline)
        if session.is_closed:
            self._is_queued = False
            return
        self._reserve_partial()
        self._watch_frame(handled)
        self._update_reading()
        self._close_if_drained()

    def _handle_burst(self, deadline: float) -> int:
        """Handle requests while there is room and time, send ready answers; return the count."""
        session, connection = self._session, self._connection
        handled = 0
        session.wants_room = False
        session.begin_burst()
        try:
            # Not held back by the budget: complete requests are in memory already, and answering
            # them frees memory.
            while self._is_writable:
                if not session.has_room:
                    session.wants_room = self._reader.has_unread
                    break
                if session.time >= deadline:
                    self._is_queued = self._reader.has_unread
                    break
                request = connection.next_request()
                if request is None:
                    break
                handled += 1
                session.handle(request)
                if session.is_closed:
                    break
        finally:
            if not session.is_closed:
                session.end_burst()
        return handled

    def continue_turn(self) -> None:
        """Go on with requests that had to wait for another turn of the event loop."""
        self._is_queued = False
        if not self._session.is_closed:
            self._session.resumed()
            self._handle_requests()

    def _reserve_partial(self) -> None:
        """Count the received bytes of an incomplete request, not those it announces."""
        partial_bytes = self._reader.received_bytes
        if partial_bytes != self._partial_bytes:
            receiving = self._state.receiving
            receiving.reserve(partial_bytes)
            receiving.release(self._partial_bytes)
            self._partial_bytes = partial_bytes
            if not partial_bytes:
                receiving.finished(self._resume_soon)

    def _watch_frame(self, handled: int) -> None:
        """Note since when a request is incomplete, so that a slow sender can be closed."""
        times = self._times
        if handled:
            times.last_request_at = self._state.loop.time()
            times.frame_since = None
        session = self._session
        if session.wants_room or session.is_muted or self._is_queued or not self._is_writable:
            # The missing bytes may have arrived: this side has stopped reading.
            times.frame_since = None
        elif self._reader.frame_started and times.frame_since is None:
            now = self._state.loop.time()
            times.frame_since = now
            self._state.check_by(self, now + self._state.settings.frame_completion_seconds_max)

    def _update_reading(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        is_full = self._session.wants_room or self._session.is_muted or self._is_queued
        pause = not self._is_writable or is_full or self._is_draining
        if pause:
            self._state.receiving.finished(self._resume_soon)
        else:
            pause = self._is_held_back()
        if pause and not self._reads_paused:
            self._reads_paused = True
            self._transport.pause_reading()
        elif not pause and self._reads_paused:
            self._reads_paused = False
            self._transport.resume_reading()

    def _is_held_back(self) -> bool:
        """Whether this connection must wait for memory; `_resume_soon` is called afterwards."""
        state = self._state
        if not (state.handling.is_spent or state.receiving.is_spent):
            return False
        return state.holds_back(
            self._partial_bytes,
            self._reader.needs_bytes,
            self._resume_soon,
            has_requests=self._session.in_flight > 0,
        )

    def _mute(self, wait_ms: int) -> None:
        """Read and handle nothing for a time; answers still go out."""
        state, times = self._state, self._times
        self._session.is_muted = True
        times.muted_until = max(times.muted_until, state.loop.time() + wait_ms / 1000)
        state.check_by(self, times.muted_until)
        # Not now: some event loops begin to read from a new connection only after this.
        state.loop.call_soon(self._update_reading)

    def _end_mute(self) -> None:
        if self._is_held:
            self.abort()
        else:
            self._session.is_muted = False
            self._resume()

    def _resume_soon(self) -> None:
        self._resumes = True
        self._state.loop.call_soon(self._resume)

    def _resume(self) -> None:
        """A bound that held this connection back may be gone: handle the received requests."""
        self._resumes = False
        if self._session.is_closed:
            return
        self._session.resumed()
        self._handle_requests()

    # --- Answers and endings ---

    def _write(self, buffers: list[Buffer], size_bytes: int) -> None:
        assert self._transport is not None
        state = self._state
        state.sent.value += size_bytes
        if self._sender_bytes():
            assert self._sender is not None
            self._sender.add(buffers)
        elif state.may_send_files(self._transport, buffers, size_bytes):
            self._sender = FileSender(self, state.loop, state.dispatcher, self._transport)
            self._sender.begin(buffers)
        elif len(buffers) == 1:
            self._transport.write(buffers[0])
        else:
            self._transport.writelines(buffers)
        if not self._is_writable:
            # The whole buffer, although the kernel has a part of it: it is freed only when all is
            # sent.
            self._count_unsent(self._unsent_counted + size_bytes)
        self._close_if_drained()

    def _sender_bytes(self) -> int:
        return 0 if self._sender is None else self._sender.left_bytes

    def _close_if_drained(self) -> None:
        if self._is_draining and self._is_drained():
            assert self._transport is not None
            self._transport.close()

    def _is_drained(self) -> bool:
        """Whether all complete requests are answered."""
        session = self._session
        waits = session.in_flight or session.wants_room or self._resumes or self._is_queued
        return not (waits or self._sender_bytes())

    def _peer_was_wrong(self, error: PeerError) -> None:
        self._state.endings.count_broken(error)
        logger.info("closing the connection from %s: %s", self._address, error)
        self.abort()

    def abort(self) -> None:
        """Drop the connection at once."""
        if self._sender is not None:
            self._sender.close()
        if self._transport is not None:
            self._transport.abort()
        self._session.close()

    def check_time(self, now: float) -> None:
        """Close the connection if a time limit has passed, else schedule the next check."""
        assert self._transport is not None
        if self._session.is_muted and now >= self._times.muted_until:
            self._end_mute()
        unsent: int | None = None
        if not self._is_writable:
            unsent = self._sender_bytes() + unsent_bytes(self._transport)
        reason = self._times.used_up(
            now, self._state.settings, unsent, is_answered=not self._session.in_flight
        )
        if reason:
            self._time_out(reason)
        else:
            self._state.check_by(self, self.next_check(now))

    def next_check(self, now: float) -> float:
        """When a time limit may be used up at the earliest."""
        return self._times.next_check(
            now,
            self._state.settings,
            is_answered=not self._session.in_flight,
            is_muted=self._session.is_muted,
            is_stalled=not self._is_writable,
        )

    def _count_unsent(self, unsent_bytes: int) -> None:
        """Count the answers that wait for this client, once they are more than its buffer holds."""
        self._state.unsent.reserve(unsent_bytes)
        self._state.unsent.release(self._unsent_counted)
        self._unsent_counted = unsent_bytes

    def _time_out(self, reason: str) -> None:
        self._state.endings.timed_out[reason].value += 1
        why = endings.TIME_LIMITS[reason]
        logger.info("closing the connection from %s: %s", self._address, why)
        self.abort()

    # --- Shutdown ---

    def finish(self) -> None:
        """Accept no more requests; close when the accepted ones are answered."""
        if self._transport is None or self._transport.is_closing():
            return
        self._is_draining = True
        if self._session.is_muted:
            self._end_mute()  # received requests are answered now, not when the quota would allow
        self._update_reading()
        self._close_if_drained()
