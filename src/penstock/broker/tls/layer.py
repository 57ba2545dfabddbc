"""`TlsLayer`: the receiving half of a TLS connection, and its handshake.

It lies between the socket's transport and the listener's connection, because the loops' own TLS
shows a connection only after its handshake: no limit on connections would see a silent one.
Guarantees:

- the connection above exists as soon as the socket is connected (`connection_made`), and gets no
  byte before the handshake is complete and the client's certificate is verified (`secured`);
- a session that is resumed is not accepted after its client's certificate has expired;
- a connection in its handshake has a place in `HandshakeTurns`, which bounds their number and time.
  Before its first whole record it has no TLS state;
- a client whose first byte is not TLS is closed at once. A failed handshake is counted by reason;
  the client gets OpenSSL's alert;
- decrypted bytes go directly into the buffer of the connection above. While that connection has
  paused reading, nothing is decrypted, and at most one read of ciphertext is kept;
- decrypting is bounded by the turns of the event loop, as requests are (`pacing.turns`): a client
  that sends tiny records, or messages about keys, waits for its turn and is not read meanwhile;
- a peer that ends with or without close_notify has sent its end: answers still go out.

Both buffers of `TlsListener` are empty whenever a method returns or calls another object, so no
byte of one connection can reach another. It does NOT send: `secured_transport` does.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterator
from typing import Final, cast

from penstock.broker.tls.handshake_failures import (
    BAD_CERTIFICATE,
    BAD_RECORD,
    ENDED_BY_CLIENT,
    NOT_TLS,
    TOO_LARGE,
    reason_of,
)
from penstock.broker.tls.handshakes import is_hello, whole_records
from penstock.broker.tls.record_pieces import PIECE_BYTES_MIN, piece_end
from penstock.broker.tls.secured_transport import TlsTransport
from penstock.broker.tls.tls_limits import (
    BARREN_BYTES_MAX,
    HANDSHAKE_BYTES_MAX,
    HANDSHAKE_READ_BYTES,
    SHORT_READ_EXTRA_BYTES,
)
from penstock.broker.tls.tls_listener import SecuredProtocol, TlsListener

_NOTHING: Final = b""


class TlsLayer(asyncio.BufferedProtocol):
    """Receives for one connection: its handshake, then its decrypted bytes."""

    __slots__ = (
        "_barren_bytes",
        "_handshake_bytes",
        "_has_content",
        "_has_ended",
        "_has_notice",
        "_has_place",
        "_has_unread",
        "_held",
        "_inner",
        "_is_handshaking",
        "_is_paused",
        "_is_secured",
        "_is_waiting",
        "_peer_has_ended",
        "_raw",
        "_record_left",
        "_shared",
        "_ssl",
        "_transport",
        "address",
        "turn_seconds",
        "turn_tag",
    )

    def __init__(self, shared: TlsListener, inner: SecuredProtocol) -> None:
        self._shared = shared
        self._inner = inner
        self._raw: asyncio.Transport | None = None
        self._transport: TlsTransport | None = None
        self.address = ""
        self._ssl: ssl.SSLObject | None = None
        self._is_handshaking = False
        self._has_place = False
        """Whether this handshake may take steps; before that it waits without being read."""
        self._is_secured = False
        self._handshake_bytes = 0
        self._held = _NOTHING
        """Received bytes that OpenSSL does not have yet."""
        self._has_unread = False
        """Whether OpenSSL has decrypted bytes that did not fit into the last buffer."""
        self._has_content = False
        """Whether the peer has sent any content."""
        self._barren_bytes = 0
        """Bytes received since the last content: records about keys cost CPU and deliver none."""
        self._record_left = 0
        """Bytes that the record lacks of which OpenSSL has a part."""
        self._is_paused = False
        self._is_waiting = False
        """Whether held bytes wait for a later turn of the event loop."""
        self.turn_tag = 0.0
        self.turn_seconds = 0.0
        self._peer_has_ended = False
        """The end of the peer was received; it is reported after all bytes before it."""
        self._has_notice = False
        """The peer's close_notify was received: bytes behind it are ignored."""
        self._has_ended = False
        """The end of the peer was reported, or this side has ended the connection."""

    # --- Called by the event loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected: the connection above learns it before the handshake."""
        raw = self._raw = cast("asyncio.Transport", transport)
        peer = raw.get_extra_info("peername")
        self.address = peer[0] if isinstance(peer, tuple) else ""
        self._transport = TlsTransport(raw, self._shared, self._inner, self)
        self._inner.connection_made(self._transport)
        if not self._transport.is_closing():
            self._is_handshaking = True
            self._shared.handshakes.begin(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes of the socket; all connections share it."""
        shared = self._shared
        if not self._is_secured:
            return shared.arena[:HANDSHAKE_READ_BYTES]
        if shared.is_memory_short():
            wanted = len(self._inner.get_buffer(sizehint))
            return shared.arena[: wanted + SHORT_READ_EXTRA_BYTES]
        return shared.arena

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes of the socket were received."""
        received = self._shared.arena[:nbytes]
        if self._is_secured:
            self._decrypt(received)
        else:
            self._collect(received)

    def eof_received(self) -> bool:
        """The peer will send no more, with or without close_notify."""
        if not self._is_secured:
            self._fail(ENDED_BY_CLIENT)
            return False
        self._peer_has_ended = True
        self._decrypt(_NOTHING)
        # The transport stays: the connection above closes it when its answers are sent.
        return self._transport is not None and not self._transport.is_closing()

    def pause_writing(self) -> None:
        """The socket accepts no more."""
        if self._transport is not None:
            self._transport.pause_raw()

    def resume_writing(self) -> None:
        """The socket accepts more."""
        if self._transport is not None:
            self._transport.resume_raw()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        transport, self._transport = self._transport, None
        if self._is_handshaking and transport is not None and not transport.is_ended:
            self._shared.failures.count(ENDED_BY_CLIENT)
        self._end_handshake()
        self._has_ended = True
        self._inner.connection_lost(exc)
        if transport is not None:
            transport.lose()
        # No object here waits for the garbage collector.
        self._ssl = None
        self._held = _NOTHING
        self._raw = None

    # --- The handshake ---

    def _collect(self, received: memoryview) -> None:
        """Keep bytes of the handshake until a whole record is there and it is this one's turn."""
        if not self._is_handshaking:
            return
        self._held += received
        self._handshake_bytes += len(received)
        if self._ssl is None and not is_hello(self._held):
            self._fail(NOT_TLS, f"its first bytes are {self._held[:8].hex(' ')}")
        elif self._handshake_bytes > HANDSHAKE_BYTES_MAX:
            self._fail(TOO_LARGE, f"it sent more than {HANDSHAKE_BYTES_MAX} bytes")
        else:
            self._ask_for_step()

    def _ask_for_step(self) -> None:
        if self._is_paused or not self._has_place:
            # The kernel keeps the bytes that follow.
            self._pause_raw()
        elif whole_records(self._held):
            self._shared.handshakes.ask_for_step(self)

    def admit(self) -> None:
        """Begin: this handshake has a place now."""
        self._has_place = True
        if not self._is_paused:
            self._resume_raw()
        if self._held:
            self._ask_for_step()

    def step(self) -> None:
        """Take the next step of the handshake: this is its turn."""
        if not self._is_handshaking or self._is_paused:
            return
        end = whole_records(self._held)
        records, self._held = self._held[:end], self._held[end:]
        shared = self._shared
        if self._ssl is None:
            context = shared.context_source()
            self._ssl = context.wrap_bio(shared.incoming, shared.outgoing, server_side=True)
        error: ssl.SSLError | None = None
        is_done = False
        try:
            shared.incoming.write(records)
            self._ssl.do_handshake()
            is_done = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as caught:
            error = caught
        finally:
            answer = shared.outgoing.read()
            self._held = shared.incoming.read() + self._held
        if answer and self._raw is not None:
            self._raw.write(answer)
        if error is not None:
            self._fail(*reason_of(error))
        elif is_done:
            with self._ended_by_defects():
                self._become_secured()

    def _become_secured(self) -> None:
        assert self._ssl is not None
        assert self._transport is not None
        certificate = self._ssl.getpeercert(binary_form=True)
        # A resumed session is not verified again, and its certificate may have expired since.
        if self._ssl.session_reused and self._shared.is_expired(certificate):
            self._fail(BAD_CERTIFICATE, "it has expired since the session began")
            return
        self._end_handshake()
        self._shared.failures.completed += 1
        self._is_secured = True
        self._transport.begin(self._ssl)
        self._inner.secured(certificate)
        self._decrypt(_NOTHING)

    def _end_handshake(self) -> None:
        if self._is_handshaking:
            self._is_handshaking = False
            self._shared.handshakes.end(self)

    def end(self, reason: str) -> None:
        """End the connection: its handshake has no place any more."""
        self._fail(reason)

    def _fail(self, reason: str, detail: str = "") -> None:
        """End a connection whose handshake failed; an alert that was written is sent."""
        if not self._is_handshaking:
            return
        self._end_handshake()
        self._has_ended = True
        self._held = _NOTHING
        self._shared.failures.note(reason, self.address, detail, self._shared.loop.time())
        if self._raw is not None:
            self._raw.close()

    # --- Decrypted bytes ---

    def _decrypt(self, received: memoryview | bytes) -> None:
        """Deliver the content of these bytes and of bytes that were held before them."""
        if self._held:
            received = memoryview(self._held + received)
            self._held = _NOTHING
        if self._is_waiting:
            self._held = bytes(received)
            return
        turns = self._shared.turns
        spent, has_to_wait = self._decrypt_for(turns.slice_seconds(self), received)
        turns.spend(self, spent)
        if self._is_over:
            self._has_unread = False
            return
        if has_to_wait:
            self._is_waiting = True
            turns.join(self, spent)
            return
        assert self._transport is not None
        self._transport.hear_peer()
        if self._peer_has_ended and not self._is_paused:
            self._report_end()

    def _decrypt_for(self, seconds: float, received: memoryview | bytes) -> tuple[float, bool]:
        """Deliver content within this time, and hold the bytes that are left.

        Return the time used, and whether the rest has to wait for another turn.
        """
        read_seconds = self._shared.read_seconds
        position, end, spent, has_to_wait = 0, len(received), 0.0, False
        while (position < end or self._has_unread) and not self._is_over:
            has_to_wait = spent >= seconds
            if self._is_paused or has_to_wait:
                self._pause_raw()
                break
            buffer = self._inner.get_buffer(-1)
            size_max = max(len(buffer), PIECE_BYTES_MIN) if self._has_content else PIECE_BYTES_MIN
            stop, record_left = piece_end(received, position, size_max, self._record_left)
            if stop == position and not self._has_unread:
                break  # a part of a header
            began = read_seconds() - spent
            count, unused = self._decrypt_into(buffer, received[position:stop], began + seconds)
            spent = read_seconds() - began
            self._record_left = 0 if unused else record_left
            self._barren_bytes += stop - unused - position
            position = stop - unused
            if count:
                self._has_content, self._barren_bytes = True, 0
                self._inner.buffer_updated(count)
            elif self._barren_bytes > BARREN_BYTES_MAX and not self._is_over:
                self._break_off("too many records without content")
            if self._has_notice:
                return spent, False
        if position < end and not self._is_over:
            self._held = bytes(received[position:])
        return spent, has_to_wait

    def _decrypt_into(
        self, buffer: memoryview, piece: memoryview | bytes, until: float
    ) -> tuple[int, int]:
        """Fill the buffer with content; return its size, and the bytes of the piece left over."""
        assert self._ssl is not None
        shared = self._shared
        incoming, pending = shared.incoming, self._ssl.pending
        # With a buffer it returns a number, unlike in the types of the standard library.
        read = cast("Callable[[int, memoryview], int]", self._ssl.read)
        read_seconds, room, filled = shared.read_seconds, len(buffer), 0
        error: ssl.SSLError | None = None
        try:
            incoming.write(piece)
            while filled < room and (incoming.pending or pending()):
                count = read(room - filled, buffer[filled:])
                if not count:
                    self._peer_has_ended = self._has_notice = True
                    break
                filled += count
                # Each read may wait for a busy thread: OpenSSL's calls release Python's lock.
                if read_seconds() >= until:
                    break
            self._has_unread = pending() > 0
        except ssl.SSLWantReadError:
            self._has_unread = False
        except ssl.SSLError as caught:
            error = caught
        finally:
            # Whole records for which there was no room or no time; the caller has them still.
            unused = len(incoming.read()) if incoming.pending else 0
            answer = shared.outgoing.read() if shared.outgoing.pending else _NOTHING
        if answer and self._raw is not None:
            self._raw.write(answer)  # of a message about keys
        if error is not None:
            self.break_off(error)
            return 0, 0
        return filled, unused

    def _report_end(self) -> None:
        self._has_ended = True
        stays = self._inner.eof_received()
        if not stays and self._transport is not None:
            self._transport.close()

    def break_off(self, error: ssl.SSLError) -> None:
        """End the connection for an error of TLS after the handshake."""
        self._break_off(reason_of(error)[1])

    def _break_off(self, detail: str) -> None:
        self._has_ended = True
        self._shared.failures.note(BAD_RECORD, self.address, detail, self._shared.loop.time())
        if self._transport is not None:
            self._transport.abort()

    @property
    def _is_over(self) -> bool:
        """Whether nothing may be delivered any more: either side has ended the connection."""
        return self._has_ended or self._transport is None or self._transport.is_ended

    # --- Pauses and turns ---

    @property
    def is_reading(self) -> bool:
        """Whether bytes are delivered."""
        return not (self._is_paused or self._has_ended)

    def pause_reading(self) -> None:
        """Deliver no more bytes. Bytes of the handshake wait too."""
        self._is_paused = True
        self._pause_raw()

    def resume_reading(self) -> None:
        """Deliver bytes again; bytes that were received before come first, in a later turn."""
        if not self._is_paused:
            return
        self._is_paused = False
        if self._is_waiting:
            return
        if self._has_place:
            self._resume_raw()
        if self._held or self._has_unread or self._peer_has_ended:
            self._shared.loop.call_soon(self._continue)

    def continue_turn(self) -> None:
        """Go on with bytes that had to wait for another turn of the event loop."""
        self._is_waiting = False
        self._continue()
        if not (self._is_paused or self._is_waiting):
            self._resume_raw()

    def _continue(self) -> None:
        if self._is_paused or self._is_waiting or self._is_over:
            return
        if self._is_secured:
            with self._ended_by_defects():
                self._decrypt(_NOTHING)
        else:
            self._ask_for_step()

    @contextlib.contextmanager
    def _ended_by_defects(self) -> Iterator[None]:
        """End the connection if the connection above raises, as the socket's transport does."""
        try:
            yield
        except BaseException:
            if self._transport is not None:
                self._transport.abort()
            raise

    def _pause_raw(self) -> None:
        if self._raw is not None and not self._raw.is_closing():
            self._raw.pause_reading()

    def _resume_raw(self) -> None:
        if self._raw is not None and not self._raw.is_closing():
            self._raw.resume_reading()
