"""`Identities` verifies credentials for all doors; `ListenerLogins` is its view for one listener.

Both kinds of doors, Kafka's listeners and the admin port, ask the same `Identities`, so that a user
has one password and one count of failed logins. Each result goes to the audit log.

It decides nothing itself: SCRAM is verified by `security.sasl`, passwords by a `PasswordCheck`,
tokens by a `TokenCheck`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from penstock.broker.peer import Peer
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.node.security.audit_log import AuditLog
from penstock.security.sasl.throttle import LoginThrottle
from penstock.security.scram_credential import ScramCredential
from penstock.security.secret import Secret

if TYPE_CHECKING:
    from penstock.security.sasl.exchange import ExchangeSettings
    from penstock.security.sasl.mechanism_logins import VerifiedToken


class PasswordCheck(Protocol):
    """Verifies passwords."""

    def version(self, user: str) -> object:
        """Return a value that changes with the credential of a user; None if it is not known."""
        ...

    async def verify(self, user: str, password: Secret) -> str | None:
        """Return the name of the principal; None for a wrong password."""
        ...


class TokenCheck(Protocol):
    """Verifies tokens of an identity provider."""

    async def verify(self, token: Secret) -> "VerifiedToken | None":
        """Return the identity in a token; None for an invalid one."""
        ...


CredentialLookUp = Callable[[str, str], ScramCredential | None]
"""Returns the SCRAM credential of a mechanism and a user."""


class NotConfiguredError(PenstockError):
    """A credential of a kind that this broker does not verify."""


class Identities:
    """Verifies credentials, delays clients that fail often, and writes the audit log."""

    def __init__(
        self,
        credential: CredentialLookUp,
        passwords: PasswordCheck | None,
        tokens: TokenCheck | None,
        log: AuditLog,
        clock: Clock,
    ) -> None:
        self.credential = credential
        self._passwords = passwords
        self._tokens = tokens
        self.log = log
        self._throttle = LoginThrottle()
        self._clock = clock

    async def verify_password(self, user: str, password: Secret) -> str | None:
        """Return the name of the principal; None for a wrong password."""
        if self._passwords is None:
            raise NotConfiguredError("passwords are not verified here")
        return await self._passwords.verify(user, password)

    def password_version(self, user: str) -> object:
        """Return a value that changes with the credential of a user; None if it is not known."""
        return None if self._passwords is None else self._passwords.version(user)

    async def verify_token(self, token: Secret) -> "VerifiedToken | None":
        """Return the identity in a token; None for an invalid one."""
        if self._tokens is None:
            raise NotConfiguredError("tokens are not verified here")
        return await self._tokens.verify(token)

    def failed(self, peer: Peer, mechanism: str, user: str, reason: str) -> int:
        """Note a failed login; return how many milliseconds to delay its answer."""
        self.log.login_failed(peer, mechanism, user, reason)
        return int(self._throttle.failed(peer.address, user, self._clock.monotonic()) * 1000)

    def success_delay_ms(self, address: str, user: str) -> int:
        """Return how long the answer to a good login waits, after many bad ones."""
        return int(self._throttle.succeeded(address, user, self._clock.monotonic()) * 1000)


class ListenerLogins:
    """`broker.connections.login_ports.LoginChecks` of one listener."""

    def __init__(self, settings: "ExchangeSettings", identities: Identities) -> None:
        self.settings = settings
        self._identities = identities

    def scram_credential(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return the credential of a user; None for an unknown one."""
        return self._identities.credential(mechanism, user)

    async def verify_password(self, user: str, password: Secret) -> str | None:
        """Return the name of the principal; None for a wrong password."""
        return await self._identities.verify_password(user, password)

    async def verify_token(self, token: Secret) -> "VerifiedToken | None":
        """Return the identity in a token; None for an invalid one."""
        return await self._identities.verify_token(token)

    def success_delay_ms(self, peer: Peer) -> int:
        """Return how long the answer to a good login waits, after many bad ones."""
        return self._identities.success_delay_ms(peer.address, peer.principal.name)

    def logged_in(self, peer: Peer, *, is_again: bool) -> None:
        """A client proved its identity."""
        self._identities.log.logged_in(peer, is_again=is_again)

    def login_failed(self, peer: Peer, mechanism: str, user: str, reason: str) -> int:
        """A client did not; return how many milliseconds its answer is delayed at least."""
        return self._identities.failed(peer, mechanism, user, reason)

    def session_expired(self, peer: Peer) -> None:
        """A client used its connection after the end of its session."""
        self._identities.log.session_expired(peer)
