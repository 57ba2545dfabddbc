"""Errors of TLS connections, and the bytes that a TLS socket sends."""

import socket
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.security.options import TlsOptions, parse_security
from penstock.client.transport.addresses import Address
from penstock.client.transport.blocking import connect
from penstock.client.transport.tls_errors import certificate_name, tls_failure
from penstock.client.transport.tls_socket import pieces, secure
from penstock.core.errors import BrokerUnreachableError, TlsHandshakeError

ADDRESS = Address("broker.example", 9093)


@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(1, 64))
def test_pieces_have_the_same_bytes(buffers: list[bytes], bytes_max: int) -> None:
    found = [bytes(piece) for piece in pieces(buffers, bytes_max)]
    assert b"".join(found) == b"".join(buffers)
    assert all(0 < len(piece) <= bytes_max for piece in found)


def test_a_silent_server_is_left_in_time() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    opened = socket.create_connection(listening.getsockname())
    opened.settimeout(0.2)
    with pytest.raises(BrokerUnreachableError, match=r"TLS handshake with .* timed out"):
        secure(opened, ADDRESS, TlsOptions())
    assert opened.fileno() == -1
    listening.close()


def test_a_server_without_tls_is_named() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    address = Address("127.0.0.1", listening.getsockname()[1])
    opened = socket.create_connection(address)
    accepted, _ = listening.accept()
    accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(TlsHandshakeError, match="does not answer in TLS") as raised:
        secure(opened, address, TlsOptions())
    assert "PLAINTEXT" in raised.value.hint
    accepted.close()
    listening.close()


def test_a_closed_port_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = Address("127.0.0.1", listening.getsockname()[1])
    with pytest.raises(BrokerUnreachableError, match="cannot reach"):
        connect(address, timeout_seconds=1, security=parse_security({"security.protocol": "SSL"}))


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "refused the client's certificate"),
        ("SSLV3_ALERT_BAD_CERTIFICATE", "refused the client's certificate"),
        ("WRONG_VERSION_NUMBER", "does not answer in TLS"),
        ("NO_PROTOCOLS_AVAILABLE", "no protocols available"),
    ],
)
def test_reasons_have_words(reason: str, words: str) -> None:
    error = ssl.SSLError(1, reason)
    error.reason = reason
    assert words in str(tls_failure(ADDRESS, error))


def test_the_name_in_a_certificate_has_no_dot_at_its_end() -> None:
    assert certificate_name(Address("broker.example.", 1)) == "broker.example"
    assert certificate_name(Address("::1", 1)) == "::1"
