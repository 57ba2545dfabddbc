"""`InsideDoor`: clients of this broker within its process, each with the identity of its caller.

The admin port carries out HTTP requests with the Kafka client of the command line. A pair of
connected sockets takes the place of the network, and the broker's end of it begins with the
caller's identity: access rules and quotas judge the caller, and the port itself has no rights. No
login is needed, whatever the listeners require, because no other process can use the sockets. The
limits on connections of the listeners do not count them: a flood there does not end administration.
"""

import asyncio
import socket
from collections.abc import Callable

from penstock.admin.ports import Caller
from penstock.broker.peer import Peer
from penstock.client.cluster import Cluster
from penstock.client.transport.addresses import Address
from penstock.client.transport.blocking import BlockingConnection, adopt
from penstock.core.errors import BrokerUnreachableError
from penstock.node.admin_parts import Served
from penstock.node.security.certificates_in_use import ADMIN

CLIENT_ID = "penstock-admin"


class InsideDoor:
    """`admin.ports.ClusterDoor`."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, served: Callable[[], Served | None]
    ) -> None:
        self._loop = loop
        self._served = served

    def open(self, timeout_seconds: float, caller: Caller) -> Cluster:
        """Return a client for one thread, with the identity of the caller."""
        served = self._served()
        if served is None:
            raise BrokerUnreachableError("the broker is starting and does not accept clients yet.")

        def connect(address: Address) -> BlockingConnection:
            if address != served.advertised:
                raise BrokerUnreachableError(f"{address} is not this broker.")
            return self._connect(served, address, timeout_seconds, caller)

        return Cluster([served.advertised], connect, timeout_seconds=timeout_seconds)

    def _connect(
        self, served: Served, address: Address, timeout_seconds: float, caller: Caller
    ) -> BlockingConnection:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)  # noqa: FBT003 (positional only)
        listener = served.listener
        peer = Peer(
            caller.address,
            caller.principal,
            listener.entrances[0].name,  # its advertised address is the one that `connect` knows
            caller.mechanism,
            door=ADMIN,
        )
        try:
            accepted = asyncio.run_coroutine_threadsafe(listener.adopt(theirs, peer), self._loop)
            accepted.result(timeout_seconds)
        except BaseException as error:
            ours.close()
            theirs.close()
            raise BrokerUnreachableError("the broker accepts no connection now.") from error
        return adopt(ours, address, timeout_seconds=timeout_seconds, client_id=CLIENT_ID)
