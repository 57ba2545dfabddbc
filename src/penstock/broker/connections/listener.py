"""`asyncio.BufferedProtocol` around `ServerConnection`: reads, writes, back-pressure, nothing else.

Bytes are received into the buffer of the frame they belong to and never copied again. Guarantees
for each connection:

- reading pauses while its requests, its unsent answers or the node's memory budget are at a bound,
  while its login is checked (`gate`), and while a quota makes its client wait; answers go out;
- its requests are handled within its share of a turn of the event loop (`turns`); the rest waits
  for a later turn, and nothing is read from it meanwhile;
- a peer that breaks the protocol is disconnected and counted; so is one that meets our defect;
- a connection with an incomplete request, one whose peer reads no answer, and an idle one are each
  closed at their time limit (`time_limits`, `alarms`).
"""

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from penstock.broker.connections.alarms import NEVER
from penstock.broker.connections.entrance import Entrance
from penstock.broker.connections.file_sender import FileSender, left_bytes
from penstock.broker.connections.gates import gate_for
from penstock.broker.connections.listener_state import SHORT_READ_BYTES, ListenerState
from penstock.broker.connections.send_queue import UnsentBytes, unsent_bytes
from penstock.broker.connections.session import Session
from penstock.broker.connections.time_limits import TimeLimits
from penstock.broker.peer import UNKNOWN_PEER, Peer
from penstock.core.errors import PeerError, PenstockError
from penstock.core.limits import SOCKET_BUFFER_BYTES_HIGH
from penstock.protocol.connection import ServerConnection
from penstock.protocol.encoder_source import Buffer

if TYPE_CHECKING:
    from penstock.broker.connections.gate import Gate

logger = logging.getLogger(__name__)


