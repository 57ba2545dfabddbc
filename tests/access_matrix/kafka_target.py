"""Apache Kafka with a user for each cell of the matrix.

Users log in with SASL/PLAIN, from the settings of the listener. The super user is the anonymous
client of the listener PLAINTEXT.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.access_matrix.grants import Cell
from tests.access_matrix.rules import create_rules, rules_of
from tests.access_matrix.targets import SocketConnection
from tests.oracle.secured_kafka import (
    PLAIN,
    PLAINTEXT,
    SASL_PLAINTEXT,
    SecuredKafka,
    secured_kafka,
)

PASSWORD: Final = "matrix"
JAAS: Final = f"listener.name.{SASL_PLAINTEXT.lower()}.{PLAIN.lower()}.sasl.jaas.config"
MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"


class KafkaTarget:
    """The running Kafka as a target of the matrix."""

    def __init__(self, kafka: SecuredKafka) -> None:
        self._kafka = kafka

    def connect(self, user: str | None) -> SocketConnection:
        """Open a connection of a user; None is the super user."""
        if user is None:
            return SocketConnection(self._kafka.ports[PLAINTEXT])
        return SocketConnection(self._kafka.ports[SASL_PLAINTEXT], user, PASSWORD)


@contextmanager
def kafka_target(folder: Path, cells: list[Cell]) -> Iterator[KafkaTarget]:
    """Start Kafka with the users and the rules of these cells; stop it at the end."""
    users = " ".join(f'"user_{cell.user}"="{PASSWORD}"' for cell in cells)
    with secured_kafka(
        folder,
        authorizer=True,
        allow_everyone_if_no_acl_found=False,
        properties={JAAS: f"{MODULE} required {users};"},
    ) as kafka:
        target = KafkaTarget(kafka)
        with target.connect(None) as connection:
            create_rules(connection, rules_of(cells))
        yield target
