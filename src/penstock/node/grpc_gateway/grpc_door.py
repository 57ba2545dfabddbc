"""`GrpcDoor`: how clients of the gRPC gateway prove their identity; a `GatewayDoor`.

The identity is that of the listener whose security the gateway uses: its principal, a client
certificate, or user and password or a token in the metadata `authorization`. Logins are checked,
delayed, counted and logged as those of push (`node.push.push_door`). Without credentials no client
of a listener with SASL is served.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.broker.connections.check_turns import CheckTurns
from penstock.broker.connections.entrance import Entrance
from penstock.broker.peer import Peer
from penstock.core.errors import PenstockError
from penstock.edge.grpc_gateway.authorizations import FORMS, credentials_in
from penstock.edge.grpc_gateway.gateway_ports import Proven
from penstock.edge.grpc_gateway.gateway_statuses import UNAUTHENTICATED, GatewayRefusalError
from penstock.edge.push.ports import Start
from penstock.node.grpc_gateway.login_memory import LoginMemory
from penstock.node.push.push_door import ListenerDoor

DOOR: Final = "grpc"


class GrpcDoor:
    """The port of the gateway."""

    def __init__(
        self,
        entrance: Entrance,
        turns: CheckTurns,
        start: Start,
        password_version: Callable[[str], object],
    ) -> None:
        """`password_version` returns a value that changes with the password of a user."""
        self._entrance = entrance
        self._logins = ListenerDoor(entrance, turns)
        self._password_version = password_version
        self._memory = LoginMemory(asyncio.get_running_loop().time, start)

    async def prove(
        self, address: str, certificate: Callable[[], bytes | None], authorization: str | None
    ) -> Proven:
        """Return the identity of a call."""
        entrance = self._entrance
        peer = Peer(address, entrance.principal, entrance.name, door=DOOR)
        if entrance.logins is None:
            client = self._certified(peer, certificate)
            return Proven(client, address, None, self._logins.principal_of(client))
        if authorization is None:
            raise GatewayRefusalError(UNAUTHENTICATED, f"this broker needs credentials; {FORMS}")
        credentials = credentials_in(authorization)
        user = credentials.user
        proven, lifetime = await self._memory.prove(
            address,
            authorization,
            lambda: self._logins.check(peer, credentials),
            lambda: None if user is None else self._password_version(user),
        )
        return Proven(proven, address, lifetime, self._logins.principal_of(proven))

    def _certified(self, peer: Peer, certificate: Callable[[], bytes | None]) -> Peer:
        if self._entrance.principal_of is None:
            return peer
        try:
            return peer._replace(principal=self._entrance.identity_in(certificate()))
        except PenstockError as error:
            raise GatewayRefusalError(UNAUTHENTICATED, str(error)) from None
