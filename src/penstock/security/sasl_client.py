"""The client's side of SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER (pure).

`first` returns the first token of an exchange, and `respond` the token after each challenge of the
server; None ends the exchange. The caller sends the tokens and draws the nonce of SCRAM. A new
exchange needs a new object.

SCRAM proves the server too: a server that does not know the password cannot sign the exchange, and
`respond` raises `AuthenticationError`. The server chooses the number of iterations, so it is
bounded: at least `ITERATIONS_MIN`, because fewer make a stolen proof cheap to attack, and at most
`ITERATIONS_MAX`, because each costs the client processor time. As in Kafka, names are not prepared
with SASLprep.

It does NOT bind to a TLS channel: Kafka's brokers do not offer it.
"""

import base64
import binascii
import hashlib
import hmac
from typing import Final, Protocol

from penstock.core.errors import AuthenticationError
from penstock.security.secret import Secret

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"

ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 1_000_000
SALT_BYTES_MAX: Final = 1_024
CHALLENGE_BYTES_MAX: Final = 16_384
HASHES: Final = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}

_NO_CHANNEL_BINDING: Final = "n,,"
_SEPARATOR: Final = "\x01"


class SaslClient(Protocol):
    """One exchange of a mechanism."""

    @property
    def mechanism(self) -> str:
        """The name of the mechanism."""
        ...

    def first(self) -> bytes:
        """Return the first token."""
        ...

    def respond(self, challenge: bytes, /) -> bytes | None:
        """Return the token after this challenge; None ends the exchange."""
        ...


class PlainClient:
    """User and password in one token, for connections with TLS."""

    mechanism = PLAIN

    def __init__(self, username: str, password: Secret) -> None:
        self._username = username
        self._password = password

    def first(self) -> bytes:
        """Return user and password; the identity to act for is empty."""
        return f"\0{self._username}\0{self._password.reveal()}".encode()

    def respond(self, _challenge: bytes, /) -> bytes | None:
        """End the exchange: the server has accepted the only token."""
        return None


class ScramClient:
    """A proof of the password that does not send it (RFC 5802)."""

    def __init__(self, mechanism: str, username: str, password: Secret, nonce: str) -> None:
        self.mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._password = password
        self._nonce = nonce
        self._first_bare = f"n={escape_name(username)},r={nonce}"
        self._signature: bytes | None = None
        self._is_verified = False

    def first(self) -> bytes:
        """Return the name and the nonce."""
        return (_NO_CHANNEL_BINDING + self._first_bare).encode()

    def respond(self, challenge: bytes, /) -> bytes | None:
        """Return the proof; after it, check the server's signature."""
        if self._signature is None:
            return self._prove(challenge)
        self._verify(challenge)
        return None

    def _prove(self, challenge: bytes) -> bytes:
        server_first = _text(challenge)
        fields = _fields(server_first)
        nonce, salt, iterations = self._read_first(fields)
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.reveal().encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key = hashlib.new(self._hash, client_key).digest()
        binding = base64.b64encode(_NO_CHANNEL_BINDING.encode()).decode()
        without_proof = f"c={binding},r={nonce}"
        signed = f"{self._first_bare},{server_first},{without_proof}".encode()
        client_signature = hmac.digest(stored_key, signed, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, client_signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        self._signature = hmac.digest(server_key, signed, self._hash)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _read_first(self, fields: dict[str, str]) -> tuple[str, bytes, int]:
        """Return nonce, salt and iterations of the server's first message, checked."""
        if "m" in fields:
            raise AuthenticationError("the broker requires a SCRAM extension that does not exist.")
        nonce = fields.get("r", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationError("the broker's SCRAM nonce does not continue the client's.")
        salt = _decoded(fields.get("s", ""))
        if not 0 < len(salt) <= SALT_BYTES_MAX:
            raise AuthenticationError(
                f"the broker's SCRAM salt has {len(salt)} bytes, 1 to {SALT_BYTES_MAX} are allowed."
            )
        text = fields.get("i", "")
        if not (text.isascii() and text.isdecimal() and len(text) <= 10):
            raise AuthenticationError("the broker's number of SCRAM iterations is not a number.")
        if not ITERATIONS_MIN <= int(text) <= ITERATIONS_MAX:
            raise AuthenticationError(
                f"the broker asks for {text} SCRAM iterations, "
                f"{ITERATIONS_MIN} to {ITERATIONS_MAX} are allowed."
            )
        return nonce, salt, int(text)

    def _verify(self, challenge: bytes) -> None:
        fields = _fields(_text(challenge))
        if "e" in fields:
            raise AuthenticationError(f"the broker refused the SCRAM proof: {fields['e'][:200]!r}.")
        assert self._signature is not None
        if not hmac.compare_digest(_decoded(fields.get("v", "")), self._signature):
            raise AuthenticationError(
                "the broker does not know the password: its SCRAM signature is wrong.",
                hint="Check that the address belongs to your cluster.",
            )


class BearerClient:
    """A token of an identity provider (RFC 7628)."""

    mechanism = OAUTHBEARER

    def __init__(self, token: Secret, extensions: tuple[tuple[str, str], ...] = ()) -> None:
        self._token = token
        self._extensions = extensions

    def first(self) -> bytes:
        """Return the token and the extensions."""
        parts = [f"auth=Bearer {self._token.reveal()}"]
        parts += (f"{name}={value}" for name, value in self._extensions)
        body = _SEPARATOR.join(parts)
        return f"{_NO_CHANNEL_BINDING}{_SEPARATOR}{body}{_SEPARATOR}{_SEPARATOR}".encode()

    def respond(self, challenge: bytes, /) -> bytes | None:
        """End the exchange, or acknowledge the error in the challenge: the server then refuses."""
        return _SEPARATOR.encode() if challenge else None


def escape_name(name: str) -> str:
    """Return a user name in the form of a SCRAM message."""
    return name.replace("=", "=3D").replace(",", "=2C")


def _text(challenge: bytes) -> str:
    if len(challenge) > CHALLENGE_BYTES_MAX:
        raise AuthenticationError(
            f"the broker's SASL challenge has {len(challenge)} bytes, "
            f"at most {CHALLENGE_BYTES_MAX} are allowed."
        )
    try:
        return challenge.decode()
    except UnicodeDecodeError:
        raise AuthenticationError("the broker's SASL challenge is not UTF-8.") from None


def _fields(message: str) -> dict[str, str]:
    """Return the attributes of a SCRAM message; the first of a name counts."""
    found: dict[str, str] = {}
    for part in message.split(","):
        name, separator, value = part.partition("=")
        if len(name) != 1 or not separator:
            raise AuthenticationError("the broker's SCRAM message is malformed.")
        found.setdefault(name, value)
    return found


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise AuthenticationError("the broker's SCRAM message has invalid base64.") from None
