"""Tokens of an identity provider: cached, bounded, and no secret in a message."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.client.security import bearer
from penstock.client.security.bearer import TokenCache, request_token
from penstock.client.security.options import TokenSource
from penstock.core.errors import AuthenticationError, BrokerUnreachableError
from penstock.security.secret import Secret
from tests.oracle.token_server import Answer, TokenServer


@pytest.fixture(scope="module")
def provider() -> Iterator[TokenServer]:
    with TokenServer() as running:
        yield running


def source(provider: TokenServer, scope: str = "", query: str = "") -> TokenSource:
    return TokenSource(
        provider.token_url + query, provider.client_id, Secret(provider.client_secret), scope
    )


def test_a_token_is_used_until_most_of_its_lifetime_is_over(provider: TokenServer) -> None:
    tokens = TokenCache()
    before = len(provider.requests)
    first = tokens.token(source(provider, "cached"), None)
    assert tokens.token(source(provider, "cached"), None) is first
    assert len(provider.requests) == before + 1
    tokens.forget(source(provider, "cached"), None)
    tokens.token(source(provider, "cached"), None)
    assert len(provider.requests) == before + 2


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_provider_in_trouble_is_asked_again(provider: TokenServer, status: int) -> None:
    provider.prepared.append(Answer(status, "{}"))
    with pytest.raises(BrokerUnreachableError, match=f"HTTP {status}"):
        request_token(source(provider), None)


@pytest.mark.parametrize("status", [302, 400, 401, 403])
def test_a_refusal_is_final_and_hides_the_query(provider: TokenServer, status: int) -> None:
    body = json.dumps({"error": "no\x1b[2J", "error_description": "canary-description"})
    provider.prepared.append(Answer(status, body))
    with pytest.raises(AuthenticationError, match=f"HTTP {status}") as raised:
        request_token(source(provider, query="?key=canary-key"), None)
    assert "canary" not in str(raised.value)
    assert str(raised.value).isprintable()
    assert "canary" not in repr(source(provider, query="?key=canary-key"))


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[" * 200_000,
        "null",
        '{"access_token": 5}',
        '{"access_token": "a\\u0001b"}',
        '{"access_token": "a\\r\\nb"}',
        '{"access_token": ""}',
        json.dumps({"access_token": "a" * 70_000}),
    ],
)
def test_an_unusable_token_is_refused(provider: TokenServer, body: str) -> None:
    provider.prepared.append(Answer(200, body))
    with pytest.raises(AuthenticationError, match="no usable access_token"):
        request_token(source(provider), None)


@pytest.mark.parametrize(
    ("expires_in", "seconds"),
    [
        ("60", 60),
        ('"60"', 60),
        ("1e400", 0),
        ("NaN", 0),
        ("-5", 0),
        ("9" * 401, 86_400),
        ('"' + "9" * 5_001 + '"', 0),
        ("true", 0),
        ("null", 0),
        ("[]", 0),
    ],
)
def test_any_lifetime_is_bounded(provider: TokenServer, expires_in: str, seconds: float) -> None:
    provider.prepared.append(Answer(200, f'{{"access_token": "a", "expires_in": {expires_in}}}'))
    assert request_token(source(provider), None) == (Secret("a"), seconds)


@contextmanager
def dribbling(part: bytes, pause_seconds: float) -> Iterator[str]:
    """A server that sends one byte after the other."""
    listening = socket.create_server(("127.0.0.1", 0))
    is_over = threading.Event()

    def serve() -> None:
        accepted, _ = listening.accept()
        with accepted:
            try:
                while not is_over.wait(pause_seconds):
                    accepted.sendall(part)
            except OSError:
                return

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/token"
    finally:
        is_over.set()
        thread.join()
        listening.close()


@pytest.mark.parametrize("part", [b"HTTP/1.1 200 OK\r\nX: y\r\n"[:1], b"X: y\r\n"])
def test_a_slow_answer_is_cut(part: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bearer, "REQUEST_SECONDS_MAX", 0.3)
    with dribbling(part, 0.05) as endpoint:
        begun = time.monotonic()
        with pytest.raises(BrokerUnreachableError, match="does not answer"):
            request_token(TokenSource(endpoint, "id", Secret("x")), None)
    assert time.monotonic() - begun < 5


def test_a_slow_provider_delays_only_its_own_clients(provider: TokenServer) -> None:
    tokens = TokenCache()
    good = source(provider, "quick")
    tokens.token(good, None)
    with dribbling(b"H", 0.2) as endpoint:
        slow = TokenSource(endpoint, "id", Secret("x"))
        waiting = threading.Thread(target=lambda: _ignored(tokens, slow))
        waiting.start()
        begun = time.monotonic()
        tokens.token(good, None)
        tokens.forget(slow, None)
        assert time.monotonic() - begun < 1
    waiting.join()


def _ignored(tokens: TokenCache, slow: TokenSource) -> None:
    with pytest.raises(BrokerUnreachableError):
        tokens.token(slow, None)


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("https://[1::2:3]/t", "1::2:3", 443),
        ("http://[::1]/t", "::1", 80),
        ("https://login.example:8443/t", "login.example", 8443),
    ],
)
def test_the_address_is_the_one_of_the_url(
    url: str, host: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def refuse(address: tuple[str, int], *_options: object) -> socket.socket:
        asked.append(address)
        raise OSError

    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(BrokerUnreachableError):
        request_token(TokenSource(url, "id", Secret("x")), None)
    assert asked == [(host, port)]
