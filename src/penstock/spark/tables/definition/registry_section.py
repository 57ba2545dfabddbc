"""The identity that a schema registry sees: `value.registry` of a definition (pure).

    [value]
    schema = "https://registry.example/apis/ccompat/v7"
    registry = { token = "${file:/run/secrets/registry-token}", ca = "/etc/ssl/registry.pem" }

Guarantees: returned options have no secret. A token, a password and the password of a key are
references, and so is a password in the address, or a user without one; the process that sends a
request resolves them (`definition.references`). A token or a user needs TLS, except at loopback
addresses. Options that contradict each other, or that the address cannot use, are errors.
"""

import ipaddress
import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from penstock.spark.tables.definition.catalogs import REFERENCE
from penstock.spark.tables.definition.model import SchemaSource
from penstock.spark.tables.definition.values import Section, did_you_mean

TOKEN: Final = "token"  # noqa: S105 - the name of an option
USERNAME: Final = "username"
WORD: Final = "password"
AUTHORITY: Final = "ca"
CERTIFICATE: Final = "certificate"
KEY: Final = "key"
KEY_WORD: Final = "key_password"
NAMES: Final = (TOKEN, USERNAME, WORD, AUTHORITY, CERTIFICATE, KEY, KEY_WORD)
_SECRETS: Final = (TOKEN, WORD, KEY_WORD)
_OF_TLS: Final = (AUTHORITY, CERTIFICATE)
_NEEDS: Final[Mapping[str, str]] = {
    USERNAME: WORD,
    WORD: USERNAME,
    KEY: CERTIFICATE,
    KEY_WORD: CERTIFICATE,
}
_EXAMPLE: Final = '{ token = "${file:/run/secrets/registry-token}" }'
_REMEDY: Final = (
    'Write "${env:NAME}" for an environment variable or "${file:/run/secrets/name}" for a file, '
    "in the place of the secret."
)
_USER: Final = re.compile(r"\s*https?://(?P<user>[^/?#]*)@", re.IGNORECASE)
"""The user of an address whose references have no sign of an address."""
_PIECES: Final = re.compile(rf"{REFERENCE.pattern}|[^$]+|\$")


class User(NamedTuple):
    """The user in an address, decoded; references are not resolved."""

    name: str
    word: str
    """The password, or ""."""


def user_of(address: str) -> User | None:
    """Return the user in the address of a registry."""
    found = _USER.match(_without_references(address))
    if found is None:
        return None
    start, end = found.span("user")
    colon = found["user"].find(":")
    middle = end if colon < 0 else start + colon
    user = User(_decoded(address[start:middle]), _decoded(address[middle + 1 : end]))
    return user if user.name or user.word else None


def is_loopback(address: str) -> bool:
    """Return whether requests to this address stay on the machine."""
    try:
        host = urlsplit(_without_references(address)).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _without_references(address: str) -> str:
    """Return a text of the same length: a reference to a file has the signs of an address."""
    return REFERENCE.sub(lambda found: "-" * len(found[0]), address)


def _decoded(written: str) -> str:
    pieces = (found[0] for found in _PIECES.finditer(written))
    return "".join(one if REFERENCE.fullmatch(one) else unquote(one) for one in pieces)


def read_registry(
    section: Section, source: SchemaSource, address: str | None
) -> tuple[tuple[str, str], ...]:
    """Return the options of `value.registry`, of a checked address."""
    options = section.properties("registry", _EXAMPLE)
    if source is not SchemaSource.REGISTRY:
        if options:
            section.fail(
                "registry",
                "only a registry of schemas has it.",
                "Remove it, or set value.schema to the URL of a registry.",
            )
        return ()
    assert address is not None, "a registry is found by its address"
    if "?" in address or "#" in address:
        section.fail(
            "schema",
            "it has a query or a fragment: paths are appended to the address, and a key in it "
            "would be shown.",
            "Remove all after the path, and set value.registry for a token or a user.",
        )
    user = user_of(address)
    _require_hidden_user(section, user)
    given = dict(options)
    for name, value in options:
        _require_known(section, name)
        _require_reference(section, name, value)
    _require_one_identity(section, given, has_user=user is not None)
    _require_tls(section, given, address, has_user=user is not None)
    for name in _OF_TLS:
        if name in given and not address.strip().startswith("https://"):
            section.fail(
                f"registry.{name}",
                "the address of the registry is without TLS.",
                "Set value.schema to an address with https://, or remove it.",
            )
    return options


def _require_known(section: Section, name: str) -> None:
    if name not in NAMES:
        meant = did_you_mean(name, NAMES).rstrip()
        section.fail(
            f"registry.{name}",
            "there is no such option.",
            meant or f"Remove it; known here: {', '.join(NAMES)}.",
        )


def _require_reference(section: Section, name: str, value: str) -> None:
    if name in _SECRETS and REFERENCE.fullmatch(value) is None:
        section.fail(
            f"registry.{name}",
            "it is a secret in plain text, and a definition is copied, shown and sent to tasks.",
            _REMEDY,
        )


def _require_hidden_user(section: Section, user: User | None) -> None:
    if user is None or REFERENCE.fullmatch(user.word or user.name):
        return
    part = "a password" if user.word else "a user without a password, which may be a key,"
    section.fail(
        "schema",
        f"it has {part} in plain text, and a definition is copied, shown and sent to tasks.",
        _REMEDY,
    )


def _require_tls(
    section: Section, given: Mapping[str, str], address: str, *, has_user: bool
) -> None:
    users = [f"registry.{name}" for name in (TOKEN, USERNAME) if name in given]
    if has_user:
        users.append("schema")
    if users and not address.strip().startswith("https://") and not is_loopback(address):
        section.fail(
            users[0],
            "credentials would cross the network in plain text: the address of the registry is "
            "without TLS.",
            "Set value.schema to an address with https://, or remove the credentials. Only "
            "localhost, 127.0.0.0/8 and ::1 need no TLS.",
        )


def _require_one_identity(section: Section, given: Mapping[str, str], *, has_user: bool) -> None:
    for name, other in _NEEDS.items():
        if name in given and other not in given:
            section.fail(
                f"registry.{name}",
                f"it needs registry.{other}.",
                f"Set registry.{other} too, or remove registry.{name}.",
            )
    users = [name for name in (TOKEN, USERNAME) if name in given]
    if len(users) + has_user > 1:
        other = "the user in value.schema" if has_user else f"registry.{users[0]}"
        section.fail(
            f"registry.{users[-1]}",
            f"it contradicts {other}: a request has one identity.",
            "Remove one of them.",
        )
