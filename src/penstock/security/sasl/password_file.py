"""The file of users and hashed passwords, for the mechanism PLAIN (pure).

    # a comment
    alice:$scrypt$ln=14,r=8,p=1$<salt>$<hash>
    ops%3Ateam:$scrypt$ln=14,r=8,p=1$<salt>$<hash>

One user in a line; salt and hash are base64 without padding. Characters of a name other than
letters, digits and `._@+=-` are percent-encoded as UTF-8, so each name has one form. Guarantees: a
parsed file has no user twice, and at most `USERS_MAX` of them; each hash has the cost that Penstock
writes, so a file cannot make a login more expensive. Errors name the line, and never its content
behind the name.

`hash_password` and `password_matches` take 50 ms and 16 MiB each: use a thread. It does NOT read or
write files.
"""

import base64
import binascii
import hashlib
import hmac
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from penstock.core.errors import ConfigError
from penstock.security.secret import HIDDEN, Secret

FILE_BYTES_MAX: Final = 4_194_304
"""As much as `USERS_MAX` users with ordinary names need."""
USERS_MAX: Final = 10_000
NAME_BYTES_MAX: Final = 255
SALT_BYTES: Final = 16
HASH_BYTES: Final = 32

_COST_LOG2: Final = 14
_BLOCK_SIZE: Final = 8
_PARALLEL: Final = 1
_MEMORY_BYTES_MAX: Final = 64 * 1024 * 1024
_PREFIX: Final = f"$scrypt$ln={_COST_LOG2},r={_BLOCK_SIZE},p={_PARALLEL}$"
_WRITE: Final = "Write the line again with `penstock user hash`."
_UNQUOTED: Final = "@+="
"""Beside letters, digits and `_.-~`, which `quote` never encodes."""


class PasswordHash(NamedTuple):
    """The stored form of a password."""

    salt: bytes
    digest: bytes

    def __repr__(self) -> str:
        return f"PasswordHash({HIDDEN})"


NO_HASH: Final = PasswordHash(bytes(SALT_BYTES), bytes(HASH_BYTES))
"""No password is known to fit; the check of an unknown user takes as long as that of a known one.
"""


def hash_password(password: Secret, salt: bytes) -> PasswordHash:
    """Return the hash of a password. The salt is new and random, `SALT_BYTES` long."""
    assert len(salt) == SALT_BYTES
    digest = hashlib.scrypt(
        password.reveal().encode("utf-8", "surrogatepass"),
        salt=salt,
        n=1 << _COST_LOG2,
        r=_BLOCK_SIZE,
        p=_PARALLEL,
        maxmem=_MEMORY_BYTES_MAX,
        dklen=HASH_BYTES,
    )
    return PasswordHash(salt, digest)


def password_matches(stored: PasswordHash | None, password: Secret) -> bool:
    """Whether this is the password of a user; None for an unknown one, after the same time."""
    expected = NO_HASH if stored is None else stored
    found = hash_password(password, expected.salt)
    is_equal = hmac.compare_digest(found.digest, expected.digest)
    return is_equal and stored is not None


def parse_users(text: str) -> dict[str, PasswordHash]:
    """Return the users of a file; raise `ConfigError` that names the first bad line."""
    users: dict[str, PasswordHash] = {}
    for number, name, value in _entries(text):
        if name in users:
            raise _bad(number, f"the user {name!r} occurs twice", "Remove one of the lines.")
        if len(users) == USERS_MAX:
            raise _bad(number, f"the file has more than {USERS_MAX:,} users", "Use SCRAM instead.")
        users[name] = _parse_hash(number, name, value)
    return users


def format_user(user: str, stored: PasswordHash) -> str:
    """Return the line of a user, without its end."""
    name = user.encode()
    if not 0 < len(name) <= NAME_BYTES_MAX:
        raise ConfigError(
            f"a user name has {len(name)} bytes, 1 to {NAME_BYTES_MAX} are allowed.",
            hint="Choose a shorter name.",
        )
    return f"{_quoted(user)}:{_PREFIX}{_base64(stored.salt)}${_base64(stored.digest)}"


def format_users(users: Mapping[str, PasswordHash]) -> str:
    """Return the text of a file with these users, sorted by name."""
    return "".join(f"{format_user(name, users[name])}\n" for name in sorted(users))


def _entries(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the number, the user name and the rest of each line that is not a comment."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > FILE_BYTES_MAX:
        raise ConfigError(
            f"it has {size:,} bytes or more, at most {FILE_BYTES_MAX:,} are allowed.",
            hint="Use SCRAM for this number of users.",
        )
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        quoted, colon, value = stripped.partition(":")
        if not colon:
            raise _bad(number, "missing ':' between user and hash", _WRITE)
        yield number, _unquoted(number, quoted), value


def _unquoted(number: int, quoted: str) -> str:
    try:
        name = urllib.parse.unquote(quoted, errors="strict")
    except UnicodeDecodeError:
        name = ""
    if _quoted(name) != quoted or not 0 < len(name.encode()) <= NAME_BYTES_MAX:
        raise _bad(
            number,
            "the user name is not in its one form",
            f"Write 1 to {NAME_BYTES_MAX} bytes; percent-encode all but letters, digits and ._@+=-",
        )
    return name


def _parse_hash(number: int, name: str, value: str) -> PasswordHash:
    if not value.startswith(_PREFIX):
        raise _bad(
            number,
            f"the hash of {name!r} does not begin with {_PREFIX}",
            f"{_WRITE} Other costs and plain passwords are not accepted.",
        )
    salt_text, dollar, digest_text = value.removeprefix(_PREFIX).partition("$")
    salt, digest = _decoded(salt_text), _decoded(digest_text)
    if not dollar or len(salt) != SALT_BYTES or len(digest) != HASH_BYTES:
        raise _bad(number, f"the hash of {name!r} is damaged", _WRITE)
    return PasswordHash(salt, digest)


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe=_UNQUOTED).replace("~", "%7E")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return b""
    return data if _base64(data) == text else b""


def _bad(number: int, problem: str, remedy: str) -> ConfigError:
    return ConfigError(f"line {number}: {problem}.", hint=remedy)
