"""Penstock in this process with a user for each cell of the matrix.

Users log in with SASL/PLAIN, verified by SCRAM credentials that the super user creates, all with
the same password. The super user is the anonymous client of the listener PLAINTEXT.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.core.settings.listener_declarations import NamedListener
from penstock.core.settings.tree import settings_of
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from penstock.security.principal import ANONYMOUS
from penstock.security.sasl_client import SCRAM_SHA_256
from penstock.security.scram_credential import salted_password
from penstock.security.secret import Secret
from penstock.testing import Broker
from tests.access_matrix.grants import HOST, Cell
from tests.access_matrix.names import NODE_ID
from tests.access_matrix.rules import create_rules, rules_of
from tests.access_matrix.targets import SocketConnection

PLAINTEXT: Final = "PLAINTEXT"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
PASSWORD: Final = "matrix"
SALT: Final = b"salt of the matrix"
ITERATIONS: Final = 4_096
USERS_AT_ONCE: Final = 100
LISTENERS: Final = (
    NamedListener(name=PLAINTEXT, host=HOST, port=0, protocol=PLAINTEXT),
    NamedListener(
        name=SASL_PLAINTEXT, host=HOST, port=0, protocol=SASL_PLAINTEXT, mechanisms=("PLAIN",)
    ),
)
SETTINGS: Final = {
    "node.id": NODE_ID,
    "node.storage": "memory",
    "groups.offsets_partitions": 5,
    "security.authorizer": "acl",
    "security.super_users": str(ANONYMOUS),
}
"""As the Kafka that the matrix is recorded on."""


class PenstockTarget:
    """The running broker as a target of the matrix."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def connect(self, user: str | None) -> SocketConnection:
        """Open a connection of a user; None is the super user."""
        ports = self._broker.listening_ports
        if user is None:
            return SocketConnection(ports[PLAINTEXT])
        return SocketConnection(ports[SASL_PLAINTEXT], user, PASSWORD)


@contextmanager
def penstock_target(cells: list[Cell]) -> Iterator[PenstockTarget]:
    """Start a broker with the users and the rules of these cells; stop it at the end."""
    with Broker(settings_of(SETTINGS, LISTENERS)) as broker:
        target = PenstockTarget(broker)
        with target.connect(None) as connection:
            _create_users(connection, cells)
            create_rules(connection, rules_of(cells))
        yield target


def _create_users(connection: SocketConnection, cells: list[Cell]) -> None:
    salted = salted_password(SCRAM_SHA_256, Secret(PASSWORD), SALT, ITERATIONS)
    for start in range(0, len(cells), USERS_AT_ONCE):
        request = AlterUserScramCredentialsRequest(
            deletions=(),
            upsertions=tuple(
                ScramCredentialUpsertion(
                    name=cell.user,
                    mechanism=1,
                    iterations=ITERATIONS,
                    salt=SALT,
                    salted_password=salted,
                )
                for cell in cells[start : start + USERS_AT_ONCE]
            ),
        )
        (answer,) = connection.ask([(request, 0)])
        assert isinstance(answer, AlterUserScramCredentialsResponse)
        failed = [one for one in answer.results if one.error_code != ErrorCode.NONE]
        assert not failed, failed[0]
