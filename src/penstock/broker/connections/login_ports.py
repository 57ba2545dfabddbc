"""The ports of a login: its connection, which `gate` implements, and its checks, by `node`.

A port has the methods that `client_login` calls and no more. Nothing here decides.
"""

from typing import TYPE_CHECKING, Protocol

from penstock.broker.peer import Peer
from penstock.core.errors import PenstockError
from penstock.protocol.encoder_source import Buffer
from penstock.security.secret import Secret

if TYPE_CHECKING:
    from penstock.security.sasl.exchange import ExchangeSettings
    from penstock.security.sasl.mechanism_logins import VerifiedToken
    from penstock.security.scram_credential import ScramCredential


class ChecksBusyError(PenstockError):
    """Too many credentials are being checked: nothing is known about this one.

    The connection is closed without an answer, so that its client tries again. A client that is
    refused would give up.
    """


class LoginOwner(Protocol):
    """The connection of a login."""

    def login_write(self, buffers: list[Buffer]) -> None:
        """Send an answer of the login."""
        ...

    def login_close(self) -> None:
        """Close when everything that was written is sent."""
        ...

    def login_abort(self) -> None:
        """Close at once."""
        ...

    def login_changed(self, peer: Peer | None) -> None:
        """Go on reading; a peer is the identity that the client has proven."""
        ...

    def session_ended(self) -> None:
        """Answer waiting fetches: the session is over."""
        ...


class LoginChecks(Protocol):
    """Verifies the credentials of clients, and keeps account of logins."""

    @property
    def settings(self) -> "ExchangeSettings":
        """The mechanisms of the listener, and the bounds of its sessions."""
        ...

    def scram_credential(self, mechanism: str, user: str) -> "ScramCredential | None":
        """Return the credential of a user; None for an unknown one."""
        ...

    async def verify_password(self, user: str, password: Secret) -> str | None:
        """Return the name of the principal; None for a wrong password.

        It may raise `ChecksBusyError`, or another `PenstockError` if it cannot decide.
        """
        ...

    async def verify_token(self, token: Secret) -> "VerifiedToken | None":
        """Return the identity in a token; None for an invalid one."""
        ...

    def success_delay_ms(self, peer: Peer) -> int:
        """Return how long the answer to a good login waits, after many bad ones."""
        ...

    def logged_in(self, peer: Peer, *, is_again: bool) -> None:
        """A client proved its identity."""
        ...

    def login_failed(self, peer: Peer, mechanism: str, user: str, reason: str) -> int:
        """A client did not; return how many milliseconds its answer is delayed at least."""
        ...

    def session_expired(self, peer: Peer) -> None:
        """A client used its connection after the end of its session."""
        ...
