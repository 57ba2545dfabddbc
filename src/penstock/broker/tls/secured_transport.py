"""`TlsTransport`: the sending half of a TLS connection, an `asyncio.Transport` around the socket's.

Answers are encrypted in steps of `ENCRYPT_BYTES_MAX`, directly before they are sent. Guarantees:

- while the socket does not accept more, answers wait as references (`PlaintextQueue`). The memory
  of a slow reader is its answers and one step of ciphertext;
- the connection above is paused while the socket is paused or an answer waits, and resumed when
  all is sent, each time once. `get_write_buffer_size` counts the waiting answers too;
- one turn of the event loop encrypts `ENCRYPT_TURN_BYTES_MAX` of one connection at most;
- records that are no longer in the page cache are loaded on a storage thread; the loop never waits
  for the disk;
- `close` sends what waits, then close_notify, then closes; `abort` drops everything at once;
- OpenSSL keeps no session after its connection (`_may_be_cached`).

Both buffers of `TlsListener` are empty whenever a method returns or calls another object: they
belong to all connections. It does NOT receive: `layer` does.
"""

import asyncio
import logging
import ssl
from collections.abc import Iterable
from typing import Any, Protocol, cast

from penstock.broker.tls.plaintext_queue import FilePart, PlaintextQueue
from penstock.broker.tls.tls_limits import (
    ENCRYPT_BYTES_MAX,
    ENCRYPT_TURN_BYTES_MAX,
    JOIN_BYTES_MAX,
)
from penstock.broker.tls.tls_listener import SecuredProtocol, TlsListener
from penstock.core.cancellation import Cancellation
from penstock.protocol.encoder_source import Buffer
from penstock.storage.disk.file_range import is_in_file

logger = logging.getLogger(__name__)


class ReceivingHalf(Protocol):
    """The other half of the connection."""

    def pause_reading(self) -> None:
        """Deliver no more bytes."""
        ...

    def resume_reading(self) -> None:
        """Deliver bytes again; bytes that were received before come first."""
        ...

    @property
    def is_reading(self) -> bool:
        """Whether bytes are delivered."""
        ...

    def break_off(self, error: ssl.SSLError) -> None:
        """End the connection for an error of TLS."""
        ...


def _may_be_cached(secured: ssl.SSLObject) -> bool:
    """Whether the session may be in OpenSSL's cache, as for a client of TLS 1.2 without tickets.

    The cache keeps 20,000 sessions for two hours, each with the client's certificates: a gigabyte.
    Python cannot switch it off. OpenSSL removes a session whose connection ends without
    close_notify, as TLS 1.0 required, so these connections end that way. Kafka's frames have
    lengths: no client takes a cut answer for a whole one. (`SSLObject.session` would be exact, and
    it leaks 6 KB in Python 3.11.)
    """
    return secured.version() == "TLSv1.2" and secured.context.session_stats()["number"] > 0


