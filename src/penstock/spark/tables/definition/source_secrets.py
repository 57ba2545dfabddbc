"""Secrets and references among the options of a pipeline's source (pure).

    options = { "kafka.sasl.password" = "${env:KAFKA_PASSWORD}" }

Guarantees: the options of a definition have no password and no key in plain text, so a definition
can be shown, and the plan of its query is without secrets. `source_reading` resolves the references
in the process that connects. A reference that no process would resolve is an error. References are
for texts of the login: who logs in, and with which files and addresses. How a pipeline connects,
such as `security.protocol`, is in the definition itself, because each process resolves references:
one machine with another value would connect without encryption.

It does NOT check the settings themselves: the source's reader does.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from penstock.client.security.options import SECRET_SETTINGS, SECURITY_SETTINGS
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
from penstock.spark.tables.definition.values import Section

_CERTIFICATES: Final = frozenset(
    {
        "ssl.ca.pem",
        "ssl.certificate.pem",
        "ssl.keystore.certificate.chain",
        "ssl.truststore.certificates",
    }
)
"""Texts that are public, unless a private key is beside the certificate."""
_PRIVATE_KEY: Final = "PRIVATE KEY-----"
_JAAS: Final = "sasl.jaas.config"
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
    _CHOICES
    | TO_CLIENT
    | consumer_settings.TABLES.used
    | {name.lower() for name in KNOWN if name != "subscribePattern"}
)
"""Settings whose references would stay; the reader rejects unknown names, with a better remedy."""
_STAND_IN: Final = "reference"
"""A client, and the name and value of an extension may be called so."""
_HOST: Final = "localhost"
"""A host that may be without TLS: the process that connects knows the real one."""


_PORT: Final = 443
_PORT_REFERENCE: Final = re.compile(f":{REFERENCE.pattern}")
_MISSPELT: Final = re.compile(r"\$\{\s*(?:env|file)\b[^}]*\}?", re.IGNORECASE)
"""A text that is meant as a reference, outside of correct ones."""


def require_no_secret(section: Section, options: Iterable[tuple[str, str]]) -> None:
    """Refuse passwords and keys in plain text."""
    for name, text in options:
        setting = name.lower().removeprefix(PREFIX)
        if setting not in SECRET_SETTINGS:
            continue
        if setting == _JAAS:
            section.fail(
                f"options.{name}",
                "it has a password, and a definition is copied, shown and sent to tasks.",
                'Remove it, and write "kafka.sasl.username" and "kafka.sasl.password" = '
                '"${env:NAME}" instead.',
            )
        is_public = setting in _CERTIFICATES and _PRIVATE_KEY not in text
        if not is_public and not REFERENCE.fullmatch(text.strip()):
            section.fail(
                f"options.{name}",
                "it is a secret in plain text, and a definition is copied, shown and sent to "
                "tasks.",
                'Write "${env:NAME}" for an environment variable or "${file:/run/secrets/name}" '
                "for a file.",
            )


def checkable(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options for a check that does not know the values of references.

    Raise `OptionError` for a reference that would not be resolved.
    """
    found = dict(options)
    for name, text in options.items():
        setting = name.lower().removeprefix(PREFIX)
        misspelt = _MISSPELT.search(REFERENCE.sub("", text)) if setting in RESOLVED else None
        if misspelt is not None:
            raise OptionError(
                name,
                f"{shown(misspelt[0])} is not a reference and would be taken as it is.",
                'Write "${env:NAME}" for an environment variable or "${file:/run/secrets/name}" '
                "for a file, in small letters and without spaces.",
            )
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
            scheme = "https://" if REFERENCE.match(text.strip()) else ""
            with_port = _PORT_REFERENCE.sub(f":{_PORT}", text.strip())
            found[name] = scheme + REFERENCE.sub(_HOST, with_port)
        elif setting == EXTENSIONS:
            found[name] = ",".join(map(_checkable_extension, text.split(",")))
    return found


def _checkable_extension(text: str) -> str:
    """Return one extension; a reference alone stands for a name and its value."""
    if REFERENCE.fullmatch(text.strip()):
        return f"{_STAND_IN}={_STAND_IN}"
    return REFERENCE.sub(_STAND_IN, text)
