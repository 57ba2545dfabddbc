"""Brokers, frames and outcomes of the tests of logins over sockets."""

from contextlib import ExitStack
from typing import Final

import pytest

from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from penstock.protocol.response_errors import error_codes
from penstock.security.sasl_client import PlainClient
from penstock.security.secret import Secret
from tests.interop.login_wire import LoginWire, answered, request_bytes
from tests.oracle.secured_kafka import (
    PASSWORDS,
    PLAIN,
    SASL_PLAINTEXT,
    SCRAM_256,
    USER,
    secured_kafka,
)
from tests.oracle.secured_penstock import SecuredBroker, secured_penstock
from tests.security.sasl.conversations import SESSION_MS

NAMES: Final = ("penstock", "kafka")
ON_BOTH: Final = pytest.mark.parametrize("name", NAMES)
SHORT_MS: Final = 1_500
"""The sessions of SCRAM-SHA-256 on Kafka, and all sessions of one Penstock."""


class Brokers:
    """The brokers of this file, each started at its first use."""

    def __init__(self, stack: ExitStack, factory: pytest.TempPathFactory) -> None:
        self._stack = stack
        self._factory = factory
        self._running: dict[str, SecuredBroker] = {}

    def named(self, name: str) -> SecuredBroker:
        """Sessions have no end, except with SCRAM-SHA-256 on Kafka."""
        return self._find(name, None)

    def short(self, name: str) -> SecuredBroker:
        """Sessions with SCRAM-SHA-256 end after `SHORT_MS`."""
        return self._find(name, None if name == "kafka" else SHORT_MS)

    def golden(self) -> SecuredBroker:
        """A Penstock with the sessions of the golden conversations."""
        return self._find("penstock", SESSION_MS)

    def _find(self, name: str, session_ms: int | None) -> SecuredBroker:
        key = f"{name}-{session_ms}"
        if key not in self._running:
            folder = self._factory.mktemp(key)
            if name == "kafka":
                place = f"{SASL_PLAINTEXT}.{SCRAM_256}"
                started: SecuredBroker = self._stack.enter_context(
                    secured_kafka(folder, reauthentication_ms={place: SHORT_MS})
                )
            else:
                sessions = None if session_ms is None else {SASL_PLAINTEXT: session_ms}
                started = self._stack.enter_context(
                    secured_penstock(folder, reauthentication_ms=sessions)
                )
            self._running[key] = started
        return self._running[key]

    def check_logs(self) -> None:
        """No Penstock met an unexpected error."""
        for key, running in self._running.items():
            if key.startswith("penstock"):
                text = running.broker.log_text()
                assert " ERROR " not in text
                assert "Traceback" not in text


# --- Frames of a good login ---


def versions(number: int = 7) -> bytes:
    message = ApiVersionsRequest(client_software_name="java", client_software_version="1.0")
    return request_bytes(message, 3, number)


def handshake(mechanism: str = PLAIN, number: int = 7) -> bytes:
    return request_bytes(SaslHandshakeRequest(mechanism=mechanism), 1, number)


def authenticate(password: str = PASSWORDS[PLAIN][USER], number: int = 7) -> bytes:
    token = PlainClient(USER, Secret(password)).first()
    return request_bytes(SaslAuthenticateRequest(auth_bytes=token), 2, number)


def groups(number: int = 7) -> bytes:
    return request_bytes(ListGroupsRequest(), 4, number)


Known = tuple[ApiKey, int]
VERSIONS: Known = (ApiKey.API_VERSIONS, 3)
HANDSHAKE: Known = (ApiKey.SASL_HANDSHAKE, 1)
AUTHENTICATE: Known = (ApiKey.SASL_AUTHENTICATE, 2)
GROUPS: Known = (ApiKey.LIST_GROUPS, 4)
CLOSED = "closed"
OPEN = "open"


def outcome(wire: LoginWire, *expected: Known) -> list[tuple[int, int] | str]:
    """Correlation id and error code of each answer, then whether the connection is open."""
    found: list[tuple[int, int] | str] = []
    for api_key, version in expected:
        answer = answered(wire.receive(), api_key, version)
        if answer is None:
            return [*found, CLOSED]
        number, message = answer
        found.append((number, next(iter(int(code) for code in error_codes(message)), 0)))
    return [*found, OPEN if wire.is_open() else CLOSED]
