"""OAUTHBEARER (RFC 7628): parse the client's message, and the challenge after a bad token (pure).

Guarantees: a parsed message has one token of at most `TOKEN_BYTES_MAX` in the form of RFC 6750, and
at most `EXTENSIONS_MAX` extensions with different names. The format is Kafka's: no channel binding,
names of letters, values of printable ASCII.

After a bad token the server sends `INVALID_TOKEN`, the client acknowledges it with one byte, and
only then the login fails: clients read the reason in the challenge.

It does NOT verify the token: `security.sasl.jwt_keys` and `security.sasl.token_claims` do.
"""

import re
from typing import Final, NamedTuple, NoReturn

from penstock.security.sasl.refused_login import RefusedLoginError
from penstock.security.secret import Secret

TOKEN_BYTES_MAX: Final = 16_384
MESSAGE_BYTES_MAX: Final = TOKEN_BYTES_MAX + 4_096
EXTENSIONS_MAX: Final = 32
AUTHORIZATION_ID_BYTES_MAX: Final = 255

INVALID_TOKEN: Final = '{"status":"invalid_token"}'  # noqa: S105 - the challenge after a bad token
ACKNOWLEDGEMENT: Final = b"\x01"

_SEPARATOR: Final = "\x01"
_AUTHORIZATION: Final = "auth"
_AUTHORIZATION_ID: Final = re.compile(r"(?:[\x20-\x2b\x2d-\x3c\x3e-\x7e]|=2C|=3D)+")
_PAIR: Final = re.compile(r"([A-Za-z]+)=([\x20-\x7e\t\r\n]+)")
_BEARER: Final = re.compile(r"bearer +([-_~+/.a-zA-Z0-9]+=*)", re.IGNORECASE)


class BearerMessage(NamedTuple):
    """The parts of the client's message."""

    token: Secret
    authorization_id: str
    """The identity to act for; empty for the one in the token."""
    extensions: tuple[tuple[str, str], ...]


def parse_bearer(message: bytes) -> BearerMessage:
    """Return the parts of the client's first message; raise `RefusedLoginError`."""
    if len(message) > MESSAGE_BYTES_MAX:
        _refuse(f"it has {len(message)} bytes, at most {MESSAGE_BYTES_MAX} are allowed")
    try:
        text = message.decode("ascii")
    except UnicodeDecodeError:
        _refuse("it is not ASCII")
    flag, _, rest = text.partition(",")
    identity, _, body = rest.partition(",")
    if flag != "n":
        _refuse("its header is malformed")
    pairs = _pairs(body)
    credential = pairs.pop(_AUTHORIZATION, None)
    if credential is None:
        _refuse("it has no token")
    found = _BEARER.fullmatch(credential)
    if found is None:
        _refuse("its token is malformed")
    token = found[1]
    if len(token) > TOKEN_BYTES_MAX:
        _refuse(f"its token has {len(token)} bytes, at most {TOKEN_BYTES_MAX} are allowed")
    return BearerMessage(Secret(token), _authorization_id(identity), tuple(pairs.items()))


def _pairs(body: str) -> dict[str, str]:
    """Return the pairs of name and value, each ended by a separator, and one more at the end."""
    if len(body) < len(_SEPARATOR) * 2 or body[0] != _SEPARATOR or body[-1] != _SEPARATOR:
        _refuse("its pairs are not separated")
    *parts, last = body[1:-1].split(_SEPARATOR)
    if last:
        _refuse("its last pair is not ended")
    if len(parts) > EXTENSIONS_MAX + 1:
        _refuse(f"it has more than {EXTENSIONS_MAX} extensions")
    pairs: dict[str, str] = {}
    for part in parts:
        found = _PAIR.fullmatch(part)
        if found is None:
            _refuse("a pair is malformed")
        name, value = found.groups()
        if name in pairs:
            _refuse("a name occurs twice")
        pairs[name] = value
    return pairs


def _authorization_id(field: str) -> str:
    if not field:
        return ""
    value = field.removeprefix("a=")
    if value == field or _AUTHORIZATION_ID.fullmatch(value) is None:
        _refuse("its authorization id is malformed")
    name = value.replace("=2C", ",").replace("=3D", "=")
    if len(name) > AUTHORIZATION_ID_BYTES_MAX:
        _refuse(f"its authorization id has more than {AUTHORIZATION_ID_BYTES_MAX} bytes")
    return name


def _refuse(reason: str) -> NoReturn:
    raise RefusedLoginError(f"the OAUTHBEARER message is refused: {reason}")
