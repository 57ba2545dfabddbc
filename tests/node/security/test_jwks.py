"""Keys of an identity provider: fetched, kept, refreshed within bounds, never from elsewhere."""

import asyncio
import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path

import pytest

from penstock.core.errors import ConfigError
from penstock.node.security.check_threads import CheckUnavailableError
from penstock.node.security.jwks import (
    KEPT_SECONDS_MAX,
    UNKNOWN_KEY_SECONDS,
    KeySource,
    OidcOptions,
    ProviderKeys,
    TokenVerifier,
)
from penstock.security.sasl.jwt_keys import JwtKeys, parse_keys
from penstock.security.sasl.mechanism_logins import VerifiedToken
from penstock.security.secret import Secret
from tests.node.security.manual_clock import ManualClock
from tests.oracle import token_server
from tests.oracle.certificates import CertificateAuthority
from tests.oracle.token_server import AUDIENCE, ISSUER, KEY_ID, Answer, TokenServer


def options(place: str = "keys.json", ca_file: str | None = None) -> OidcOptions:
    return OidcOptions(issuer=ISSUER, audience=AUDIENCE, jwks=place, ca_file=ca_file)


class Source:
    """Fetches prepared key sets and counts."""

    def __init__(self, document: str) -> None:
        self.document = document
        self.problem: Exception | None = None
        self.fetches = 0
        self.gate = threading.Event()
        self.gate.set()

    def fetch(self) -> JwtKeys:
        self.fetches += 1
        self.gate.wait()
        if self.problem is not None:
            raise self.problem
        return parse_keys(self.document.encode())


@pytest.fixture(scope="module")
def tokens() -> Iterator[TokenServer]:
    with TokenServer() as server:
        yield server


def renamed(document: str, key_id: str) -> str:
    keys = json.loads(document)
    keys["keys"][0]["kid"] = key_id
    return json.dumps(keys)


def test_keys_are_fetched_once_for_all_who_wait(tokens: TokenServer) -> None:
    source, clock = Source(tokens.jwks()), ManualClock()
    source.gate.clear()

    async def scenario() -> None:
        keys = ProviderKeys(options(), clock, source.fetch)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(keys.with_key(KEY_ID)) for _ in range(50)]
            await asyncio.sleep(0)
            tasks[7].cancel()
            source.gate.set()
        assert all(KEY_ID in task.result() for task in tasks if not task.cancelled())
        assert source.fetches == 1

    asyncio.run(scenario())


def test_an_unknown_key_is_fetched_at_most_once_in_thirty_seconds(tokens: TokenServer) -> None:
    source, clock = Source(tokens.jwks()), ManualClock()

    async def scenario() -> None:
        keys = ProviderKeys(options(), clock, source.fetch)
        await keys.refresh()
        clock.advance(UNKNOWN_KEY_SECONDS - 0.1)
        for number in range(100):
            assert f"unknown-{number}" not in await keys.with_key(f"unknown-{number}")
        assert source.fetches == 1
        clock.advance(0.1)
        source.document = renamed(tokens.jwks(), "rotated")
        for number in range(100):
            await keys.with_key(f"unknown-{number}")
        assert source.fetches == 2
        assert "rotated" in await keys.with_key("rotated")
        assert KEY_ID not in await keys.with_key("rotated"), "a removed key is not used"
        assert source.fetches == 2

    asyncio.run(scenario())


