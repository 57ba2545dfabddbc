"""`StatusServer`: metrics and health of a process by HTTP, for a scraper and for probes.

Guarantees: it answers `GET` of the paths that it has, one request by connection, and nothing else.
Every cost is bounded: connections, the bytes and the time of a request. It stops with the process,
and a failure of a page is an error 500, never an end of the process. It has no TLS and no login, so
it listens on loopback unless the user names another address.

It is not a web server: a request is read up to its empty line, and only its first line counts.
"""

import json
import socket
from collections.abc import Callable, Mapping
from threading import BoundedSemaphore, Event, Thread
from time import monotonic
from typing import Final, NamedTuple

from penstock.core.errors import ConfigError

CONNECTIONS_MAX: Final = 16
"""Two scrapers and a few probes use three at a time."""
REQUEST_BYTES_MAX: Final = 8_192
"""The headers of a scraper have 300 bytes."""
SECONDS_MAX: Final = 5.0
"""For one request with its answer; a page of metrics needs some milliseconds."""
BACKLOG: Final = 32
ACCEPT_SECONDS: Final = 0.5
"""How often the server looks whether it has to stop."""
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Page(NamedTuple):
    """An answer."""

    status: int
    content_type: str
    body: bytes


class Request(NamedTuple):
    """The parts of a request that pages use."""

    path: str
    accept: str


class RequestRefusedError(Exception):
    """The request is too large, too slow or malformed."""


Pages = Mapping[str, Callable[[Request], Page]]


class StatusServer:
    """A thread that accepts connections, and one for each connection."""

    def __init__(self, host: str, port: int, pages: Pages) -> None:
        """Listen; raise `ConfigError` if the address cannot be used."""
        self._pages = pages
        self._free = BoundedSemaphore(CONNECTIONS_MAX)
        self._is_closed = Event()
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            self._socket = socket.create_server((host, port), family=family, backlog=BACKLOG)
        except (OSError, OverflowError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"metrics cannot be served on {host}:{port}: {reason}. Set another --metrics-port "
                "or --metrics-host."
            ) from error
        self._socket.settimeout(ACCEPT_SECONDS)
        self._thread = Thread(target=self._accept, name="penstock-status", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port; with 0 the system chose one."""
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Stop listening; current answers end by themselves."""
        self._is_closed.set()
        self._thread.join()
        self._socket.close()

    def _accept(self) -> None:
        while not self._is_closed.is_set():
            try:
                connection, _ = self._socket.accept()
            except TimeoutError:
                continue
            except OSError:
                # A client that left at once, or no descriptor is free: neither lasts.
                self._is_closed.wait(ACCEPT_SECONDS)
                continue
            if not self._free.acquire(blocking=False):
                connection.close()
                continue
            try:
                Thread(target=self._serve, args=(connection,), daemon=True).start()
            except RuntimeError:  # no thread is free
                self._free.release()
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                until = monotonic() + SECONDS_MAX
                try:
                    page = self._page(read_request(connection, until))
                except RequestRefusedError as error:
                    page = plain(400, str(error))
                connection.settimeout(max(0.001, until - monotonic()))
                connection.sendall(_head(page) + page.body)
        except OSError:
            pass  # the client left, or did not read its answer in time
        finally:
            self._free.release()

    def _page(self, request: Request) -> Page:
        page = self._pages.get(request.path)
        if page is None:
            return plain(404, f"there is no such page; pages are {', '.join(self._pages)}")
        try:
            return page(request)
        except Exception as error:  # noqa: BLE001 - a page must never stop the pipeline
            return plain(500, f"{type(error).__name__}: {error}")


def read_request(connection: socket.socket, until: float) -> Request:
    """Read one request; raise `RequestRefusedError` if it is not acceptable."""
    data = b""
    while b"\r\n\r\n" not in data:
        left = until - monotonic()
        if left <= 0:
            raise RequestRefusedError(f"the request took over {SECONDS_MAX:g} seconds")
        if len(data) >= REQUEST_BYTES_MAX:
            raise RequestRefusedError(f"the request has over {REQUEST_BYTES_MAX} bytes")
        connection.settimeout(left)
        try:
            more = connection.recv(min(4_096, REQUEST_BYTES_MAX - len(data)))
        except TimeoutError:
            continue
        if not more:
            raise RequestRefusedError("the request ended before its empty line")
        data += more
    return parse_request(data.partition(b"\r\n\r\n")[0].decode("latin-1"))


def parse_request(head: str) -> Request:
    """Return the request in its head."""
    first, *fields = head.split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        raise RequestRefusedError("this is not a request of HTTP/1")
    if words[0] != "GET":
        raise RequestRefusedError(f"only GET is served, and not {words[0][:20]}")
    named = (field.partition(":") for field in fields)
    accept = next((text.strip() for name, _, text in named if name.lower() == "accept"), "")
    return Request(words[1].partition("?")[0], accept)


def plain(status: int, text: str) -> Page:
    """Return a page with one line."""
    return Page(status, "text/plain; charset=utf-8", f"{text}\n".encode())


def document(status: int, value: object) -> Page:
    """Return a page with a JSON document."""
    return Page(status, "application/json", json.dumps(value).encode() + b"\n")


def _head(page: Page) -> bytes:
    lines = (
        f"HTTP/1.1 {page.status} {_REASONS[page.status]}",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {len(page.body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
        "\r\n",
    )
    return "\r\n".join(lines).encode()
