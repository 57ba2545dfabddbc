"""`TlsSocket`: a TLS connection with the calls of a plain socket that `transport.blocking` uses.

It differs from `ssl.SSLSocket` in three ways. `sendmsg` exists: small buffers share a TLS record.
Reading without waiting raises `BlockingIOError` as a plain socket does. A failure of TLS is an
`OSError` with OpenSSL's reason as its text; its cause is the `ssl.SSLError`.

Only connections with TLS import this module: `ssl` would slow down the start of every command.
"""

import socket
import ssl
from collections.abc import Iterable, Iterator
from typing import Final

from penstock.client.security.options import TlsOptions
from penstock.client.security.tls import build_context
from penstock.client.transport.addresses import Address
from penstock.client.transport.tls_errors import (
    WRONG_LISTENER,
    certificate_name,
    ended,
    tls_failure,
)
from penstock.core.errors import BrokerUnreachableError, ClientError
from penstock.protocol.encoder_source import Buffer

WRITE_BYTES_MAX: Final = 65_536
"""Bytes handed to TLS at once: four full records."""


def secure(opened: socket.socket, address: Address, options: TlsOptions) -> "TlsSocket":
    """Perform the TLS handshake within the socket's timeout; on failure close the socket."""
    try:
        name = certificate_name(address)
        secured = build_context(options).wrap_socket(opened, server_hostname=name)
    except ssl.SSLError as error:
        opened.close()
        raise tls_failure(address, error) from error
    except TimeoutError as error:
        opened.close()
        raise BrokerUnreachableError(
            f"the TLS handshake with {address} timed out.", hint=WRONG_LISTENER
        ) from error
    except OSError as error:
        opened.close()
        raise ended(address) from error
    except BaseException:
        opened.close()
        raise
    return TlsSocket(secured)


def late_failure(address: Address, error: BaseException) -> ClientError | None:
    """Return the TLS failure behind an error after the handshake; None for any other error.

    With TLS 1.3 the server judges the client's certificate after the client's handshake is done.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__
    return None if cause is None else tls_failure(address, cause)


class TlsSocket:
    """A TLS connection, used by one thread."""

    def __init__(self, secured: ssl.SSLSocket) -> None:
        self._socket = secured

    def settimeout(self, seconds: float) -> None:
        """Set the time limit of the next calls; 0: they do not wait."""
        self._socket.settimeout(seconds)

    def fileno(self) -> int:
        """Return the descriptor. Decrypted bytes may wait: read until `BlockingIOError` first."""
        return self._socket.fileno()

    def sendmsg(self, buffers: Iterable[Buffer]) -> int:
        """Send the first bytes of these buffers; return their number."""
        try:
            return self._socket.send(next(pieces(buffers, WRITE_BYTES_MAX)))
        except ssl.SSLError as error:
            raise _as_os_error(error) from error

    def recv_into(self, buffer: memoryview) -> int:
        """Read decrypted bytes; return their number, 0 at the end of the stream."""
        try:
            return self._socket.recv_into(buffer)
        except ssl.SSLWantReadError as error:
            raise BlockingIOError from error
        except ssl.SSLError as error:
            raise _as_os_error(error) from error

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def pieces(buffers: Iterable[Buffer], bytes_max: int) -> Iterator[Buffer]:
    """Yield the bytes of all buffers in pieces of at most `bytes_max`; small ones are joined."""
    joined = bytearray()
    for buffer in buffers:
        if len(buffer) + len(joined) <= bytes_max:
            joined += buffer
            continue
        if joined:
            yield bytes(joined)
            joined.clear()
        view = memoryview(buffer)
        whole = len(view) - len(view) % bytes_max
        for start in range(0, whole, bytes_max):
            yield view[start : start + bytes_max]
        joined += view[whole:]
    if joined:
        yield bytes(joined)


def _as_os_error(error: ssl.SSLError) -> OSError:
    words = (error.reason or "the connection ended").lower().replace("_", " ")
    return OSError(None, f"TLS: {words}")
