"""The small server of metrics and health, with real sockets: what it answers, and its limits."""

import http.client
import json
import socket
from collections.abc import Iterator

import pytest

from penstock.core.errors import ConfigError
from penstock.spark.tables.operation import status_server
from penstock.spark.tables.operation.status_server import (
    CONNECTIONS_MAX,
    REQUEST_BYTES_MAX,
    Page,
    Request,
    StatusServer,
    document,
    plain,
)

HOST = "127.0.0.1"


def broken(_: Request) -> Page:
    raise ValueError("a bug of a page")


PAGES = {
    "/metrics": lambda request: plain(200, f"accepts {request.accept}"),
    "/health/ready": lambda _: document(503, {"ready": False}),
    "/broken": broken,
}


@pytest.fixture
def server() -> Iterator[StatusServer]:
    made = StatusServer(HOST, 0, PAGES)
    yield made
    made.close()


def ask(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    client = http.client.HTTPConnection(HOST, port, timeout=10)
    try:
        client.request(method, path, headers=headers)
        answer = client.getresponse()
        return answer.status, answer.read().decode()
    finally:
        client.close()


def send(port: int, data: bytes) -> bytes:
    """The whole answer to some bytes."""
    with socket.create_connection((HOST, port), timeout=10) as client:
        client.sendall(data)
        found = b""
        while more := client.recv(65_536):
            found += more
        return found


def test_it_serves_its_pages(server: StatusServer) -> None:
    assert ask(server.port, "/metrics?x=1", Accept="text/plain") == (200, "accepts text/plain\n")
    status, text = ask(server.port, "/health/ready")
    assert (status, json.loads(text)) == (503, {"ready": False})
    assert ask(server.port, "/")[0] == 404
    assert ask(server.port, "/metrics", method="POST")[0] == 400


def test_a_broken_page_is_an_answer_and_the_next_request_is_served(server: StatusServer) -> None:
    assert ask(server.port, "/broken") == (500, "ValueError: a bug of a page\n")
    assert ask(server.port, "/metrics")[0] == 200


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /metrics\r\n\r\n",
        b"GET http://other/ HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nX: " + b"a" * REQUEST_BYTES_MAX,
    ],
)
def test_anything_else_is_refused(server: StatusServer, data: bytes) -> None:
    assert send(server.port, data[:REQUEST_BYTES_MAX]).startswith(b"HTTP/1.1 400 ")


def test_a_slow_request_ends_in_time(server: StatusServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_server, "SECONDS_MAX", 0.1)
    assert send(server.port, b"GET /metrics HTTP/1.1\r\n").startswith(b"HTTP/1.1 400 ")


def test_connections_are_bounded(server: StatusServer) -> None:
    waiting = [
        socket.create_connection((HOST, server.port), timeout=10) for _ in range(CONNECTIONS_MAX)
    ]
    try:
        with socket.create_connection((HOST, server.port), timeout=10) as refused:
            assert refused.recv(1) == b""
    finally:
        for one in waiting:
            one.close()


def test_an_address_in_use_is_an_error_with_a_remedy(server: StatusServer) -> None:
    with pytest.raises(ConfigError, match=f"127.0.0.1:{server.port}.*--metrics-port"):
        StatusServer(HOST, server.port, PAGES)
