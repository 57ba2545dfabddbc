"""`RegistryHttp`: calls to the registry, for nodes and for commands.

One connection for each call: a node polls every 30 s, and the registry has thousands of them.
Guarantees: one deadline for the whole call, also for a peer that sends a byte a minute; a bound on
the answer before it is stored; redirects and proxies are not followed, so a token goes only to the
host of the URL. Every failure is a `RegistryUnreachableError` with its reason.
"""

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import h11

from penstock.edge.registry.registry_errors import RegistryUnreachableError

CALL_SECONDS_MAX: Final = 20.0
"""For one call: longer than the time limit of the registry for a request."""
ANSWER_BYTES_MAX: Final = 262_144
HEAD_BYTES_MAX: Final = 16_384
_READ_BYTES: Final = 65_536
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The answer to a call."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name; the last of several with one name."""
    body: bytes


def url_problem(url: str) -> str | None:
    """Return why a text is not the URL of a registry; None if it is."""
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url or not url.isascii() or not url.isprintable() or " " in url:
        return "is not a URL such as https://registry.example.com:8070"
    if parts.username is not None or parts.query or parts.fragment:
        return "has a user, a query or a fragment, which the URL of a registry does not have"
    return None


class RegistryHttp:
    """The registry at one URL."""

    def __init__(
        self,
        url: str,
        context: ssl.SSLContext | None = None,
        *,
        seconds_max: float = CALL_SECONDS_MAX,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
    ) -> None:
        """`context` is the TLS of an https URL; None uses the authorities of the system."""
        assert url_problem(url) is None, url
        self.url = url.rstrip("/")
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        self._host = parts.hostname
        self._port = parts.port or _PORTS[parts.scheme]
        self._name = parts.netloc
        self._prefix = parts.path
        self._context = context
        if parts.scheme == "https" and context is None:
            self._context = ssl.create_default_context()
        self._seconds_max = seconds_max
        self._answer_bytes_max = answer_bytes_max

    async def call(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> HttpAnswer:
        """Return the answer of any status; raise `RegistryUnreachableError` without one."""
        try:
            async with asyncio.timeout(self._seconds_max):
                return await self._call(method, path, dict(headers or {}), body)
        except TimeoutError as error:
            raise self._unreachable(f"no answer within {self._seconds_max:.0f} s") from error
        except (OSError, h11.ProtocolError, asyncio.IncompleteReadError) as error:
            # The text of TLS errors names the cause: an unknown authority, an expired certificate.
            raise self._unreachable(str(error) or type(error).__name__) from error

    async def _call(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None
    ) -> HttpAnswer:
        # One buffer of this size; the stream stops reading above it.
        reader, writer = await asyncio.open_connection(
            self._host, self._port, ssl=self._context, limit=_READ_BYTES
        )
        try:
            machine = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
            headers |= {"host": self._name, "connection": "close", "accept": "application/json"}
            if body is not None:
                headers |= {"content-type": "application/json", "content-length": str(len(body))}
            target = f"{self._prefix}{path}"
            request = h11.Request(method=method, target=target, headers=list(headers.items()))
            writer.write(machine.send(request) or b"")
            if body is not None:
                writer.write(machine.send(h11.Data(data=body)) or b"")
            writer.write(machine.send(h11.EndOfMessage()) or b"")
            await writer.drain()
            return await self._receive(machine, reader)
        finally:
            writer.close()
            with suppress(OSError):
                # The transport is closed: it waits only for the loop to call back.
                writer.transport.abort()

    async def _receive(self, machine: h11.Connection, reader: asyncio.StreamReader) -> HttpAnswer:
        response: h11.Response | None = None
        body = bytearray()
        while True:
            event = machine.next_event()
            if event is h11.NEED_DATA:
                machine.receive_data(await reader.read(_READ_BYTES))
            elif isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > self._answer_bytes_max:
                    raise self._unreachable(
                        f"its answer has more than {self._answer_bytes_max} bytes"
                    )
            elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                break
        if response is None:
            raise self._unreachable("it closed the connection without an answer")
        named = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in response.headers
        }
        return HttpAnswer(response.status_code, named, bytes(body))

    def _unreachable(self, reason: str) -> RegistryUnreachableError:
        return RegistryUnreachableError(
            f"the registry {self.url} cannot be used: {reason}",
            hint="Check that it runs and that its URL is right (registry.url, --registry).",
        )
