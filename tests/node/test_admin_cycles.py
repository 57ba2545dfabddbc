"""Connections of the admin port are freed at once, without the garbage collector.

The collector looks at old objects only while the broker is idle (`node.garbage`): probes and
scrapes that connect for each request would fill the memory of a busy broker.
"""

import socket
import ssl

import pytest
from uvicorn.protocols.http.h11_impl import RequestResponseCycle

from penstock.admin.server import HttpConnection
from penstock.core.settings.tree import Settings
from penstock.testing import Broker
from tests.broker.test_no_cycles import Leftovers, uncollected
from tests.broker.tls.tls_stage import client_context, identities

pytestmark = pytest.mark.uncompiled
"""Objects of compiled classes are not all in the collector's lists."""

__all__ = ["uncollected"]

SECONDS_MAX = 20.0
REQUESTS = {
    "open": b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "identified": b"GET /api/v1/status HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "missing": b"GET /api/v1/nothing HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "refused": b"GET /api/v1/status HTTP/1.1\r\nhost: evil.example\r\n\r\n",
    "not HTTP": b"\r\nnonsense\r\n\r\n",
    "unfinished": b"GET /api/v1/status HTTP/1.1\r\n",
}


def connect(broker: Broker, context: ssl.SSLContext | None) -> socket.socket:
    assert broker.admin_port is not None
    raw = socket.create_connection(("127.0.0.1", broker.admin_port), SECONDS_MAX)
    return raw if context is None else context.wrap_socket(raw, server_hostname="localhost")


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("is_secured", [False, True], ids=["plain", "TLS"])
def test_a_closed_connection_is_freed(is_secured: bool) -> None:
    admin: dict[str, object] = {"port": 0}
    context = None
    if is_secured:
        server = identities().server
        admin.update(certificate=str(server.chain), key=str(server.key))
        context = client_context()
    settings = Settings.model_validate(
        {"node": {"storage": "memory"}, "listener": {"port": 0}, "admin": admin}
    )
    connections, requests = Leftovers(HttpConnection), Leftovers(RequestResponseCycle)
    with Broker(settings) as broker:
        for kind, request in REQUESTS.items():
            with connect(broker, context) as client:
                client.sendall(request)
                if kind != "unfinished":
                    assert client.recv(65_536).startswith(b"HTTP/1.1 "), kind
            assert connections.are_freed(), kind
            assert requests.are_freed(), kind
        connect(broker, None).close()
        assert connections.are_freed()
