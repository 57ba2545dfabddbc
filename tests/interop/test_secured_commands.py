"""Penstock's commands on a secured broker: the settings file of Kafka's tools, no password shown.

Each test runs on Apache Kafka and on Penstock.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.secured_settings import own_settings
from tests.oracle.secured_brokers import BROKERS, secured_broker
from tests.oracle.secured_kafka import SASL_SSL, SCRAM_512, USER
from tests.oracle.secured_penstock import SecuredBroker

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module", params=BROKERS)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredBroker]:
    with secured_broker(request.param, tmp_path_factory.mktemp(request.param)) as running:
        yield running


def penstock(*arguments: str, environment: dict[str, str] | None = None) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | (environment or {}),
    )
    return done.returncode, done.stdout, done.stderr


def test_commands_take_the_file_of_kafkas_tools(broker: SecuredBroker, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    file.write_text(
        f"bootstrap.servers={broker.bootstrap(SASL_SSL)}\n"
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f"ssl.truststore.location={broker.ca}\nssl.truststore.type=PEM\n"
        f'sasl.jaas.config={module} required \\\n  username="{USER}" '
        f'password="{broker.password(SCRAM_512)}";\n'
    )
    topic = "from-the-command-line"
    code, _, problem = penstock("topic", "create", topic, "--command-config", str(file))
    assert code == 0, problem
    code, out, problem = penstock(
        "topic", "list", environment={"PENSTOCK_COMMAND_CONFIG": str(file)}
    )
    assert code == 0, problem
    assert topic in out


def test_a_command_reports_a_wrong_password(broker: SecuredBroker, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.ca.location={broker.ca}\n"
        f"sasl.username={USER}\nacks=all\n"
    )
    code, out, problem = penstock(
        "topic",
        "list",
        *("--bootstrap-server", broker.bootstrap(SASL_SSL), "--command-config", str(file)),
        environment={"PENSTOCK_CLIENT_SASL_PASSWORD": "canary-wrong"},
    )
    assert code != 0
    assert "refused the login with PLAIN" in problem
    assert "hint: Check the user" in problem
    assert "note: settings without an effect on a command: acks." in problem
    assert "canary" not in out + problem


def command_file(broker: SecuredBroker, folder: Path) -> str:
    file = folder / "client.properties"
    chosen = own_settings(broker, SASL_SSL, SCRAM_512)
    del chosen["request.timeout.ms"]
    file.write_text("".join(f"{name}={value}\n" for name, value in chosen.items()))
    return str(file)


def test_bench_and_doctor_take_the_file(broker: SecuredBroker, tmp_path: Path) -> None:
    file = command_file(broker, tmp_path)
    for words in (
        ("bench", "produce", "--duration", "1", "--clients", "2"),
        ("bench", "end-to-end", "--duration", "1", "--clients", "1", "--rate", "100"),
    ):
        code, out, problem = penstock(*words, "--command-config", file, "--json", "-")
        assert code == 0, problem
        assert broker.password(SCRAM_512) not in out + problem
    address = broker.bootstrap(SASL_SSL)
    doctor = ("doctor", "--bootstrap-server", address)
    code, out, problem = penstock(*doctor, "--command-config", file)
    assert "1 broker" in out, out + problem
    _, without, _ = penstock(*doctor, "--timeout", "2")
    assert "TLS" in without
