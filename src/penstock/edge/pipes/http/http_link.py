"""`HttpLink`: GET requests of a pipe to its parent, over one connection that is kept open.

Guarantees: one deadline for the whole call, also for a peer that sends a byte a minute; a bound on
the answer before it is stored; redirects and proxies are not followed, so a password goes only to
the host of the URL, and only over TLS or to this machine. Every failure is a
`BrokerUnreachableError` with its reason. Calls wait for each other.
"""

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import h11

from penstock.core.errors import BrokerUnreachableError

HEAD_BYTES_MAX: Final = 16_384
_READ_BYTES: Final = 262_144
_PORTS: Final = {"http": 80, "https": 443}


class LinkAnswer(NamedTuple):
    """The answer to a call."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name; the last of several with one name."""
    body: bytes


class _Open(NamedTuple):
    machine: h11.Connection
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class HttpLink:
    """The parent at one URL."""

    def __init__(
        self,
        url: str,
        context: ssl.SSLContext | None,
        authorization: str | None,
        *,
        seconds_max: float,
        answer_bytes_max: int,
    ) -> None:
        self.url = url.rstrip("/")
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        self.host = parts.hostname
        self.port = parts.port or _PORTS[parts.scheme]
        self._name = parts.netloc
        self._prefix = parts.path
        self._context = context
        self._headers = {"host": self._name}
        if authorization is not None:
            self._headers["authorization"] = authorization
        self._seconds_max = seconds_max
        self._answer_bytes_max = answer_bytes_max
        self._open: _Open | None = None
        self._turn = asyncio.Lock()

    async def get(self, path: str, *, wait_seconds: float = 0.0) -> LinkAnswer:
        """Return the answer of any status; `wait_seconds` is the time that the parent may wait."""
        seconds = self._seconds_max + wait_seconds
        async with self._turn:
            try:
                async with asyncio.timeout(seconds):
                    return await self._get(path)
            except TimeoutError as error:
                raise self._lost(f"no answer within {seconds:.0f} s") from error
            except (OSError, h11.ProtocolError) as error:
                raise self._lost(str(error) or type(error).__name__) from error
            except BaseException:
                self._drop()
                raise

    async def _get(self, path: str) -> LinkAnswer:
        is_kept = self._open is not None
        try:
            return await self._exchange(path)
        except (OSError, h11.RemoteProtocolError):
            if not is_kept:
                raise
            # The parent has closed an idle connection. The request only reads, so it is repeated.
            self._drop()
            return await self._exchange(path)

    async def _exchange(self, path: str) -> LinkAnswer:
        if self._open is None:
            reader, writer = await asyncio.open_connection(
                self.host, self.port, ssl=self._context, limit=_READ_BYTES
            )
            machine = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
            self._open = _Open(machine, reader, writer)
        machine, reader, writer = self._open
        target = f"{self._prefix}{path}"
        request = h11.Request(method="GET", target=target, headers=list(self._headers.items()))
        writer.write(machine.send(request) or b"")
        writer.write(machine.send(h11.EndOfMessage()) or b"")
        await writer.drain()
        answer = await self._receive(machine, reader)
        if machine.our_state is h11.DONE and machine.their_state is h11.DONE:
            machine.start_next_cycle()
        else:
            self._drop()
        return answer

    async def _receive(self, machine: h11.Connection, reader: asyncio.StreamReader) -> LinkAnswer:
        response: h11.Response | None = None
        body = bytearray()
        while True:
            event = machine.next_event()
            if event is h11.NEED_DATA:
                data = await reader.read(_READ_BYTES)
                if not data and response is None:
                    raise ConnectionResetError("it closed the connection without an answer")
                machine.receive_data(data)
            elif isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > self._answer_bytes_max:
                    raise self._lost(f"its answer has more than {self._answer_bytes_max} bytes")
            elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                break
        assert response is not None, "h11 yields the response first"
        named = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in response.headers
        }
        return LinkAnswer(response.status_code, named, bytes(body))

    def _lost(self, reason: str) -> BrokerUnreachableError:
        self._drop()
        return BrokerUnreachableError(f"the parent {self.url} cannot be used: {reason}")

    def _drop(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened.writer.transport.abort()

    async def close(self) -> None:
        """Close the connection."""
        opened = self._open
        self._drop()
        if opened is not None:
            with suppress(OSError):
                await opened.writer.wait_closed()
