"""The golden conversations are those of Apache Kafka: each is carried on with a running one.

`--rewrite` writes the golden file anew; read the difference before a commit.
"""

import socket
import ssl
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracle.running_broker import HOST
from tests.oracle.secured_kafka import SASL_PLAINTEXT, SASL_SSL, SecuredKafka, secured_kafka
from tests.security.sasl.conversations import CONVERSATIONS, ENDLESS, SESSION_MS, held
from tests.security.sasl.golden import GOLDEN, KAFKA, read_golden, write_golden

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

ANSWER_SECONDS = 10.0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(
        tmp_path_factory.mktemp("conversations"), reauthentication_ms={SASL_PLAINTEXT: SESSION_MS}
    ) as running:
        yield running


class SocketWire:
    """A connection to a broker."""

    def __init__(self, kafka: SecuredKafka, *, is_endless: bool) -> None:
        self._kafka = kafka
        protocol = SASL_SSL if is_endless else SASL_PLAINTEXT
        address = (HOST, kafka.ports[protocol])
        self._socket: socket.socket = socket.create_connection(address, ANSWER_SECONDS)
        if is_endless:
            context = ssl.create_default_context(cafile=str(kafka.ca))
            self._socket = context.wrap_socket(self._socket, server_hostname=HOST)
        self._reader = self._socket.makefile("rb")

    def send(self, frame: bytes) -> None:
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self) -> bytes | None:
        try:
            head = self._reader.read(4)
            return self._reader.read(struct.unpack(">i", head)[0]) if head else None
        except ConnectionError:
            return None

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def token(self, subject: str, lifetime_seconds: float) -> str:
        if not subject:
            return self._kafka.tokens.token(claims={"aud": "another"})
        return self._kafka.tokens.token(subject=subject, lifetime_seconds=lifetime_seconds)

    def close(self) -> None:
        self._reader.close()
        self._socket.close()


def carried_on(kafka: SecuredKafka, name: str) -> list[str]:
    wire = SocketWire(kafka, is_endless=name in ENDLESS)
    try:
        return held(wire, name)
    finally:
        wire.close()


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_kafka_carries_on_as_recorded(
    kafka: SecuredKafka, name: str, request: pytest.FixtureRequest
) -> None:
    lines = carried_on(kafka, name)
    if request.config.getoption("--rewrite"):
        write_golden(GOLDEN, name, KAFKA, lines)
    assert lines == read_golden(GOLDEN)[name][KAFKA]


def test_the_file_has_no_other_conversation() -> None:
    assert set(read_golden(Path(GOLDEN))) == set(CONVERSATIONS)
