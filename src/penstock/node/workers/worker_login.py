"""The login of workers to each other, with a secret that their supervisor drew.

Workers listen for each other on this machine, where processes of other users can connect. SCRAM
proves to both sides that the other one has the secret, and sends no secret; so a process that took
the port of a worker that ended learns nothing. The secret is drawn at each start and is in no file.
"""

import hashlib
import logging
from typing import TYPE_CHECKING, Final

from penstock.broker.peer import Peer
from penstock.client.security.options import SaslOptions, Security
from penstock.security.sasl.exchange import ExchangeSettings
from penstock.security.sasl_client import SCRAM_SHA_256
from penstock.security.scram_credential import (
    ITERATIONS_MIN,
    ScramCredential,
    credential_of,
    salted_password,
)
from penstock.security.secret import Secret

if TYPE_CHECKING:
    from penstock.security.sasl.mechanism_logins import VerifiedToken

logger = logging.getLogger(__name__)

USER: Final = "worker"
PROTOCOL: Final = "SASL_PLAINTEXT"
FAILURE_DELAY_MS: Final = 1_000
_FAILURES_SHOWN_MAX: Final = 10


def worker_security(secret: Secret) -> Security:
    """Return the client's side of a connection to another worker."""
    return Security(PROTOCOL, sasl=SaslOptions(SCRAM_SHA_256, USER, secret))


class WorkerLogins:
    """`broker.connections.login_ports.LoginChecks` of the listener for other workers."""

    def __init__(self, secret: Secret) -> None:
        # The salt need not be random: the secret is, with 256 bits.
        salt = hashlib.sha256(b"salt" + secret.reveal().encode()).digest()
        salted = salted_password(SCRAM_SHA_256, secret, salt, ITERATIONS_MIN)
        self._credential = credential_of(SCRAM_SHA_256, salted, salt, ITERATIONS_MIN)
        self.settings: Final = ExchangeSettings(
            mechanisms=(SCRAM_SHA_256,),
            false_key=Secret(hashlib.sha256(b"false" + secret.reveal().encode()).hexdigest()),
            failure_delay_ms=FAILURE_DELAY_MS,
        )
        self._failures = 0

    def scram_credential(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return the credential of the workers."""
        return self._credential if (mechanism, user) == (SCRAM_SHA_256, USER) else None

    async def verify_password(self, user: str, password: Secret) -> str | None:
        """Return None: passwords are not sent here."""
        del user, password
        return None

    async def verify_token(self, token: Secret) -> "VerifiedToken | None":
        """Return None: there are no tokens here."""
        del token
        return None

    def success_delay_ms(self, peer: Peer) -> int:
        """Return 0: a worker is never delayed."""
        del peer
        return 0

    def logged_in(self, peer: Peer, *, is_again: bool) -> None:
        """Another worker has connected."""

    def login_failed(self, peer: Peer, mechanism: str, user: str, reason: str) -> int:
        """A process that is no worker connected; return the delay of its answer."""
        self._failures += 1
        if self._failures <= _FAILURES_SHOWN_MAX:
            logger.warning(
                "a process at %s tried to log in as a worker: %s (%s, %r)",
                peer.address,
                reason,
                mechanism,
                user,
            )
        return FAILURE_DELAY_MS

    def session_expired(self, peer: Peer) -> None:
        """Sessions of workers do not expire."""