class TlsTransport(asyncio.Transport):
    """Encrypts and sends the answers of one connection."""

    __slots__ = (
        "_inner",
        "_is_closing",
        "_is_continuing",
        "_is_inner_paused",
        "_is_raw_paused",
        "_loading",
        "_queue",
        "_raw",
        "_receiver",
        "_shared",
        "_ssl",
        "_waits_for_peer",
    )

    def __init__(
        self,
        raw: asyncio.Transport,
        shared: TlsListener,
        inner: SecuredProtocol,
        receiver: ReceivingHalf,
    ) -> None:
        # Without asyncio's own constructor: it would create a dictionary for each connection.
        self._raw = raw
        self._shared = shared
        self._inner = inner
        self._receiver: ReceivingHalf | None = receiver
        self._ssl: ssl.SSLObject | None = None
        self._queue: PlaintextQueue | None = None
        """Created with the first answer that has to wait; most connections never have one."""
        self._is_raw_paused = False
        self._is_inner_paused = False
        self._is_closing = False
        self._is_continuing = False
        self._waits_for_peer = False
        """OpenSSL has received half of a message about keys and sends nothing before its end."""
        self._loading: Cancellation | None = None

    # --- Called by the receiving half ---

    def begin(self, secured: ssl.SSLObject) -> None:
        """Use this session from now on: its handshake is complete."""
        self._ssl = secured

    def pause_raw(self) -> None:
        """The socket accepts no more."""
        self._is_raw_paused = True
        self._update_inner()

    def resume_raw(self) -> None:
        """The socket accepts more."""
        self._is_raw_paused = False
        self._flush()

    def hear_peer(self) -> None:
        """Bytes of the peer were decrypted: an answer that waited for them can be encrypted."""
        if self._waits_for_peer:
            self._waits_for_peer = False
            self._flush()

    def lose(self) -> None:
        """Release everything: the connection is gone."""
        self._is_closing = True
        self._drop()
        self._receiver = None
        self._ssl = None

    # --- Sending ---

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send; what the socket does not accept at once waits as a reference."""
        if self._is_closing or not data:
            return
        if not self._has_to_wait() and len(data) <= ENCRYPT_BYTES_MAX and not is_in_file(data):
            self._encrypt([data])
            return
        self._add((data,))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Encrypt and send several buffers; small ones are joined."""
        buffers: list[Buffer] = list(list_of_data)
        if self._is_closing:
            return
        if not self._has_to_wait() and 0 < sum(map(len, buffers)) <= JOIN_BYTES_MAX:
            self._encrypt([b"".join(buffers)])
            return
        self._add(buffers)

    def _has_to_wait(self) -> bool:
        queue = self._queue
        return self._is_raw_paused or (queue is not None and queue.size_bytes > 0)

    def _add(self, buffers: Iterable[Buffer]) -> None:
        if self._queue is None:
            self._queue = PlaintextQueue()
        self._queue.add(buffers)
        self._flush()

    def _encrypt(self, pieces: list[Buffer]) -> bool:
        """Encrypt and send pieces; return whether that succeeded."""
        assert self._ssl is not None, "an answer before the handshake"
        write, outgoing = self._ssl.write, self._shared.outgoing
        done = 0
        error: ssl.SSLError | None = None
        try:
            for piece in pieces:
                write(piece)
                done += 1
        except ssl.SSLWantReadError:
            self._waits_for_peer = True
        except ssl.SSLError as caught:
            error = caught
        finally:
            ciphertext = outgoing.read()
        if ciphertext:
            self._raw.write(ciphertext)
        if done == len(pieces):
            return True
        if error is not None:
            assert self._receiver is not None
            self._receiver.break_off(error)
        else:
            if self._queue is None:
                self._queue = PlaintextQueue()
            self._queue.put_back([memoryview(piece) for piece in pieces[done:]])
            self._update_inner()
        return False

    def _flush(self) -> None:
        """Encrypt what waits, as long as the socket accepts it and for one turn at most."""
        queue = self._queue
        left = ENCRYPT_TURN_BYTES_MAX
        while queue is not None and queue.size_bytes and self._may_encrypt():
            if left <= 0:
                self._continue_soon()
                break
            try:
                pieces = queue.take(self._shared.scratch)
            except OSError as error:
                self._break_answer(error)
                return
            if not pieces:
                self._load(queue)
                break
            left -= sum(map(len, pieces))
            if not self._encrypt([*pieces]):
                break
        self._update_inner()
        if self._is_closing and not self._has_queued():
            self._finish_close()

    def _may_encrypt(self) -> bool:
        return not (
            self._is_raw_paused
            or self._waits_for_peer
            or self._loading is not None
            or self._raw.is_closing()
        )

    def _has_queued(self) -> bool:
        return self._queue is not None and self._queue.size_bytes > 0

    def _continue_soon(self) -> None:
        if not self._is_continuing:
            self._is_continuing = True
            self._shared.loop.call_soon(self._continue)

    def _continue(self) -> None:
        self._is_continuing = False
        self._flush()

    def _update_inner(self) -> None:
        """Pause or resume the connection above, if that has changed."""
        is_paused = self._has_to_wait()
        if is_paused == self._is_inner_paused:
            return
        self._is_inner_paused = is_paused
        if is_paused:
            self._inner.pause_writing()
        elif not self._raw.is_closing():
            self._inner.resume_writing()

    # --- Records that are not in memory ---

    def _load(self, queue: PlaintextQueue) -> None:
        part = queue.cold_part()
        assert isinstance(part, FilePart), "only files are not in memory"
        loading = self._loading = Cancellation()

        def loaded(error: Exception | None) -> None:
            if loading.is_cancelled:
                return
            self._loading = None
            if error is None:
                self._flush()
            else:
                self._break_answer(error)

        self._shared.loader.load_cold(part.load, loaded, loading)

    def _break_answer(self, error: Exception) -> None:
        logger.info("closing a connection whose answer cannot be sent: %s", error)
        self.abort()

    # --- Ending ---

    def close(self) -> None:
        """Send what waits and close_notify, then close."""
        if self._is_closing:
            return
        self._is_closing = True
        if self._receiver is not None:
            self._receiver.pause_reading()
        if not self._has_queued():
            self._finish_close()

    def _finish_close(self) -> None:
        if self._raw.is_closing():
            return
        if self._ssl is not None and not _may_be_cached(self._ssl):
            self._notify_close(self._ssl)
        self._raw.close()

    def _notify_close(self, secured: ssl.SSLObject) -> None:
        try:
            secured.unwrap()
        except ssl.SSLError:
            # It waits for the peer's own close_notify, or the session has failed before.
            pass
        finally:
            notice = self._shared.outgoing.read()
        if notice:
            self._raw.write(notice)

    def abort(self) -> None:
        """Close at once, and drop what waits."""
        self._is_closing = True
        self._drop()
        self._raw.abort()

    def _drop(self) -> None:
        if self._queue is not None:
            self._queue.clear()
        loading, self._loading = self._loading, None
        if loading is not None:
            loading.cancel()

    @property
    def is_ended(self) -> bool:
        """Whether the connection above has closed or aborted this one."""
        return self._is_closing

    def is_closing(self) -> bool:
        """Whether `close` or `abort` was called, or the connection is gone."""
        return self._is_closing or self._raw.is_closing()

    # --- Reading: of the other half ---

    def pause_reading(self) -> None:
        """Deliver no more bytes."""
        if self._receiver is not None:
            self._receiver.pause_reading()

    def resume_reading(self) -> None:
        """Deliver bytes again."""
        if self._receiver is not None and not self._is_closing:
            self._receiver.resume_reading()

    def is_reading(self) -> bool:
        """Whether bytes are delivered."""
        return self._receiver is not None and self._receiver.is_reading

    # --- The rest of asyncio's transports ---

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set when the socket counts as slow, in bytes of ciphertext."""
        self._raw.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the low and the high limit."""
        return self._raw.get_write_buffer_limits()

    def get_write_buffer_size(self) -> int:
        """Return the bytes that the socket has not accepted, encrypted or not."""
        queued = 0 if self._queue is None else self._queue.size_bytes
        return queued + self._raw.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        """Return False: a TLS connection ends in both directions."""
        return False

    def write_eof(self) -> None:
        """Raise: a TLS connection ends in both directions."""
        raise NotImplementedError("a TLS connection has no end of one direction")

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the connection above."""
        return cast("asyncio.BaseProtocol", self._inner)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Raise: the connection above belongs to the handshake, and cannot be replaced."""
        raise NotImplementedError("the protocol of a TLS connection cannot be replaced")

    def get_extra_info(self, name: str, default: object = None) -> Any:  # noqa: ANN401 (asyncio's)
        """Return a value of the socket's transport, or `cipher` or `tls_version` of the session."""
        if self._ssl is not None and name == "cipher":
            return self._ssl.cipher()
        if self._ssl is not None and name == "tls_version":
            return self._ssl.version()
        return self._raw.get_extra_info(name, default)
