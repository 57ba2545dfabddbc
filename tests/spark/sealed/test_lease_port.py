"""The client of the admin port: when it sends a password, and answers of other servers."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from penstock.client.security.options import NO_SECURITY, Security, parse_security
from penstock.core.types import TopicPartition
from penstock.spark.planning import OffsetRange
from penstock.spark.sealed import lease_port
from penstock.spark.sealed.lease_port import LeasePort, LeaseUnavailableError

RANGE = OffsetRange(TopicPartition("orders", 0), 0, 10)
WITH_PASSWORD = parse_security(
    {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "secret",
    }
)
EMPTY: dict[str, Any] = {
    "id": "",
    "cluster_id": "c",
    "topic": "orders",
    "topic_id": "t",
    "directory": "",
    "partitions": [],
    "skipped": [],
}


class Stub:
    """A server that answers each request with the next answer, and records the requests."""

    def __init__(self, *answers: tuple[int, bytes, dict[str, str]]) -> None:
        self.answers = list(answers)
        self.seen: list[tuple[str, str, str | None]] = []


@contextmanager
def serving(stub: Stub) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            stub.seen.append((self.command, self.path, self.headers.get("Authorization")))
            status, body, headers = stub.answers.pop(0)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_DELETE = do_GET = _answer  # noqa: N815 - names of the base class

        def log_message(self, *_given: object) -> None:
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def granted(url: str, security: Security = NO_SECURITY) -> str:
    return LeasePort(url, security, 5.0).grant("orders", [RANGE], 60).cluster_id


Reply = tuple[int, bytes, dict[str, str]]
GOOD: Reply = (201, json.dumps(EMPTY).encode(), {})
ASKS = (401, b"{}", {"WWW-Authenticate": 'Basic realm="penstock"'})


def test_a_password_is_sent_only_after_the_port_asked_for_one() -> None:
    stub = Stub(GOOD, ASKS, GOOD)
    with serving(stub) as url:
        assert granted(url, WITH_PASSWORD) == "c"
        assert granted(url, WITH_PASSWORD) == "c"
    assert [header for _, _, header in stub.seen] == [None, None, "Basic YWxpY2U6c2VjcmV0"]


def test_a_password_is_not_sent_to_another_machine_without_tls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease_port, "is_loopback", lambda _host: False)
    stub = Stub(ASKS)
    with serving(stub) as url, pytest.raises(LeaseUnavailableError, match="401"):
        granted(url, WITH_PASSWORD)
    assert [header for _, _, header in stub.seen] == [None]


def test_a_wrong_password_is_sent_once() -> None:
    stub = Stub(ASKS, ASKS)
    with serving(stub) as url, pytest.raises(LeaseUnavailableError, match="401"):
        granted(url, WITH_PASSWORD)
    assert len(stub.seen) == 2


def test_redirects_are_not_followed() -> None:
    stub = Stub((307, b"", {"Location": "http://127.0.0.1:1/steal"}))
    with serving(stub) as url, pytest.raises(LeaseUnavailableError, match="307"):
        granted(url, WITH_PASSWORD)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((200, b"<html>", {}), "JSON"),
        ((200, b"[]", {}), "JSON"),
        ((200, b"[" * 100_000, {}), "JSON"),
        ((503, b'{"detail": "low\\u001b[31m disk"}', {}), "low"),
        ((500, b"", {}), "no reason"),
        ((422, b'{"detail": 7}', {}), "no reason"),
    ],
)
def test_other_answers_are_reasons(answer: tuple[int, bytes, dict[str, str]], reason: str) -> None:
    with serving(Stub(answer)) as url, pytest.raises(LeaseUnavailableError) as caught:
        granted(url)
    assert reason in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_large_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_port, "ANSWER_BYTES_MAX", 100)
    large: Reply = (201, json.dumps({**EMPTY, "directory": "x" * 200}).encode(), {})
    with serving(Stub(large)) as url, pytest.raises(LeaseUnavailableError, match="more than 100"):
        granted(url)


def test_a_port_that_is_closed_is_a_reason() -> None:
    with pytest.raises(LeaseUnavailableError, match="unreachable"):
        granted("http://127.0.0.1:1")


def test_a_lease_that_has_ended_is_released() -> None:
    stub = Stub((404, b'{"detail": "none"}', {}), (204, b"", {}))
    with serving(stub) as url:
        port = LeasePort(f"{url}/", NO_SECURITY, 5.0)
        port.release("a" * 32)
        port.release("a" * 32)
    assert stub.seen[0][:2] == ("DELETE", f"/api/v1/leases/{'a' * 32}")
