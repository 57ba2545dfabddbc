"""`connect_to_peer`: a connection to another broker that ends when its machine has gone silent.

The kernel probes an idle connection each second. It ends the connection when neither a probe nor
sent bytes are confirmed for `SILENCE_SECONDS_MAX`. A broker that is slow, or whose process is
paused, is not silent: its kernel confirms. Where the system has no such option, the timeout of each
call remains.

It retries nothing, and does NOT know which broker it connects to.
"""

import socket
from typing import Final

from penstock.client.security.options import Security
from penstock.client.transport.addresses import Address
from penstock.client.transport.connection import AsyncConnection, connect
from penstock.node.peers.peer_limits import SILENCE_SECONDS_MAX

PROBE_SECONDS: Final = 1
_OPTIONS: Final = {
    "TCP_KEEPIDLE": PROBE_SECONDS,
    "TCP_KEEPINTVL": PROBE_SECONDS,
    "TCP_KEEPCNT": SILENCE_SECONDS_MAX - PROBE_SECONDS,
    "TCP_USER_TIMEOUT": SILENCE_SECONDS_MAX * 1_000,
}


async def connect_to_peer(
    address: Address, *, timeout_seconds: float, client_id: str, security: Security
) -> AsyncConnection:
    """Open a connection as `connect` does; it ends when the other machine is silent."""
    connection = await connect(
        address, timeout_seconds=timeout_seconds, client_id=client_id, security=security
    )
    connection.set_option(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS.items():
        option = getattr(socket, name, None)
        if option is not None:
            connection.set_option(socket.IPPROTO_TCP, option, value)
    return connection
