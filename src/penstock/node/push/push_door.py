"""`ListenerDoor`: how push clients of one address prove their identity; `edge.push.ports.PushDoor`.

The identity is that of the listener whose security the address uses: a TLS certificate, or user
and password (PLAIN) or a token (OAUTHBEARER) in the first SUBSCRIBE. Guarantees: passwords are
checked in the turns of the broker's other logins, so that a flood of one address delays others
little; a failed login is recorded, counted and delayed as on the listener; without credentials no
client of a listener with SASL is served. SCRAM needs more messages than the protocol has: a
listener with SCRAM alone accepts no push client.
"""

import asyncio
from typing import Final, cast

from penstock.broker.connections.check_turns import CheckTurns
from penstock.broker.connections.entrance import Entrance
from penstock.broker.connections.login_ports import LoginChecks
from penstock.broker.peer import Peer
from penstock.core.errors import PenstockError
from penstock.edge.push.ports import Admitted, PushRefusedError
from penstock.protocol.push.payloads import Credentials, Refusal
from penstock.security.principal import user as user_principal
from penstock.security.secret import Secret

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
CHECK_SECONDS_MAX: Final = 10.0
"""As the time of a login with Kafka's protocol."""
FAILED: Final = "the credentials are not accepted"
DOOR: Final = "push"
PROCESS_DOOR: Final = "process"
"""The door of clients within this process, which have all rights."""
UNIX_ADDRESS: Final = "127.0.0.1"
"""The address of clients of a unix socket: they are on this machine."""


def _refused(error: str, *, retriable: bool = False) -> PushRefusedError:
    return PushRefusedError(
        Refusal(error=error, code="SASL_AUTHENTICATION_FAILED", retriable=retriable)
    )


class ListenerDoor:
    """One address for push clients."""

    def __init__(self, entrance: Entrance, turns: CheckTurns) -> None:
        self._entrance = entrance
        self._turns = turns

    @property
    def needs_credentials(self) -> bool:
        """Whether the first SUBSCRIBE must have credentials."""
        return self._entrance.logins is not None

    def client_of(self, transport: asyncio.BaseTransport) -> tuple[object, str]:
        """Return a new client, before it proves an identity, and its address."""
        peer = self._entrance.peer_of(transport)
        peer = peer._replace(address=peer.address or UNIX_ADDRESS, door=DOOR)
        return peer, peer.address

    def secured(self, client: object, certificate: bytes | None) -> object:
        """Return the client with the identity in its certificate."""
        return cast("Peer", client)._replace(principal=self._entrance.identity_in(certificate))

    def principal_of(self, client: object) -> str | None:
        """Return the proven identity, whose sessions are counted; None for a client without one.

        A fixed identity of the listener is not proven: all its clients have it.
        """
        principal = cast("Peer", client).principal
        return None if principal == self._entrance.principal else str(principal)

    async def check(self, client: object, credentials: Credentials | None) -> Admitted:
        """Return the client with its proven identity."""
        peer, checks = cast("Peer", client), self._entrance.logins
        assert checks is not None
        if credentials is None:
            raise _refused(
                "this broker needs credentials: send user and password, or a token, in the first "
                "SUBSCRIBE"
            )
        mechanism = PLAIN if credentials.token is None else OAUTHBEARER
        if mechanism not in checks.settings.mechanisms:
            raise _refused(
                f"this listener does not accept {mechanism}; push accepts PLAIN and OAUTHBEARER, "
                f"and this listener has {', '.join(checks.settings.mechanisms)}"
            )
        try:
            async with asyncio.timeout(CHECK_SECONDS_MAX):
                found = await self._verify(checks, peer, credentials)
        except (TimeoutError, PenstockError):
            raise _refused("the credentials cannot be checked now", retriable=True) from None
        if found is None:
            await self._delay_failure(checks, peer, mechanism, credentials.user or "")
            raise _refused(FAILED)
        name, lifetime = found
        proven = peer._replace(principal=user_principal(name), mechanism=mechanism)
        await asyncio.sleep(checks.success_delay_ms(proven) / 1000)
        checks.logged_in(proven, is_again=False)
        session_ms = checks.settings.session_ms_max.get(mechanism, 0)
        if session_ms:
            lifetime = min(session_ms / 1000, session_ms / 1000 if lifetime is None else lifetime)
        return Admitted(proven, lifetime)

    async def _verify(
        self, checks: LoginChecks, peer: Peer, credentials: Credentials
    ) -> tuple[str, float | None] | None:
        """Return the name of the principal and the lifetime of its token; None for a wrong one."""
        if credentials.token is not None:
            token = await checks.verify_token(Secret(credentials.token))
            return None if token is None else (token.principal_name, token.lifetime_seconds)
        assert credentials.user is not None
        assert credentials.password is not None
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def begin() -> bool:
            if turn.done():
                return False
            turn.set_result(None)
            return True

        self._turns.join(peer.address, begin)
        try:
            await turn
            name = await checks.verify_password(credentials.user, Secret(credentials.password))
        finally:
            # A turn that begins in the moment of the timeout is used too.
            if turn.done() and not turn.cancelled():
                self._turns.leave(peer.address)
        return None if name is None else (name, None)

    async def _delay_failure(
        self, checks: LoginChecks, peer: Peer, mechanism: str, user: str
    ) -> None:
        least_ms = checks.login_failed(peer, mechanism, user, FAILED)
        await asyncio.sleep(max(least_ms, checks.settings.failure_delay_ms) / 1000)


class ProcessDoor:
    """`edge.push.ports.PushDoor` of clients within this process: they need no proof."""

    needs_credentials = False

    def __init__(self) -> None:
        self._peer = Peer("", door=PROCESS_DOOR)

    def client_of(self, transport: asyncio.BaseTransport) -> tuple[object, str]:  # noqa: ARG002
        """Return the identity of the process."""
        return self._peer, self._peer.address

    def secured(self, client: object, certificate: bytes | None) -> object:  # noqa: ARG002
        """Return the same client: there is no TLS within a process."""
        return client

    def principal_of(self, client: object) -> str | None:  # noqa: ARG002
        """Return None: the sessions of the process are not counted."""
        return None

    async def check(self, client: object, credentials: Credentials | None) -> Admitted:  # noqa: ARG002
        """Return the same client: no credentials are needed."""
        return Admitted(client, None)
