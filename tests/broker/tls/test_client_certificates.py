"""Client certificates: every setting, every kind of certificate, both versions of TLS.

Each client sends a request directly behind its certificate. Nothing of it may arrive before the
certificate is verified, nor from a client that is refused.
"""

import ssl

import pytest

from penstock.broker.tls.tls_files import ClientAuth
from tests.broker.tls.tls_stage import Connection, Stage, client_context, identities
from tests.oracle.certificates import EXPIRED, NOT_YET_VALID, Identity

VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
BOTH_VERSIONS = pytest.mark.parametrize("version", VERSIONS, ids=["1.2", "1.3"])

KINDS = ("none", "good", "intermediate", "stranger", "expired", "not_yet", "server")


def identity_of(kind: str) -> Identity | None:
    known = identities()
    match kind:
        case "good":
            return known.client
        case "intermediate":
            return known.authority.intermediate().client()
        case "stranger":
            return known.stranger
        case "expired":
            return known.authority.client(validity=EXPIRED)
        case "not_yet":
            return known.authority.client(validity=NOT_YET_VALID)
        case "server":
            return known.server
    return None


def talk(connection: Connection) -> None:
    """Shake hands and send a request in the same flight as the client's certificate."""
    for _ in range(5):
        try:
            is_complete = connection.client_step()
        except ssl.SSLError:
            return
        request = b""
        if is_complete and b"request" not in connection.inner.received:
            request = connection.encrypt(b"request")
        connection.arrive(connection.written() + request)
        if connection.raw.is_closed:
            return


@BOTH_VERSIONS
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("client_auth", ["none", "requested", "required"])
def test_clients(client_auth: ClientAuth, kind: str, version: ssl.TLSVersion) -> None:
    identity = identity_of(kind)
    stage = Stage(client_auth)
    connection = stage.connect(client_context(identity, version))
    talk(connection)
    if client_auth == "none" or (client_auth == "requested" and kind == "none"):
        expected: bytes | None = None
    elif kind in ("good", "intermediate"):
        assert identity is not None
        expected = ssl.PEM_cert_to_DER_cert(identity.certificate.read_text())
    else:
        assert connection.inner.calls == ["made"]
        assert connection.inner.received == b""
        assert connection.raw.is_closed
        reason = "no_certificate" if kind == "none" else "bad_certificate"
        assert stage.failed() == {reason: 1}
        return
    assert connection.inner.calls == ["made", "secured"]
    assert connection.inner.certificate == expected
    assert connection.inner.received.startswith(b"request")
    assert stage.failed() == {}


class LaterClock:
    """A clock of another time."""

    def __init__(self, days: float) -> None:
        self._days = days

    def now_ms(self) -> int:
        from penstock.core.clock import SystemClock

        return SystemClock().now_ms() + int(self._days * 86_400_000)

    def monotonic(self) -> float:
        return 0.0


@BOTH_VERSIONS
def test_a_resumed_session_has_its_certificate(version: ssl.TLSVersion) -> None:
    stage = Stage("required")
    context = client_context(identities().client, version)
    first = stage.secured(context)
    first.inner.out.write(b"answer")
    assert first.receive() == b"answer"
    second = stage.connect(context, session=first.client.session)
    second.shake_hands()
    assert second.client.session_reused
    assert second.inner.certificate == first.inner.certificate
    assert second.inner.certificate is not None


@BOTH_VERSIONS
def test_a_session_is_not_resumed_after_its_certificate_expired(version: ssl.TLSVersion) -> None:
    stage = Stage("required")
    context = client_context(identities().client, version)
    first = stage.secured(context)
    first.inner.out.write(b"answer")
    assert first.receive() == b"answer"
    stage.shared.clock = LaterClock(31)
    second = stage.connect(context, session=first.client.session)
    talk(second)
    assert second.inner.calls == ["made"]
    assert second.inner.received == b""
    assert second.raw.is_closed
    assert stage.failed() == {"bad_certificate": 1}


def test_another_context_resumes_no_session() -> None:
    """A reload with other authorities applies to clients with tickets of the old ones too."""
    from penstock.broker.tls.contexts import build_server_tls
    from penstock.broker.tls.tls_files import read_files
    from tests.broker.tls.tls_stage import now, server_files

    stage = Stage("required")
    context = client_context(identities().client)
    first = stage.secured(context)
    first.inner.out.write(b"answer")
    assert first.receive() == b"answer"
    files = server_files("required")
    stage.context = build_server_tls(files, read_files(files), now()).context
    second = stage.connect(context, session=first.client.session)
    second.shake_hands()
    assert not second.client.session_reused
