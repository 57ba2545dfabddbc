"""Proxies on loopback in front of a catalog or a store, for faults that the real ones lack.

`credential_proxy` is in front of a REST catalog: it hands out the keys that a test sets, which the
test can make invalid. `forgetful_store` is in front of an S3 store: its conditional writes do not
hold. Both forward everything else unchanged.
"""

import contextlib
import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.oracle.object_store import ObjectStore
from tests.oracle.running_broker import HOST

KEY = "s3.access-key-id"
SECRET = "s3.secret-access-key"
EXPIRES = "s3.session-token-expires-at-ms"
_OWN_HEADERS = {"transfer-encoding", "connection", "content-length", "content-encoding"}
_NOT_FORWARDED = {
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "transfer-encoding",
}
_TIMEOUT_SECONDS = 60.0


class Forwarder:
    """Forwards requests to a server on loopback; subclasses change them."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.server = ThreadingHTTPServer((HOST, 0), self._handler())
        self.server.daemon_threads = True
        self.address = f"http://{HOST}:{self.server.server_address[1]}"
        self.requests = 0

    def before(self, method: str, path: str, headers: Message) -> None:
        """See a request before it is forwarded."""

    def changed(self, body: bytes) -> bytes:
        """Return the body of an answer."""
        return body

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Forward one request."""
        self.requests += 1
        body = body_of(handler)
        self.before(handler.command, handler.path, handler.headers)
        connection = http.client.HTTPConnection(HOST, self._port, timeout=_TIMEOUT_SECONDS)
        with contextlib.closing(connection):
            connection.putrequest(
                handler.command, handler.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in handler.headers.items():
                if name.lower() not in _NOT_FORWARDED:
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body or None)
            found = connection.getresponse()
            data = found.read()
        data = self.changed(data)
        handler.send_response(found.status)
        for name, value in found.getheaders():
            if name.lower() not in _OWN_HEADERS:
                handler.send_header(name, value)
        size = found.getheader("Content-Length") if handler.command == "HEAD" else str(len(data))
        handler.send_header("Content-Length", size or "0")
        handler.end_headers()
        handler.wfile.write(data)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        forwarder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                with contextlib.suppress(ConnectionError):
                    forwarder.answer(self)

            do_POST = do_PUT = do_DELETE = do_HEAD = do_GET  # noqa: N815 - names there

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
                """Print nothing."""

        return Handler


def body_of(handler: BaseHTTPRequestHandler) -> bytes:
    """Return the body of a request, also of one in chunks."""
    if "chunked" not in (handler.headers.get("Transfer-Encoding") or "").lower():
        return handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
    parts = []
    while size := int(handler.rfile.readline().split(b";")[0], 16):
        parts.append(handler.rfile.read(size))
        handler.rfile.readline()
    while handler.rfile.readline().strip():
        """Trailers are of the connection."""
    return b"".join(parts)


class CredentialProxy(Forwarder):
    """A catalog whose handed-out keys are those of the test."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._keys: dict[str, str] = {}

    def hand_out(self, key: str, secret: str, *, expires_at_ms: int | None = None) -> None:
        """Hand out these keys from now on."""
        ends = {} if expires_at_ms is None else {EXPIRES: str(expires_at_ms)}
        self._keys = {KEY: key, SECRET: secret, **ends}

    def changed(self, body: bytes) -> bytes:
        if KEY.encode() not in body:
            return body
        return json.dumps(self._with_keys(json.loads(body))).encode()

    def _with_keys(self, value: object) -> object:
        if isinstance(value, dict):
            inner = {name: self._with_keys(one) for name, one in value.items()}
            return {**inner, **self._keys} if KEY in inner else inner
        return [self._with_keys(one) for one in value] if isinstance(value, list) else value


class ForgetfulStore(Forwarder):
    """A store that ignores the condition of a write: it overwrites what is there."""

    def __init__(self, port: int, data: Path) -> None:
        super().__init__(port)
        self._data = data
        self._one = threading.Lock()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        with self._one:  # nobody sees the moment between both objects
            super().answer(handler)

    def before(self, method: str, path: str, headers: Message) -> None:
        if method != "PUT" or headers.get("If-None-Match") is None:
            return
        there = self._data / unquote(urlsplit(path).path).lstrip("/")
        there.unlink(missing_ok=True)


@contextlib.contextmanager
def serving(proxy: Forwarder) -> Iterator[None]:
    """Answer for as long as the block lasts."""
    thread = threading.Thread(target=proxy.server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield
    finally:
        proxy.server.shutdown()
        proxy.server.server_close()
        thread.join()


@contextlib.contextmanager
def forgetful_store(store: ObjectStore) -> Iterator[str]:
    """The address of such a store, in a process of its own: `deltalake` holds Python's lock."""
    words = [sys.executable, "-m", "tests.spark.stores.proxies", str(store.port), str(store.data)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


if __name__ == "__main__":
    forgetful = ForgetfulStore(int(sys.argv[1]), Path(sys.argv[2]))
    print(forgetful.address, flush=True)
    forgetful.server.serve_forever()
