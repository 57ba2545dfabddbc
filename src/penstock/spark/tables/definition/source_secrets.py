"""Secrets among the options of a pipeline's source (pure).

    options = { "kafka.sasl.password" = "${env:KAFKA_PASSWORD}" }

Guarantees: the options of a definition have no password and no key in plain text, so a definition
can be shown, and the plan of its query is without secrets. `source_reading` resolves the references
in the process that connects.

It does NOT check the settings themselves: the source's reader does.
"""

from collections.abc import Iterable
from typing import Final

from penstock.client.security.options import SECRET_SETTINGS
from penstock.client.security.sasl_options import ENDPOINT
from penstock.spark.kafka_settings import PREFIX
from penstock.spark.tables.definition.catalogs import IN_QUERY, REFERENCE
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
_IN_PLAIN: Final = (
    "it is a secret in plain text, and a definition is copied, shown and sent to tasks."
)
_WRITE_REFERENCE: Final = (
    'Write one reference and nothing else for the secret: "${env:NAME}" for an environment '
    'variable or "${file:/run/secrets/name}" for a file.'
)


def require_no_secret(section: Section, options: Iterable[tuple[str, str]]) -> None:
    """Refuse passwords and keys in plain text."""
    for name, text in options:
        setting = name.lower().removeprefix(PREFIX)
        in_query = IN_QUERY.search(text) if setting == ENDPOINT else None
        if in_query is not None and not REFERENCE.fullmatch(in_query["password"]):
            section.fail(f"options.{name}", _IN_PLAIN, _WRITE_REFERENCE)
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
            section.fail(f"options.{name}", _IN_PLAIN, _WRITE_REFERENCE)
