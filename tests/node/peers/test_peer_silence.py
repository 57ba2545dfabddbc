"""A connection between brokers has the options by which the kernel ends a silent one."""

import asyncio
import socket

import pytest
import uvloop

from penstock.client.security.options import NO_SECURITY
from penstock.client.transport.addresses import Address
from penstock.client.transport.connection import AsyncConnection
from penstock.node.peers.peer_limits import SILENCE_SECONDS_MAX
from penstock.node.peers.peer_silence import connect_to_peer

NAMES = (socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)


async def options_of_a_connection() -> list[int]:
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    address = Address(*server.sockets[0].getsockname())
    connection = await connect_to_peer(
        address, timeout_seconds=1, client_id="broker-1", security=NO_SECURITY
    )
    assert connection._transport is not None
    opened = connection._transport.get_extra_info("socket")
    found = [opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)]
    found += [opened.getsockopt(socket.IPPROTO_TCP, name) for name in NAMES]
    await connection.close()
    server.close()
    await server.wait_closed()
    return found


@pytest.mark.uncompiled
def test_the_kernel_ends_a_silent_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def negotiate(_connection: AsyncConnection) -> None:
        """The server of this test does not answer."""

    monkeypatch.setattr(AsyncConnection, "negotiate", negotiate)
    wanted = [1, SILENCE_SECONDS_MAX * 1_000, 1, 1, SILENCE_SECONDS_MAX - 1]
    assert asyncio.run(options_of_a_connection()) == wanted
    assert uvloop.run(options_of_a_connection()) == wanted
