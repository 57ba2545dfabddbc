"""The admin port over TLS: the bounds and the checks of the listeners' TLS layer hold for HTTP."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from penstock.admin import server as admin_server
from penstock.admin.ports import Caller, Credentials
from penstock.admin.server import AdminServer
from penstock.broker.tls.contexts import build_server_tls
from penstock.broker.tls.handshake_failures import HandshakeFailures
from penstock.broker.tls.tls_files import read_files
from penstock.core.clock import Clock, SystemClock
from penstock.core.metrics import Registry
from penstock.core.settings.admin_settings import AdminSettings
from penstock.core.settings.tree import Settings
from penstock.node.admin_tls import AdminTls
from penstock.node.server import BrokerServer
from tests.admin.fakes import FakeCheck, FakeDoor, FakeView, no_cluster
from tests.broker.tls.test_client_certificates import LaterClock
from tests.broker.tls.tls_stage import client_context, identities, now, server_context, server_files

SECONDS_MAX = 20.0
LIVE = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"
PAGE_BYTES = 4 * 1024 * 1024


class SeenCertificates(FakeCheck):
    """Accepts each caller, and keeps the certificates."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[bytes | None] = []

    async def identify(self, given: Credentials) -> Caller | None:
        self.seen.append(given.certificate)
        return Caller()


class Port:
    """A served admin port."""

    def __init__(self, number: int, server: AdminServer, failures: HandshakeFailures) -> None:
        self.number = number
        self.server = server
        self._failures = failures

    def failed(self) -> dict[str, int]:
        """The handshakes that failed, by reason."""
        return {reason: count for reason, count in self._failures.counts.items() if count}

    def connect(
        self, context: ssl.SSLContext, session: ssl.SSLSession | None = None
    ) -> ssl.SSLSocket:
        """Connect and shake hands; it blocks."""
        raw = socket.create_connection(("127.0.0.1", self.number), SECONDS_MAX)
        return context.wrap_socket(raw, server_hostname="localhost", session=session)

    def ask(self, secured: ssl.SSLSocket, request: bytes = LIVE) -> bytes:
        """Return the first line of the answer; empty if the port ends the connection."""
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            secured.sendall(request)
            return secured.recv(65_536).partition(b"\r\n")[0]
        return b""


@asynccontextmanager
async def serving(
    context_source: Callable[[], ssl.SSLContext] = server_context,
    *,
    clock: Clock | None = None,
    check: FakeCheck | None = None,
    view: FakeView | None = None,
) -> AsyncIterator[Port]:
    server = AdminServer(
        view or FakeView(), FakeDoor(no_cluster), check or FakeCheck(), AdminSettings()
    )
    failures = HandshakeFailures("ADMIN")
    loop = asyncio.get_running_loop()
    tls = AdminTls(loop, context_source, failures, clock or SystemClock())
    with socket.create_server(("127.0.0.1", 0)) as bound:
        bound.setblocking(False)
        await server.start(bound, tls.wrap)
        try:
            yield Port(bound.getsockname()[1], server, failures)
        finally:
            await server.stop()
            tls.stop()


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def test_a_request_is_answered_and_has_the_certificate_of_its_caller() -> None:
    check = SeenCertificates()

    async def work() -> None:
        async with serving(lambda: server_context("required"), check=check) as port:

            def ask() -> bytes:
                with port.connect(client_context(identities().client)) as secured:
                    return port.ask(secured, LIVE.replace(b"/health/live", b"/api/v1/status"))

            assert await asyncio.to_thread(ask) == b"HTTP/1.1 200 OK"

    run(work)
    expected = ssl.PEM_cert_to_DER_cert(identities().client.certificate.read_text())
    assert check.seen == [expected]


def test_a_page_that_is_larger_than_all_buffers_arrives_whole() -> None:
    metrics = Registry()
    metrics.counter("things_total", "x" * PAGE_BYTES)

    async def work() -> None:
        async with serving(view=FakeView(metrics=metrics)) as port:
            url = f"https://localhost:{port.number}/metrics"
            async with httpx.AsyncClient(verify=client_context(), trust_env=False) as client:
                page = await client.get(url, timeout=SECONDS_MAX)
                assert page.status_code == 200
                assert "x" * PAGE_BYTES in page.text
                again = await client.get(url, timeout=SECONDS_MAX)
                assert again.text == page.text

    run(work)


def test_connections_count_before_their_handshake() -> None:
    async def work() -> None:
        async with serving() as port:
            silent = [
                await asyncio.open_connection("127.0.0.1", port.number)
                for _ in range(2 * admin_server.CONNECTIONS_MAX)
            ]

            def probe() -> bytes:
                with port.connect(client_context()) as secured:
                    return port.ask(secured)

            assert await asyncio.to_thread(probe) == b"HTTP/1.1 200 OK"
            assert len(port.server._state.connections) <= admin_server.CONNECTIONS_PER_ADDRESS_MAX
            for _, writer in silent:
                writer.close()

    run(work)


def test_a_client_without_tls_is_ended_and_counted() -> None:
    async def work() -> None:
        async with serving() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
            writer.write(LIVE)
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), SECONDS_MAX) == b""
            writer.close()
            assert port.failed() == {"not_tls": 1}

    run(work)


@pytest.mark.parametrize("days", [0, 31], ids=["valid", "expired"])
def test_a_session_is_not_resumed_after_its_certificate_expired(days: int) -> None:
    async def work() -> None:
        context = client_context(identities().client, ssl.TLSVersion.TLSv1_2)
        clock = LaterClock(days)
        async with serving(lambda: server_context("required"), clock=clock) as port:

            def resume() -> bytes:
                with port.connect(context) as first:
                    assert port.ask(first) == b"HTTP/1.1 200 OK"
                    session = first.session
                try:
                    with port.connect(context, session) as second:
                        assert second.session_reused
                        return port.ask(second)
                except (ssl.SSLError, ConnectionError):
                    return b""

            answer = await asyncio.to_thread(resume)
            assert answer == (b"" if days else b"HTTP/1.1 200 OK")
            assert port.failed() == ({"bad_certificate": 1} if days else {})

    run(work)


def test_a_handshake_uses_the_certificate_that_is_in_force() -> None:
    async def work() -> None:
        contexts = [server_context()]
        async with serving(lambda: contexts[-1]) as port:

            def certificate() -> bytes | None:
                with port.connect(client_context()) as secured:
                    return secured.getpeercert(binary_form=True)

            before = await asyncio.to_thread(certificate)
            files = server_files(server=identities().authority.server())
            contexts.append(build_server_tls(files, read_files(files), now()).context)
            assert await asyncio.to_thread(certificate) != before

    run(work)


def test_the_handshakes_of_a_broker_are_metrics_of_the_listener_admin() -> None:
    server = identities().server
    settings = Settings.model_validate(
        {
            "node": {"storage": "memory"},
            "listener": {"port": 0},
            "admin": {"port": 0, "certificate": str(server.chain), "key": str(server.key)},
        }
    )

    async def work() -> None:
        async with BrokerServer(settings) as broker:
            await broker.wait_for_admin()
            url = f"https://localhost:{broker.admin_port}/health/live"
            async with httpx.AsyncClient(verify=client_context(), trust_env=False) as client:
                assert (await client.get(url, timeout=SECONDS_MAX)).status_code == 200
            assert broker.metrics()['tls_handshakes_total{listener="ADMIN"}'] == 1

    run(work)
