"""`RefusedLoginError`: a login fails, with a text for the client and a reason for the log (pure).

Guarantees: neither text contains a password, a token or a proof. The text for the client is
Kafka's, and it does not say whether the user exists.
"""

from penstock.core.errors import PenstockError


class RefusedLoginError(PenstockError):
    """The client gets error 58 and the connection ends."""

    def __init__(self, reason: str, text: str = "") -> None:
        super().__init__(reason)
        self.text = text
        """The error message in the answer; empty: the exchange names the mechanism only."""
