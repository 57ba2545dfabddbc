"""SCRAM users of a running broker, changed by librdkafka: of Apache Kafka and of Penstock alike."""

import secrets
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

ITERATIONS: Final = 4096
"""Kafka's smallest number: a login costs little."""
CHANGE_SECONDS: Final = 10.0
_SALT_BYTES: Final = 16
_MECHANISMS: Final = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}


def add_scram_user(
    bootstrap: str, name: str, password: str, *, mechanism: str, iterations: int = ITERATIONS
) -> None:
    """Add or change a credential; `bootstrap` is a listener of an administrator."""
    credential = ScramCredentialInfo(_MECHANISMS[mechanism], iterations)
    salt = secrets.token_bytes(_SALT_BYTES)
    _change(bootstrap, UserScramCredentialUpsertion(name, credential, password.encode(), salt))


def remove_scram_user(bootstrap: str, name: str, *, mechanism: str) -> None:
    """Remove a credential."""
    _change(bootstrap, UserScramCredentialDeletion(name, _MECHANISMS[mechanism]))


def _change(bootstrap: str, change: UserScramCredentialAlteration) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for result in client.alter_user_scram_credentials([change]).values():
        result.result(CHANGE_SECONDS)
