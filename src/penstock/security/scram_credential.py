"""`ScramCredential`: the stored half of a password, for SCRAM-SHA-256 and SCRAM-SHA-512 (pure).

Guarantees: neither the password nor the salted password is kept, and no `repr`, log line or
message shows the salt and the keys. The server key lets a program pretend to be the broker, and the
stored key allows a search for the password offline, so both are secrets too.

It does NOT check a login: the SCRAM server does. `salted_password` costs milliseconds of computing,
so a broker never calls it on its event loop.
"""

import hashlib
import hmac
from typing import Final, NamedTuple

from penstock.security.sasl_client import HASHES, SCRAM_SHA_256, SCRAM_SHA_512
from penstock.security.secret import HIDDEN, Secret

MECHANISM_NUMBERS: Final = {SCRAM_SHA_256: 1, SCRAM_SHA_512: 2}
"""The number of each mechanism on the wire."""
MECHANISMS: Final = {number: name for name, number in MECHANISM_NUMBERS.items()}

ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
"""The limits of Apache Kafka, for both mechanisms."""
ITERATIONS_DEFAULT: Final = 8_192

SALT_BYTES: Final = 32
"""Length of a salt that Penstock creates."""


class ScramCredential(NamedTuple):
    """Salt, keys and the number of iterations of one user, for one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential({HIDDEN}, iterations={self.iterations})"


def salted_password(mechanism: str, password: Secret, salt: bytes, iterations: int) -> bytes:
    """Return the salted password, which is as secret as the password itself."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.reveal().encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Return the credential of a salted password."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", name)
    return ScramCredential(
        salt=salt,
        stored_key=hashlib.new(name, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", name),
        iterations=iterations,
    )
