"""Floods of logins: bad ones, unfinished ones and large ones, on a listener with SASL.

Meanwhile a client that has logged in produces and fetches, and another one can log in. The broker
grows by its budget for clients that are not logged in (8 MiB) and the allocator's habits, and
releases all of it. Connections that never finish their login end after ten seconds.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from penstock.security.sasl_client import ScramClient
from penstock.security.secret import Secret
from tests.bad_input.case import MEBIBYTE
from tests.bad_input.login_flood import CLOSED, HELD, LARGE_BYTES
from tests.bad_input.ward import WITNESS_SECONDS_MAX, Ward, Witness
from tests.bad_input.wire import Peer
from tests.oracle.secured_kafka import SASL_PLAINTEXT, SCRAM_512, USER
from tests.oracle.secured_penstock import SecuredPenstock, secured_penstock

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(120)]

ROOT = Path(__file__).resolve().parents[2]
ROOM_BYTES = 64 * MEBIBYTE
"""The budget of 8 MiB, two hashes of 16 MiB each, sockets, and the allocator's habit to keep."""
LATENCY_SECONDS_MAX = 1.0
"""A produce and a fetch, at the 99th percentile, on a machine that runs the flood as well."""
LOGIN_SECONDS_MAX = 8.0
"""A good login, which would fail after ten."""


class Client(Peer):
    """A connection that logs in first."""

    def __init__(self, secured: SecuredPenstock) -> None:
        super().__init__(secured.ports[SASL_PLAINTEXT])
        self.call(SaslHandshakeRequest(mechanism=SCRAM_512), 1)
        password = Secret(secured.password(SCRAM_512))
        scram = ScramClient(SCRAM_512, USER, password, "flood-client-nonce")
        sent: bytes | None = scram.first()
        while sent is not None:
            answer = self.call(SaslAuthenticateRequest(auth_bytes=sent), 2)
            assert isinstance(answer, SaslAuthenticateResponse)
            assert not answer.error_code, answer.error_message
            sent = scram.respond(bytes(answer.auth_bytes))


class ClientWitness(Witness):
    """A witness that has logged in."""

    def __init__(self, secured: SecuredPenstock) -> None:
        self._secured = secured
        super().__init__(secured.ports[SASL_PLAINTEXT])
        self._peer.close()
        self._peer = Client(secured)


class Scene:
    """A broker with SASL, and its well-behaved clients."""

    def __init__(self, secured: SecuredPenstock, outside: Path) -> None:
        self.secured = secured
        self.ward = Ward(secured.broker, outside)
        self.witness = ClientWitness(secured)
        self.port = secured.ports[SASL_PLAINTEXT]

    def latency(self, count: int = 200) -> float:
        """The 99th percentile of a produce and a fetch, in seconds."""
        seconds = sorted(self.witness.round_trip() for _ in range(count))
        return seconds[int(count * 0.99)]

    def log_in(self) -> float:
        """The seconds that a good login takes now."""
        begun = time.monotonic()
        Client(self.secured).close()
        return time.monotonic() - begun

    def close(self) -> None:
        self.witness.close()
        self.ward.close()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    outside = tmp_path_factory.mktemp("floods")
    with secured_penstock(outside / "broker") as secured:
        made = Scene(secured, outside)
        yield made
        made.close()


@contextmanager
def flooded(scene: Scene, kind: str, rate: int, seconds: float) -> Iterator[Mapping[str, int]]:
    """Run the flood beside the block; its outcomes are there when the block is left."""
    words = [sys.executable, "-m", "tests.bad_input.login_flood"]
    words += [str(scene.port), kind, str(rate), str(seconds)]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    outcomes: dict[str, int] = {}
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}
    ) as process:
        try:
            time.sleep(1)  # until it floods
            yield outcomes
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    outcomes.update(json.loads(out))


@pytest.mark.parametrize("kind", ["wrong_proof", "wrong_password"])
def test_bad_logins(scene: Scene, kind: str) -> None:
    """500 in each second, for eight seconds."""
    before = scene.latency()
    with scene.ward.watched(memory_bytes_max=ROOM_BYTES):
        with flooded(scene, kind, 500, 8) as outcomes:
            during = max(scene.latency() for _ in range(3))
            login = scene.log_in()
        assert outcomes[CLOSED] >= 3_000
        assert HELD not in outcomes
    print(
        f"flood {kind}: p99 {before * 1000:.1f} ms before, {during * 1000:.1f} ms during, "
        f"a good login in {login * 1000:.0f} ms, {outcomes}"
    )
    assert during < LATENCY_SECONDS_MAX
    assert login < LOGIN_SECONDS_MAX


@pytest.mark.parametrize("kind", ["nothing", "half_a_handshake", "only_a_handshake"])
def test_logins_that_are_never_finished(scene: Scene, kind: str) -> None:
    """2,000 connections, each closed by the broker at the end of its ten seconds."""
    with scene.ward.watched(memory_bytes_max=ROOM_BYTES):
        with flooded(scene, kind, 1_000, 2) as outcomes:
            time.sleep(1.5)
            assert scene.latency() < WITNESS_SECONDS_MAX
            assert scene.log_in() < LOGIN_SECONDS_MAX
        assert outcomes[CLOSED] == 2_000, outcomes


@pytest.mark.parametrize("kind", ["unfinished", "announced", "refused"])
def test_large_frames_of_clients_that_are_not_logged_in(scene: Scene, kind: str) -> None:
    """A gigabyte in all, were it kept or reserved."""
    count = 2_000
    assert count * LARGE_BYTES > 10 * ROOM_BYTES
    with scene.ward.watched(memory_bytes_max=ROOM_BYTES):
        before = scene.ward.vitals()
        with flooded(scene, kind, 400, count / 400) as outcomes:
            for _ in range(20):
                assert scene.ward.vitals().rss_bytes - before.rss_bytes < 2 * ROOM_BYTES
                assert scene.witness.round_trip() < WITNESS_SECONDS_MAX
                time.sleep(0.2)
            assert scene.log_in() < LOGIN_SECONDS_MAX
        assert sum(outcomes.values()) == count
        assert HELD not in outcomes
