"""Each reason has its own counter, and pauses are counted by the budgets that cause them."""

import logging
import ssl

import pytest

from penstock.broker.connections.endings import Endings, show_budgets
from penstock.broker.pacing.budget import MemoryBudget, RequestBudget
from penstock.core.errors import (
    FrameError,
    MalformedRequestError,
    PeerError,
    UnsupportedApiError,
)
from penstock.core.metrics import LEFT_OUT, Registry
from penstock.protocol.connection import ServerConnection
from penstock.protocol.framing import ReadArena


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FrameError("too long"), "frame_length"),
        (UnsupportedApiError(99, 0), "unsupported_api"),
        (MalformedRequestError("odd"), "malformed"),
    ],
)
def test_a_broken_protocol_is_counted_by_its_kind(error: PeerError, reason: str) -> None:
    metrics = Registry()
    Endings(metrics).count_broken(error, "127.0.0.1")
    counted = {name: value for name, value in metrics.snapshot().items() if value}
    assert counted == {f'protocol_errors_total{{reason="{reason}"}}': 1}


def hello() -> bytes:
    """The first bytes of a TLS client."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(
        ssl.MemoryBIO(), outgoing, server_hostname="localhost"
    )
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("has_login", [True, False])
@pytest.mark.parametrize(
    ("received", "words"),
    [
        (hello(), "uses TLS, and this listener does not. Set security.protocol to PLAINTEXT"),
        (hello()[:4], "uses TLS"),
        (b"GET /metrics HTTP/1.1\r\n", "uses HTTP"),
        (b"\x7f\xff\xff\xff\0\0", "a frame of 2147483647 bytes"),
    ],
    ids=["tls", "four bytes of tls", "http", "length"],
)
def test_the_log_says_which_protocol_a_stranger_uses(
    received: bytes, words: str, has_login: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    connection = ServerConnection({}, ReadArena())
    if has_login:
        connection.bound_frames(1_000)
    connection.receive_data(received)
    with pytest.raises(FrameError) as found:
        connection.next_request()
    Endings(Registry()).count_broken(found.value, "192.0.2.7")
    assert "from 192.0.2.7: " in caplog.text
    assert words in caplog.text
    assert ("a frame of" in caplog.text) is words.startswith("a frame of")


def values(metrics: Registry) -> dict[str, float]:
    """Every metric but the one on metrics."""
    told = metrics.snapshot().items()
    return {name: value for name, value in told if not name.startswith(LEFT_OUT)}


def test_every_reason_is_there_before_it_happens() -> None:
    metrics = Registry()
    Endings(metrics)
    assert list(values(metrics).values()) == [0] * 11


def test_pauses_are_told_by_what_was_spent() -> None:
    metrics = Registry()
    handling, receiving, unsent = RequestBudget(100, 2), MemoryBudget(50), MemoryBudget(70)
    show_budgets(metrics, handling, receiving, unsent)
    unsent.reserve(20)
    handling.reserve(10)
    handling.reserve(10)
    handling.wait(lambda: None)
    handling.release(10)
    handling.reserve(90)
    handling.release(10)
    handling.reserve(10)
    receiving.reserve(50)
    receiving.wait(lambda: None)
    assert values(metrics) == {
        'reads_paused_total{reason="request_bytes"}': 0,
        'reads_paused_total{reason="requests"}': 1,
        'reads_paused_total{reason="unfinished_bytes"}': 1,
        "request_bytes_in_flight": 150,
        "requests_in_flight": 2,
        "unsent_answer_bytes": 20,
    }
