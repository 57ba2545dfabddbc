"""The server's side of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677) (pure).

One exchange has three steps, each once and in this order: `read_first`, `challenge`, `verify`. The
caller looks the credential up between the first two, and draws the server's nonce.

Guarantees:

- An unknown user looks like a known one. The salt is an HMAC of the name with a secret of the
  cluster, so it is the same at each attempt, and the login fails at the proof, after the same
  computations and with the same text. (Kafka 4.3.1 refuses an unknown user at the first message.)
  Its iterations and the length of its salt are those of users that Penstock creates; a user that
  another program created with others can be recognised by them.
- The nonce of the final message is the whole nonce of this exchange (CVE-2024-56128), and its
  channel binding repeats the header of the first message.
- A channel binding is refused, and so are mandatory extensions (`m=`) and delegation tokens
  (`tokenauth=true`). Other extensions are ignored.
- Proofs are compared in constant time. Neither the password nor its salted form is ever known.

Names are ASCII, as in Kafka, with `=2C` for a comma and `=3D` for an equals sign. It does NOT
prepare names with SASLprep.
"""

import base64
import binascii
import hashlib
import hmac
import re
from typing import Final, NoReturn

from penstock.security.sasl.plain_server import OTHER_IDENTITY
from penstock.security.sasl.refused_login import RefusedLoginError
from penstock.security.sasl_client import HASHES, SCRAM_SHA_256, SCRAM_SHA_512
from penstock.security.scram_credential import (
    ITERATIONS_DEFAULT,
    SALT_BYTES,
    ScramCredential,
    credential_of,
    salted_password,
)
from penstock.security.secret import Secret

MESSAGE_BYTES_MAX: Final = 4_096
"""One message of a client: a name of 255 bytes and a nonce need less than 1 KiB."""
NAME_BYTES_MAX: Final = 255

