"""References among the options of a pipeline's source, checked without their values (pure).

    options = { "kafka.sasl.oauthbearer.client.id" = "${env:CLIENT}" }

Guarantees: a reference that no process would resolve is an error. References are for texts of the
login: who logs in, and with which files and addresses. How a pipeline connects, such as
`security.protocol`, is in the definition itself, because each process resolves references: one
machine with another value would connect without encryption.

It reads no variable and no file: `source_reading` does, in the process that connects.
"""

import re
from collections.abc import Mapping
from typing import Final

from penstock.client.security.options import SECURITY_SETTINGS
from penstock.client.security.sasl_options import (
    CALLBACK_HANDLER,
    CLIENT_ID_NAMES,
    ENDPOINT,
    EXTENSIONS,
    MECHANISM_NAMES,
    METHOD,
)
from penstock.client.security.tls_options import HOST_NAME_CHECK
from penstock.spark.errors import OptionError
from penstock.spark.kafka_settings import PREFIX, TO_CLIENT
from penstock.spark.option_values import shown
from penstock.spark.source import consumer_settings
from penstock.spark.source.options import KNOWN
from penstock.spark.tables.definition.catalogs import REFERENCE

_CHOICES: Final = frozenset(
    {
        "security.protocol",
        "enable.ssl.certificate.verification",
        *MECHANISM_NAMES,
        METHOD,
        CALLBACK_HANDLER,
        HOST_NAME_CHECK,
        "ssl.protocol",
        "ssl.enabled.protocols",
        "ssl.cipher.suites",
        "ssl.truststore.type",
        "ssl.keystore.type",
    }
)
"""Settings of the connection that have a few known values."""
RESOLVED: Final = SECURITY_SETTINGS - _CHOICES
"""The settings whose references are resolved."""
_UNRESOLVED: Final = (
    _CHOICES | TO_CLIENT | consumer_settings.TABLES.used | {name.lower() for name in KNOWN}
)
"""Settings whose references would stay; the reader rejects unknown names, with a better remedy."""
_STAND_IN: Final = "reference"
"""A client, and the name and value of an extension may be called so."""
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
"""Names of extensions have letters only, and each one once."""
_HOST: Final = "localhost"
"""A host that may be without TLS: the process that connects knows the real one."""
_PORT: Final = 443
_MARK: Final = "\0"
"""Stands for a reference in an address."""
_AUTHORITY: Final = re.compile(
    r"(?P<host>[^/?#]*?)(?::(?P<port>[0-9\0]*))?(?P<rest>[/?#].*|)", re.DOTALL
)
_MISSPELT: Final = re.compile(r"\$\{[^}]*\}?")
"""A text that is meant as a reference, outside of correct ones."""


def checkable(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options for a check that does not know the values of references.

    Raise `OptionError` for a reference that would not be resolved.
    """
    found = dict(options)
    for name, text in options.items():
        setting = name.lower().removeprefix(PREFIX)
        if setting in RESOLVED:
            _require_correct(name, text)
        if REFERENCE.search(text) is None:
            continue
        if setting in _UNRESOLVED:
            raise OptionError(
                name,
                f"{shown(text)} has a reference, and references are not resolved here: each "
                "process would read its own value, and the definition is checked before.",
                "Write the value itself. References are for users, passwords, keys, certificates, "
                "their files, and the client and address of an identity provider.",
            )
        if setting in CLIENT_ID_NAMES:
            found[name] = REFERENCE.sub(_STAND_IN, text)
        elif setting == ENDPOINT:
            found[name] = _checkable_address(REFERENCE.sub(_MARK, text.strip()))
        elif setting == EXTENSIONS:
            found[name] = _checkable_extensions(text)
    return found


def _require_correct(name: str, text: str) -> None:
    """Raise `OptionError` for a part of a text that is meant as a reference and is none."""
    wrong = _MISSPELT.search(REFERENCE.sub("", text))
    spaced = (one for one in REFERENCE.finditer(text) if one[2] != one[2].strip())
    found = wrong or next(spaced, None)
    if found is not None:
        raise OptionError(
            name,
            f"{shown(found[0])} is not a reference and would be taken as it is.",
            'Write "${env:NAME}" for an environment variable or "${file:/run/secrets/name}" '
            "for a file, in lower case and without spaces.",
        )


def _checkable_address(text: str) -> str:
    """Return an address without marks: a host, a port, or nothing in their place."""
    if text.startswith(_MARK):
        text = f"https://{text}"
    scheme, separator, rest = text.partition("://")
    parts = _AUTHORITY.fullmatch(rest)
    if not separator or parts is None:
        return text.replace(_MARK, _HOST)
    host = re.sub(f"{_MARK}+", _HOST, parts["host"])
    port = parts["port"]
    if port is not None:
        host = f"{host}:{port.replace(_MARK, '') or _PORT}"
    return f"{scheme}://{host}{parts['rest'].replace(_MARK, '')}"


def _checkable_extensions(text: str) -> str:
    """Return extensions with names; a reference alone stands for a name and its value."""
    names = (_STAND_IN + one for one in _LETTERS)
    with_names = REFERENCE.sub(lambda _: next(names, _STAND_IN), text)
    return ",".join(
        f"{one}={_STAND_IN}" if one.strip().startswith(_STAND_IN) and "=" not in one else one
        for one in with_names.split(",")
    )