class ConnectionProtocol(asyncio.BufferedProtocol):
    """One connection of a Kafka client."""

    __slots__ = (
        "_address",
        "_connection",
        "_entrance",
        "_gate",
        "_is_draining",
        "_is_held",
        "_is_inside",
        "_is_queued",
        "_is_writable",
        "_partial_bytes",
        "_reader",
        "_reads_paused",
        "_resumes",
        "_sender",
        "_state",
        "_times",
        "_transport",
        "_turns",
        "_unsent",
        "check_at",
        "check_key",
        "session",
        "turn_seconds",
        "turn_tag",
    )

    def __init__(self, state: ListenerState, entrance: Entrance, peer: Peer | None = None) -> None:
        """`peer` is the client of a connection within the process, whose identity is known."""
        self._state = state
        self._entrance = entrance
        self._connection = ServerConnection(state.dispatcher.version_ranges, state.arena)
        self._reader = self._connection.reader
        self.session = Session(
            state.dispatcher,
            state.handling,
            self.write,
            self.abort,
            self._resume_soon,
            self._mute,
        )
        self.session.on_peer_error = self._peer_was_wrong
        self._is_inside = peer is not None
        self.session.peer = peer or UNKNOWN_PEER
        self._turns = state.turns
        self.turn_tag = 0.0
        self.turn_seconds = 0.0
        self._is_queued = False
        self._transport: asyncio.Transport | None = None
        self._address = ""
        self._times = TimeLimits()
        self._is_held = False
        self._gate: Gate | None = None
        """For a listener with SASL."""
        self._unsent = UnsentBytes(state.unsent)
        self._sender: FileSender | None = None
        """Of the last large answer; while it has bytes left, nothing goes to the transport."""
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
        state, entrance = self._state, self._entrance
        self._transport = cast("asyncio.Transport", transport)
        if not self._is_inside:
            self.session.meet(entrance.peer_of(transport), is_open=entrance.tls is None)
        self._address = self.session.peer.address
        if not state.admit(self, entrance, self._address, is_inside=self._is_inside):
            self.abort()
            return
        self._transport.set_write_buffer_limits(high=SOCKET_BUFFER_BYTES_HIGH)
        if not self._is_inside:
            self._gate = gate_for(self, entrance, state, self.session, self._connection)
        now = state.loop.time()
        self._times.last_request_at = now
        state.check_by(self, now + state.settings.connection_idle_seconds_max)
        if not self._is_inside and (wait_ms := state.hold_ms(self._address)):
            # Too many new connections from this address: closed, as in Kafka, after a delay.
            self._is_held = True
            self._mute(wait_ms)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes; a short one for a new request while memory is short.

        So is that of a client that has not logged in: the bytes behind a frame wait for it.
        """
        buffer = self._reader.get_buffer(sizehint)
        is_unproven = self._gate is not None and self._gate.is_closed
        is_short = is_unproven or self._state.receiving.is_spent
        return buffer[:SHORT_READ_BYTES] if is_short and not self._partial_bytes else buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes were received."""
        self._state.received.value += nbytes
        self.session.received()
        self._reader.buffer_updated(nbytes)
        self._handle_requests()

    def eof_received(self) -> bool:
        """The client will send no more. Answers to its earlier requests are still sent, soon."""
        self._is_draining = True
        self.session.hurry()
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
        self._unsent.set(0)
        self._resume()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's)
        """The connection is gone."""
        state = self._state
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        state.dismiss(self, self._entrance, self._address)
        self._unsent.set(0)
        state.handling.stop_waiting(self._resume_soon)
        if self._gate is not None:
            self._gate.end()
            self._gate = None
        self.session.close()
        state.receiving.release(self._partial_bytes)
        self._partial_bytes = 0
        state.receiving.stop_waiting(self._resume_soon)
        # No object here waits for the garbage collector, which visits old objects seldom.
        self._reader.forget_all()
        self._transport = None

    # --- Requests ---

    def _handle_requests(self) -> None:
        """Handle received requests, within this connection's share of the turn."""
        session = self.session
        if self._is_queued:
            return
        begun = session.time
        try:
            self._handle_until(begun + self._turns.slice_seconds(self))
        except PeerError as error:
            session.resumed()
            self._peer_was_wrong(error)
        except Exception:
            logger.exception("a request from %s failed; its connection is closed", self._address)
            self._state.dispatcher.failed()
            self.abort()
        self._end_turn(session.time - begun)

    def _end_turn(self, seconds: float) -> None:
        self._turns.spend(self, seconds)
        if self._is_queued:
            self._turns.join(self, seconds)

    def _handle_until(self, deadline: float) -> None:
        session = self.session
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
        session, connection, gate = self.session, self._connection, self._gate
        handled = 0
        session.wants_room = False
        session.begin_burst()
        try:
            # Not held back by the budget: these requests are in memory, and answers free memory.
            while self._is_writable:
                if gate is not None and gate.is_closed:
                    if not gate.take_frame():
                        break
                    handled += 1
                    continue
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
        if not self.session.is_closed:
            self.session.resumed()
            self._handle_requests()

    def _reserve_partial(self) -> None:
        """Count the received bytes of an incomplete request, not those it announces."""
        partial_bytes = self._reader.received_bytes
        if self._gate is not None:
            self._gate.count_partial(partial_bytes)
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
        session, gate = self.session, self._gate
        is_full = session.wants_room or session.is_muted or self._is_queued
        if is_full or not self._is_writable or (gate is not None and gate.is_busy):
            # The missing bytes may have arrived: this side has stopped reading.
            times.frame_since = None
        elif self._reader.frame_started and times.frame_since is None:
            now = self._state.loop.time()
            times.frame_since = now
            self._state.check_by(self, now + self._state.settings.frame_completion_seconds_max)

    def _update_reading(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        is_full = self.session.wants_room or self.session.is_muted or self._is_queued
        is_busy = self._gate is not None and self._gate.is_busy
        pause = not self._is_writable or is_full or is_busy or self._is_draining
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
            has_requests=self.session.in_flight > 0,
        )

    def _mute(self, wait_ms: int) -> None:
        """Read and handle nothing for a time; answers still go out."""
        state, times = self._state, self._times
        self.session.is_muted = True
        times.muted_until = max(times.muted_until, state.loop.time() + wait_ms / 1000)
        state.check_by(self, times.muted_until)
        # Not now: some event loops begin to read from a new connection only after this.
        state.loop.call_soon(self._update_reading)

    def _end_mute(self) -> None:
        if self._is_held:
            self.abort()
        else:
            self.session.is_muted = False
            self._resume()

    def resume_reading(self) -> None:
        """Go on reading if it was paused."""
        if self._reads_paused:
            self._resume_soon()

    def _resume_soon(self) -> None:
        self._resumes = True
        self._state.loop.call_soon(self._resume)

    def _resume(self) -> None:
        """A bound that held this connection back may be gone: handle the received requests."""
        self._resumes = False
        if self.session.is_closed:
            return
        self.session.resumed()
        self._handle_requests()

    # --- Identity ---

    def secured(self, certificate: bytes | None) -> None:
        """The TLS handshake is complete; `certificate` is the client's, in DER."""
        try:
            principal = self._entrance.identity_in(certificate)
        except PenstockError as error:
            logger.info("closing the connection from %s: %s", self._address, error)
            self.abort()
        else:
            self.session.meet(self.session.peer._replace(principal=principal), is_open=True)

    # --- Answers and endings ---

    def write(self, buffers: list[Buffer], size_bytes: int) -> None:
        """Send the buffers, `size_bytes` in total, unless the connection is closing."""
        state = self._state
        if self._transport is None or self._transport.is_closing():
            return
        state.sent.value += size_bytes
        if self._sender is not None and self._sender.left_bytes:
            self._sender.add(buffers)
        elif state.may_send_files(self._transport, buffers, size_bytes):
            self._sender = FileSender(self, state.loop, state.dispatcher, self._transport)
            self._sender.begin(buffers)
        elif len(buffers) == 1:
            self._transport.write(buffers[0])
        else:
            self._transport.writelines(buffers)
        if not self._is_writable:
            # All of it, although the kernel has a part: it is freed only when all is sent.
            self._unsent.set(self._unsent.count_bytes + size_bytes)
        self._close_if_drained()

    def _close_if_drained(self) -> None:
        if self._is_draining and self._is_drained():
            assert self._transport is not None
            self._transport.close()

    def _is_drained(self) -> bool:
        """Whether all complete requests are answered."""
        waits = self.session.in_flight or self.session.wants_room
        waits = waits or self._resumes or self._is_queued
        return not (waits or left_bytes(self._sender))

    def _peer_was_wrong(self, error: PeerError) -> None:
        self._state.endings.count_broken(error, self._address)
        self.abort()

    def abort(self) -> None:
        """Drop the connection at once."""
        if self._sender is not None:
            self._sender.close()
        if self._transport is not None:
            self._transport.abort()
        if self._gate is not None:
            self._gate.end()
        self.session.close()

    def check_time(self, now: float) -> None:
        """Close the connection if a time limit has passed, else schedule the next check."""
        assert self._transport is not None
        if self.session.is_muted and now >= self._times.muted_until:
            self._end_mute()
        unsent: int | None = None
        if not self._is_writable:
            unsent = left_bytes(self._sender) + unsent_bytes(self._transport)
        reason = self._times.used_up(
            now, self._state.settings, unsent, is_answered=not self.session.in_flight
        )
        if reason:
            self._state.endings.count_timed_out(reason, self._address)
            self.abort()
        else:
            self._state.check_by(self, self.next_check(now))

    def next_check(self, now: float) -> float:
        """When a time limit may be used up at the earliest."""
        return self._times.next_check(
            now,
            self._state.settings,
            is_answered=not self.session.in_flight,
            is_muted=self.session.is_muted,
            is_stalled=not self._is_writable,
        )

    # --- Shutdown ---

    def finish(self) -> None:
        """Accept no more requests; close when the accepted ones are answered."""
        if self._transport is None or self._transport.is_closing():
            return
        self._is_draining = True
        if self.session.is_muted:
            self._end_mute()  # received requests are answered now, whatever the quota
        self._update_reading()
        self._close_if_drained()
