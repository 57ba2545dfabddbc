"""`open_push`: connects a `PushClient` over TCP, TLS or a unix socket."""

import asyncio
import ssl

from penstock.client.push.push_client import PushClient
from penstock.core.errors import BrokerUnreachableError
from penstock.protocol.push.payloads import Credentials


async def open_push(
    host: str = "127.0.0.1",
    port: int = 9095,
    *,
    socket_path: str | None = None,
    tls: ssl.SSLContext | None = None,
    credentials: Credentials | None = None,
) -> PushClient:
    """Connect to a broker, over TCP or a unix socket; raise `BrokerUnreachableError`."""
    loop = asyncio.get_running_loop()
    try:
        if socket_path is not None:
            _, client = await loop.create_unix_connection(
                lambda: PushClient(credentials), socket_path
            )
        else:
            _, client = await loop.create_connection(
                lambda: PushClient(credentials), host, port, ssl=tls
            )
    except OSError as error:
        address = socket_path or f"{host}:{port}"
        raise BrokerUnreachableError(
            f"cannot connect to {address} for push: {error}",
            hint="Set edge.push_port or edge.socket_path of the broker.",
        ) from error
    return client
