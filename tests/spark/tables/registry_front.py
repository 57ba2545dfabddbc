"""A TLS front of a schema registry on loopback, as an ingress: it checks who asks, and forwards.

It requires a header `Authorization`, a certificate of a client, or neither. `redirect` sends all
requests elsewhere.
"""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from tests.oracle.certificates import CertificateAuthority, Identity
from tests.spark.stores.proxies import Forwarder


class RegistryFront(Forwarder):
    """A front of the registry at this address."""

    def __init__(
        self, address: str, identity: Identity, clients: CertificateAuthority | None
    ) -> None:
        parts = urlsplit(address)
        assert parts.port is not None
        super().__init__(parts.port)
        self.authorization: str | None = None
        """The header that a request must have."""
        self.status = 401
        self.redirect: str | None = None
        self.seen: list[str | None] = []
        """The header `Authorization` of each request."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(identity.chain, identity.key)
        if clients is not None:
            context.load_verify_locations(clients.certificate)
            context.verify_mode = ssl.CERT_REQUIRED
        # A refused handshake is an error of its connection, and of no other.
        self.server.socket = context.wrap_socket(
            self.server.socket, server_side=True, do_handshake_on_connect=False
        )
        vars(self.server)["handle_error"] = lambda _request, _client: None
        self.address = self.address.replace("http://", "https://") + parts.path

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        found = handler.headers.get("Authorization")
        self.seen.append(found)
        if self.redirect is not None:
            handler.send_response(302)
            handler.send_header("Location", self.redirect + handler.path)
        elif self.authorization is not None and found != self.authorization:
            handler.send_response(self.status)
        else:
            super().answer(handler)
            return
        handler.send_header("Content-Length", "0")
        handler.end_headers()


@contextmanager
def registry_front(
    address: str, identity: Identity, clients: CertificateAuthority | None = None
) -> Iterator[RegistryFront]:
    """A front for as long as the block lasts; with `clients` it requires their certificates."""
    front = RegistryFront(address, identity, clients)
    thread = threading.Thread(target=front.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield front
    finally:
        front.server.shutdown()
        thread.join()
        front.server.server_close()
