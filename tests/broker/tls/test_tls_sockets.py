"""The layer on real sockets, on both event loops, with blocking clients."""

import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator

import pytest

from penstock.broker.tls.tls_limits import HandshakeLimits
from tests.broker.tls.socket_stage import (
    LOOPS,
    SECONDS_MAX,
    SEND,
    TlsServer,
    exchange,
    read_exactly,
)
from tests.broker.tls.tls_stage import client_context, identities, server_context

SIZES = (1, 16_383, 16_384, 16_385, 262_143, 262_144, 262_145, 1_000_000)
LARGE_BYTES = 55 << 20
CLIENTS = 40
OPENSSL = shutil.which("openssl")


@pytest.fixture(scope="module")
def content() -> bytes:
    return os.urandom(1 << 20) * 55


@pytest.fixture(scope="module", params=LOOPS)
def server(request: pytest.FixtureRequest, content: bytes) -> Iterator[TlsServer]:
    with TlsServer(request.param, content=content) as running:
        yield running


@pytest.mark.parametrize(
    "version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"]
)
def test_bytes_of_all_sizes_come_back(server: TlsServer, version: ssl.TLSVersion) -> None:
    with server.client(client_context(version=version)) as client:
        for size in SIZES:
            data = os.urandom(size)
            assert exchange(client, data) == data


def test_records_come_byte_by_byte(server: TlsServer) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with server.connect() as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def send_bytes() -> None:
            for byte in outgoing.read():
                plain.sendall(bytes([byte]))

        def until_done(step: object) -> object:
            while True:
                try:
                    result = step()  # type: ignore[operator]
                except ssl.SSLWantReadError:
                    send_bytes()
                    incoming.write(plain.recv(65_536))
                else:
                    send_bytes()
                    return result

        until_done(client.do_handshake)
        client.write(b"one byte in each packet")
        received = until_done(lambda: client.read(100))
        assert received == b"one byte in each packet"


def test_a_large_answer_reaches_a_slow_reader(server: TlsServer, content: bytes) -> None:
    with server.client(client_context()) as client:
        client.sendall(SEND + b"%08d" % LARGE_BYTES)
        # Until the broker has stopped encrypting, because this client reads nothing.
        while not server.ask(lambda: server.connections[-1].is_paused):
            pass
        transport = server.connections[-1].transport
        assert transport is not None
        assert server.ask(transport.get_write_buffer_size) > LARGE_BYTES / 2
        assert read_exactly(client, 4) == b"head"
        for start in range(0, LARGE_BYTES, 1 << 20):
            assert read_exactly(client, 1 << 20) == content[start : start + (1 << 20)]
        client.sendall(b"again")
        assert read_exactly(client, 5) == b"again"


def test_many_clients_at_once(server: TlsServer) -> None:
    """More than have a place for their handshakes at a time."""
    failures: list[Exception] = []

    def talk(number: int) -> None:
        try:
            with server.client(client_context()) as client:
                for size in (1, 100, 20_000):
                    data = bytes([number]) * size
                    client.sendall(data)
                    assert read_exactly(client, size) == data
        except Exception as error:  # noqa: BLE001 (reported below)
            failures.append(error)

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS_MAX)
    assert not failures


def test_both_sides_close_cleanly(server: TlsServer) -> None:
    with server.client(client_context()) as client:
        client.sendall(b"last words")
        assert read_exactly(client, 10) == b"last words"
        client.unwrap().close()


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x10\0\x12\0\x03"])
def test_plain_bytes_end_the_connection(server: TlsServer, data: bytes) -> None:
    before = server.failures.counts["not_tls"]
    with server.connect() as plain:
        plain.sendall(data)
        with contextlib.suppress(ConnectionResetError):
            assert plain.recv(100) == b""
    assert server.ask(lambda: server.failures.counts["not_tls"]) == before + 1


@pytest.mark.parametrize("loop_name", LOOPS)
def test_a_flood_of_silent_connections_is_bounded(loop_name: str) -> None:
    limits = HandshakeLimits(handshakes_max=16, per_address_max=8, waiting_max=32)
    with TlsServer(loop_name, limits=limits) as server:
        flood = [server.connect("127.0.0.2") for _ in range(300)]
        try:
            with server.client(client_context()) as client:
                client.sendall(b"still served")
                assert read_exactly(client, 12) == b"still served"
                assert server.ask(lambda: server.turns.unfinished_count) <= 8
                assert server.ask(lambda: server.turns.waiting_count) <= 32
                assert server.ask(lambda: len(server.connections)) <= 41
                assert server.ask(lambda: server.failures.counts["crowded_out"]) >= 260
        finally:
            for one in flood:
                one.close()


@pytest.mark.parametrize("loop_name", LOOPS)
def test_client_certificates(loop_name: str) -> None:
    own = identities().client
    with (
        TlsServer(loop_name, context_source=lambda: server_context("required")) as server,
        server.client(client_context(own)) as client,
    ):
        assert exchange(client, b"request") == b"request"
        expected = ssl.PEM_cert_to_DER_cert(own.certificate.read_text())
        assert server.ask(lambda: server.connections[0].certificate) == expected


@pytest.mark.parametrize("loop_name", LOOPS)
def test_a_client_without_a_certificate_gets_nothing(loop_name: str) -> None:
    with TlsServer(loop_name, context_source=lambda: server_context("required")) as server:
        client = server.client(client_context())
        with pytest.raises((ssl.SSLError, ConnectionError)):
            exchange(client, b"request")
        client.close()
        assert server.ask(lambda: server.secured) == 0
        assert server.ask(lambda: server.failures.counts["no_certificate"]) == 1


# --- Commands that Python's clients do not have ---


def openssl_client(server: TlsServer, *options: str) -> "subprocess.Popen[bytes]":
    assert OPENSSL is not None
    return subprocess.Popen(
        [
            OPENSSL,
            "s_client",
            "-connect",
            f"127.0.0.1:{server.port}",
            "-CAfile",
            str(identities().authority.certificate),
            *options,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def read_until(process: "subprocess.Popen[bytes]", text: bytes) -> bytes:
    assert process.stdout is not None
    seen = b""
    while text not in seen:
        line = process.stdout.readline()
        assert line, seen.decode(errors="replace")
        seen += line
    return seen


def tell(process: "subprocess.Popen[bytes]", command: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(command)
    process.stdin.flush()


def end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.communicate()


@pytest.mark.skipif(OPENSSL is None, reason="needs the openssl command")
def test_renegotiation_is_refused(server: TlsServer) -> None:
    process = openssl_client(server, "-tls1_2")
    try:
        tell(process, b"before\n")
        read_until(process, b"before\n")
        tell(process, b"R\n")
        seen = read_until(process, b"no renegotiation")
        assert seen.count(b"RENEGOTIATING") == 1
        assert process.wait(SECONDS_MAX) != 0
    finally:
        end(process)


@pytest.mark.skipif(OPENSSL is None, reason="needs the openssl command")
def test_keys_are_updated(server: TlsServer) -> None:
    """The broker answers a client's KeyUpdate, and both continue with new keys."""
    process = openssl_client(server, "-tls1_3")
    try:
        for number in range(5):
            tell(process, b"line %d\n" % number)
            read_until(process, b"line %d\n" % number)
            tell(process, b"K\n")
            read_until(process, b"KEYUPDATE")
        tell(process, b"last line\n")
        read_until(process, b"last line\n")
    finally:
        end(process)