_SASL_NAME: Final = re.compile(r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+")
_PRINTABLE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
_EXTENSION: Final = re.compile(r"([A-Za-z]+)=([\x01-\x2b\x2d-\x7f]+)")
_NO_BINDING: Final = ("n", "y")
"""The client does not support channel binding, or believes that the server does not."""
_NO_CREDENTIAL: Final = ScramCredential(bytes(SALT_BYTES), b"", b"", ITERATIONS_DEFAULT)
"""No password fits."""
_FIRST_FIELDS: Final = 2
_FINAL_FIELDS_MIN: Final = 3


class ScramServer:
    """One exchange with one client."""

    __slots__ = (
        "_credential",
        "_false_iterations",
        "_false_key",
        "_first_bare",
        "_hash",
        "_header",
        "_is_known",
        "_nonce",
        "_server_first",
        "_user",
        "mechanism",
    )

    def __init__(
        self, mechanism: str, false_key: Secret, false_iterations: int = ITERATIONS_DEFAULT
    ) -> None:
        """`false_key` derives the salts of unknown users; all brokers of a cluster share it."""
        self.mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._false_key = false_key
        self._false_iterations = false_iterations
        self._user = ""
        self._header = ""
        self._first_bare = ""
        self._nonce = ""
        self._server_first = ""
        self._credential: ScramCredential | None = None
        self._is_known = False

    def read_first(self, token: bytes) -> str:
        """Return the user name in the client's first message."""
        assert not self._first_bare, "the first message was read before"
        message = _text(token)
        flag, comma, rest = message.partition(",")
        identity, second_comma, bare = rest.partition(",")
        if not (comma and second_comma):
            _refuse("the first SCRAM message has no header")
        if flag not in _NO_BINDING:
            _refuse("the client asks for a channel binding")
        name, nonce, *extensions = _fields(bare, _FIRST_FIELDS)
        user = _user_name(_value(name, "n"))
        client_nonce = _value(nonce, "r")
        if _PRINTABLE.fullmatch(client_nonce) is None:
            _refuse("the nonce of the first SCRAM message is malformed")
        _check_extensions(extensions)
        if identity and _user_name(_value(identity, "a")) != user:
            raise RefusedLoginError("the client asked to act for another user", OTHER_IDENTITY)
        self._user = user
        self._header = message[: len(message) - len(bare)]
        self._first_bare = bare
        self._nonce = client_nonce
        return user

    def challenge(self, credential: ScramCredential | None, server_nonce: str) -> bytes:
        """Return the server's first message; `credential` is None for an unknown user."""
        assert self._first_bare, "the first message comes before"
        assert self._credential is None, "the challenge was sent before"
        assert _PRINTABLE.fullmatch(server_nonce), "a nonce is printable and has no comma"
        # Computed for each user: a known one must not be faster.
        false = _false_credential(
            self.mechanism, self._user, self._false_key, self._false_iterations
        )
        self._is_known = credential is not None
        chosen = self._credential = false if credential is None else credential
        self._nonce += server_nonce
        salt = base64.b64encode(chosen.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={chosen.iterations}"
        return self._server_first.encode()

    def verify(self, token: bytes) -> bytes:
        """Return the server's final message if the client has the password."""
        credential = self._credential
        assert credential is not None, "the challenge comes before"
        message = _text(token)
        binding, nonce, *extensions, proof_field = _fields(message, _FINAL_FIELDS_MIN)
        _check_extensions(extensions)
        proof = _decoded(_value(proof_field, "p"))
        if _value(binding, "c") != base64.b64encode(self._header.encode()).decode():
            _refuse("the channel binding of the final SCRAM message is another")
        if _value(nonce, "r") != self._nonce:
            _refuse("the nonce of the final SCRAM message is another")
        if len(proof) != len(credential.stored_key):
            _refuse("the SCRAM proof has a wrong length")
        without_proof = message[: len(message) - len(proof_field) - 1]
        signed = f"{self._first_bare},{self._server_first},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, signed, self._hash)
        mixed = int.from_bytes(proof) ^ int.from_bytes(signature)
        client_key = mixed.to_bytes(len(signature))
        stored_key = hashlib.new(self._hash, client_key).digest()
        is_right = hmac.compare_digest(stored_key, credential.stored_key)
        server_signature = hmac.digest(credential.server_key, signed, self._hash)
        if not (is_right and self._is_known):
            _refuse("the SCRAM proof is wrong" if self._is_known else "the user is unknown")
        return b"v=" + base64.b64encode(server_signature)


def password_matches(mechanism: str, credential: ScramCredential, password: Secret) -> bool:
    """Whether this is the password of a credential. Milliseconds of computing: use a thread."""
    salted = salted_password(mechanism, password, credential.salt, credential.iterations)
    found = credential_of(mechanism, salted, credential.salt, credential.iterations)
    return hmac.compare_digest(found.stored_key, credential.stored_key)


def user_password_matches(
    stronger: ScramCredential | None, weaker: ScramCredential | None, password: Secret
) -> bool:
    """Whether this is the password of a user: by its SHA-512 credential, or else its SHA-256 one.

    The work is the same for every name: both hashes, with the usual iterations or more. The time of
    a login shows neither whether the user exists nor how its password is stored. A larger number of
    iterations shows; SCRAM sends it to each client anyway. Use a thread.
    """
    is_strong = _matches_in_equal_time(SCRAM_SHA_512, stronger, password)
    is_weak = _matches_in_equal_time(SCRAM_SHA_256, weaker, password)
    return is_strong or (stronger is None and is_weak)


def _matches_in_equal_time(
    mechanism: str, credential: ScramCredential | None, password: Secret
) -> bool:
    chosen = _NO_CREDENTIAL if credential is None else credential
    matches = password_matches(mechanism, chosen, password)
    if chosen.iterations < ITERATIONS_DEFAULT:
        salted_password(mechanism, password, chosen.salt, ITERATIONS_DEFAULT - chosen.iterations)
    return matches and credential is not None


def _false_credential(mechanism: str, user: str, key: Secret, iterations: int) -> ScramCredential:
    """Return a credential that no password fits, always the same one for a user."""
    secret = key.reveal().encode()
    name = HASHES[mechanism]
    salt = hmac.digest(secret, f"{mechanism}\0{user}".encode(), name)[:SALT_BYTES]
    keys = hmac.digest(secret, b"keys\0" + salt, name)
    return ScramCredential(salt, keys, keys, iterations)


def _text(token: bytes) -> str:
    if len(token) > MESSAGE_BYTES_MAX:
        _refuse(f"a SCRAM message has {len(token)} bytes, at most {MESSAGE_BYTES_MAX} are allowed")
    try:
        return token.decode("ascii")
    except UnicodeDecodeError:
        _refuse("a SCRAM message is not ASCII")


def _fields(message: str, count_min: int) -> list[str]:
    fields = message.split(",")
    if len(fields) < count_min:
        _refuse("a SCRAM message has too few fields")
    return fields


def _value(field: str, name: str) -> str:
    found, equals, value = field.partition("=")
    if found != name or not equals or not value:
        _refuse(f"a SCRAM message has no field {name!r} at its place")
    return value


def _user_name(sasl_name: str) -> str:
    if _SASL_NAME.fullmatch(sasl_name) is None:
        _refuse("a name in a SCRAM message is malformed")
    name = sasl_name.replace("=2C", ",").replace("=3D", "=")
    if len(name) > NAME_BYTES_MAX:
        _refuse(f"a name in a SCRAM message has more than {NAME_BYTES_MAX} bytes")
    return name


def _check_extensions(extensions: list[str]) -> None:
    for extension in extensions:
        found = _EXTENSION.fullmatch(extension)
        if found is None:
            _refuse("an extension of a SCRAM message is malformed")
        name, value = found.groups()
        if name == "m":
            _refuse("the client requires a SCRAM extension that does not exist")
        if name == "tokenauth" and value.lower() == "true":
            _refuse("delegation tokens are not supported")


def _decoded(text: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if base64.b64encode(data).decode() != text:
        _refuse("the SCRAM proof is not base64")
    return data


def _refuse(reason: str) -> NoReturn:
    raise RefusedLoginError(reason)