def test_a_known_key_needs_no_fetch(tokens: TokenServer) -> None:
    source, clock = Source(tokens.jwks()), ManualClock()

    async def scenario() -> None:
        keys = ProviderKeys(options(), clock, source.fetch)
        await keys.refresh()
        clock.advance(3_600)
        assert KEY_ID in await keys.with_key(KEY_ID)
        assert source.fetches == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "problem", [OSError("unreachable"), ConfigError("not JSON"), RuntimeError("a defect")]
)
def test_old_keys_are_used_for_a_day(
    tokens: TokenServer, problem: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    source, clock = Source(tokens.jwks()), ManualClock()

    async def scenario() -> None:
        keys = ProviderKeys(options(), clock, source.fetch)
        await keys.refresh()
        source.problem = problem
        clock.advance(KEPT_SECONDS_MAX)
        await keys.refresh()
        assert keys.failures == 1
        assert KEY_ID in await keys.with_key(KEY_ID)
        clock.advance(0.1)
        with pytest.raises(CheckUnavailableError, match="not available"):
            await keys.with_key(KEY_ID)
        source.problem = None
        clock.advance(UNKNOWN_KEY_SECONDS)
        assert KEY_ID in await keys.with_key(KEY_ID)
        assert keys.failures == 0

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert "cannot be fetched" in caplog.text


def test_the_keys_are_kept_fresh(tokens: TokenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    source, clock = Source(tokens.jwks()), ManualClock()
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        source.problem = OSError("away") if len(slept) == 2 else None
        if len(slept) == 4:
            raise asyncio.CancelledError

    async def scenario() -> None:
        keys = ProviderKeys(options(), clock, source.fetch)
        monkeypatch.setattr(asyncio, "sleep", sleep)
        with pytest.raises(asyncio.CancelledError):
            await keys.keep_fresh()

    asyncio.run(scenario())
    assert slept == [600.0, 600.0, 30.0, 600.0]
    assert source.fetches == 4


def verified(tokens: TokenServer, token: str) -> VerifiedToken | None:
    clock = ManualClock(TIME_MS)

    async def scenario() -> VerifiedToken | None:
        keys = ProviderKeys(options(), clock, Source(tokens.jwks()).fetch)
        return await TokenVerifier(options(), keys, clock).verify(Secret(token))

    return asyncio.run(scenario())


TIME_MS = 1_700_000_000_000
TIMES = {"iat": 1_700_000_000, "exp": 1_700_000_300}


def test_a_good_token_is_accepted(tokens: TokenServer) -> None:
    found = verified(tokens, tokens.token(subject="alice", claims=dict(TIMES)))
    assert found == VerifiedToken("alice", 300.0)


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"exp": 1_699_999_970}, "exp"),
        ({"nbf": 1_700_000_031}, "nbf"),
        ({"iat": 1_700_000_031}, "iat"),
        ({"aud": "another"}, "aud"),
        ({"iss": "https://another.test"}, "iss"),
        ({"sub": "a\nb"}, "principal"),
    ],
)
def test_a_bad_token_is_refused_and_its_reason_logged(
    tokens: TokenServer,
    claims: dict[str, object],
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    token = tokens.token(claims={**TIMES, **claims})
    with caplog.at_level(logging.INFO):
        assert verified(tokens, token) is None
    assert words in caplog.text
    assert token[:20] not in caplog.text
    assert token[-20:] not in caplog.text


def test_a_token_within_the_skew_has_a_negative_lifetime(tokens: TokenServer) -> None:
    found = verified(tokens, tokens.token(subject="alice", claims={**TIMES, "exp": 1_699_999_990}))
    assert found == VerifiedToken("alice", -10.0)


# --- Sources ---


def test_keys_from_a_file(tokens: TokenServer, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(tokens.jwks())
    assert KEY_ID in KeySource(options(str(path))).fetch()
    path.write_bytes(b" " * 1_048_577)
    with pytest.raises(ConfigError, match="1,048,576"):
        KeySource(options(str(path))).fetch()
    with pytest.raises(OSError, match="No such file"):
        KeySource(options(str(tmp_path / "missing"))).fetch()


@pytest.mark.parametrize(
    "place",
    [
        "http://issuer.test/jwks",
        "ftp://issuer.test/jwks",
        "file:///etc/passwd",
        "https:///jwks",
        "https://user:password@issuer.test/jwks",
        "https://issuer.test:99999/jwks",
        "https://[::1/jwks",
        "://",
    ],
)
def test_an_unsafe_address_is_refused(place: str) -> None:
    with pytest.raises(ConfigError, match=r"oidc\.jwks") as raised:
        KeySource(options(place))
    assert raised.value.hint


def test_a_bad_authority_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path / "empty"):
        if path.name == "empty":
            path.write_text("nothing")
        with pytest.raises(ConfigError, match=r"oidc\.ca_file"):
            KeySource(options("https://issuer.test/jwks", str(path)))


@contextmanager
def https_server(authority: CertificateAuthority, *names: str) -> Iterator[TokenServer]:
    identity = authority.server(names) if names else authority.server()
    with TokenServer(identity=identity) as server:
        yield server


def test_keys_over_https(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    with https_server(authority) as server:
        found = KeySource(options(server.jwks_url, str(authority.certificate))).fetch()
        assert KEY_ID in found
        with pytest.raises(OSError, match="certificate verify failed"):
            KeySource(options(server.jwks_url)).fetch()
        with pytest.raises(HTTPException, match="HTTP 404"):
            KeySource(options(server.url + "/x", str(authority.certificate))).fetch()
    with https_server(authority, "another.test") as server, pytest.raises(OSError, match="IP add"):
        KeySource(options(server.jwks_url, str(authority.certificate))).fetch()


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (Answer(302, ""), HTTPException, "HTTP 302"),
        (Answer(500, "{}"), HTTPException, "HTTP 500"),
        (Answer(200, "<html>"), ConfigError, "not JSON"),
        (Answer(200, " " * 1_048_577), ConfigError, "1,048,576"),
    ],
)
def test_another_answer_is_an_error(
    answer: Answer,
    error: type[Exception],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    authority = CertificateAuthority(tmp_path)
    with https_server(authority) as server:
        monkeypatch.setattr(token_server._Handler, "do_GET", lambda self: self._send(answer))
        with pytest.raises(error, match=words):
            KeySource(options(server.jwks_url, str(authority.certificate))).fetch()


@pytest.mark.slow
def test_an_answer_that_drips_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read is in time, all of them together are not."""
    monkeypatch.setattr("penstock.node.security.jwks.FETCH_SECONDS_MAX", 1.0)
    authority = CertificateAuthority(tmp_path)

    def drip(handler: token_server._Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        with suppress(OSError):
            for _ in range(100):
                handler.wfile.write(b" ")
                time.sleep(0.1)
        handler.close_connection = True

    monkeypatch.setattr(token_server._Handler, "do_GET", drip)
    with https_server(authority) as server:
        begun = time.monotonic()
        with pytest.raises((OSError, ConfigError, HTTPException)):
            KeySource(options(server.jwks_url, str(authority.certificate))).fetch()
        assert time.monotonic() - begun < 5
