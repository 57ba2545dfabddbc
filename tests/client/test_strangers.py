"""Servers that are not brokers: the message names the server, and where the broker may be."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.client.transport import connection as async_connection
from penstock.client.transport.addresses import Address
from penstock.client.transport.blocking import connect
from penstock.core.errors import BrokerUnreachableError

HTTP = b"HTTP/1.1 400 Bad Request\r\n\r\n"
TLS_ALERT = bytes.fromhex("15030300020246")


@contextmanager
def server(answer: bytes) -> Iterator[Address]:
    """Accepts one connection, reads something, and answers with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            accepted, _ = listening.accept()
            with accepted:
                accepted.recv(65_536)
                accepted.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield Address("127.0.0.1", listening.getsockname()[1])
        thread.join()


def failure(address: Address, *, is_async: bool) -> BrokerUnreachableError:
    with pytest.raises(BrokerUnreachableError) as caught:
        open_async(address) if is_async else connect(address, timeout_seconds=10)
    return caught.value


def open_async(address: Address) -> None:
    async def main() -> None:
        await async_connection.connect(address, timeout_seconds=10)

    asyncio.run(main())


@pytest.mark.parametrize("is_async", [False, True])
def test_an_admin_port_is_recognised(is_async: bool) -> None:
    """Its answer was reported as a frame of 1213486160 bytes."""
    with server(HTTP) as address:
        error = failure(address, is_async=is_async)
    assert str(error) == (
        f"{address} answers in HTTP, not in Kafka's protocol. Is it an admin port?"
    )
    assert error.hint.endswith("--bootstrap-server 127.0.0.1:9092")


@pytest.mark.parametrize("is_async", [False, True])
def test_a_port_with_tls_is_recognised(is_async: bool) -> None:
    with server(TLS_ALERT) as address:
        error = failure(address, is_async=is_async)
    assert str(error) == f"{address} expects TLS."
    assert "SASL_SSL" in error.hint


def test_a_server_that_closes_may_expect_tls() -> None:
    with server(b"") as address:
        error = failure(address, is_async=False)
    assert str(error) == (
        f"{address} does not answer as a broker: it closed the connection before it answered."
    )
    assert "Kafka port (9092 by default)" in error.hint
    assert "TLS" in error.hint


def test_other_bytes_are_reported_as_they_are() -> None:
    with server(b"SSH-2.0-x\r\n") as address:
        error = failure(address, is_async=False)
    assert "does not answer as a broker: a frame of" in str(error)
