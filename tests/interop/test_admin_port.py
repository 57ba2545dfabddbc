"""The admin port of a broker as users start it: schemathesis, probes, stop, a port that is taken.

schemathesis makes requests from the published description, valid and invalid ones, alone and in
chains, and holds every answer against it. That it may see more than refusals, there are a topic, a
group and a transaction of the names that the description gives as examples.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker, free_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

EXAMPLES = os.environ.get("PENSTOCK_API_EXAMPLES", "25")
SETTINGS = """
# 400 is for what the description forbids, 422 for what Kafka's rules refuse: a topic "..", a
# setting that is none. Both are in the description; the first must not be the answer to valid data.
[checks.positive_data_acceptance]
expected-statuses = ["2xx", 404, 409, 422]
"""


class AdminPort:
    """A broker with its admin port."""

    def __init__(self, broker: RunningBroker, url: str) -> None:
        self.broker = broker
        self.url = url

    def ask(self, path: str, document: object = None) -> tuple[int, Any]:
        """The status and the document of an answer."""
        data = None if document is None else json.dumps(document).encode()
        asked = urllib.request.Request(
            f"{self.url}{path}", data, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[AdminPort]:
    port = free_port()
    environment = {
        "PENSTOCK_ADMIN__ENABLED": "true",
        "PENSTOCK_ADMIN__PORT": str(port),
        "PENSTOCK_NODE__STORAGE": "memory",
    }
    with penstock_broker(tmp_path / "broker", environment=environment) as broker:
        yield AdminPort(broker, f"http://127.0.0.1:{port}")


def test_schemathesis_finds_nothing(admin: AdminPort, tmp_path: Path) -> None:
    assert admin.ask("/api/v1/topics", {"name": "orders", "partitions": 2})[0] == 201
    producer = Producer(
        {"bootstrap.servers": admin.broker.bootstrap, "transactional.id": "payments-1"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"1", partition=0)
    producer.flush(30)
    to_start = {"to": {"kind": "earliest"}, "topics": [{"topic": "orders"}], "execute": True}
    assert admin.ask("/api/v1/groups/billing/offsets/reset", to_start)[0] == 200
    (tmp_path / "schemathesis.toml").write_text(SETTINGS)
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "schemathesis"),
            "--config-file",
            "schemathesis.toml",
            "run",
            f"{admin.url}/api/v1/openapi.json",
            "--checks",
            "all",
            "--max-examples",
            EXAMPLES,
            "--seed",
            "7",
            "--request-timeout",
            "60",  # a topic of ten thousand partitions is among the examples
            "--no-color",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    for phase in ("Examples", "Coverage", "Fuzzing", "Stateful"):
        assert f"✅ {phase}" in done.stdout
    assert admin.ask("/health/ready")[0] == 200


def test_status_of_a_process(admin: AdminPort) -> None:
    status, document = admin.ask("/api/v1/status")
    assert (status, document["health"]) == (200, "Healthy")
    assert document["address"] == admin.broker.bootstrap


def test_a_port_that_was_asked_for_and_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        environment = {**os.environ, "PENSTOCK_ADMIN__ENABLED": "true"}
        done = subprocess.run(
            [
                *(sys.executable, "-m", "penstock", "serve", "--port", "0"),
                *("--data-dir", str(tmp_path / "data")),
                *("--admin-port", str(taken.getsockname()[1])),
            ],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert "--admin-port" in done.stderr


def test_signals_are_the_brokers(admin: AdminPort) -> None:
    assert admin.ask("/health/live")[0] == 200
    process = admin.broker.process
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
