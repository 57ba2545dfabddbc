"""`penstock table` on secured brokers: security from `source.options`, no leak of a password.

Passwords are references to a variable of the command.

Each test runs on Apache Kafka and on Penstock, with a login and with a client certificate.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from penstock.client.calls import NewTopic
from penstock.client.opening import open_cluster
from penstock.client.records.topic_writer import TopicWriter
from penstock.client.transport.options import parse_client_options
from tests.oracle.secured_brokers import BROKERS, secured_broker
from tests.oracle.secured_kafka import PLAINTEXT, SASL_SSL, SCRAM_256, SSL, USER
from tests.oracle.secured_penstock import SecuredBroker

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

COUNT = 300
SECRET = "${env:SHOP_SECRET}"


@pytest.fixture(scope="module", params=BROKERS)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredBroker]:
    with secured_broker(request.param, tmp_path_factory.mktemp(request.param)) as running:
        yield running


def secret_of(broker: SecuredBroker, protocol: str) -> str:
    return broker.password(SCRAM_256) if protocol == SASL_SSL else broker.client.password


def definition(broker: SecuredBroker, protocol: str, folder: Path, topic: str = "orders") -> str:
    options = {"kafka.security.protocol": protocol, "kafka.ssl.ca.location": str(broker.ca)}
    if protocol == SASL_SSL:
        options["kafka.sasl.mechanism"] = SCRAM_256
        options["kafka.sasl.username"] = USER
        options["kafka.sasl.password"] = SECRET
    else:
        options["kafka.ssl.keystore.type"] = "PKCS12"
        options["kafka.ssl.keystore.location"] = str(broker.client.keystore)
        options["kafka.ssl.keystore.password"] = SECRET
    lines = ", ".join(
        f"{json.dumps(name)} = {json.dumps(value)}" for name, value in options.items()
    )
    return (
        f'[pipeline]\nname = "orders"\nbootstrap_servers = "{broker.bootstrap(protocol)}"\n'
        f'checkpoint = "{folder}/checkpoint"\n'
        f'[source]\ntopics = ["{topic}"]\noptions = {{ {lines} }}\n'
        f'[table]\nformat = "delta"\nname = "shop.orders"\n'
        f'catalog = {{ warehouse = "{folder}/warehouse" }}\n'
        '[value]\nformat = "json"\nschema = "id bigint"\n'
    )


def penstock(secret: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", "table", *words],
        env={
            **os.environ,
            "SHOP_SECRET": secret,
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("protocol", [pytest.param(SASL_SSL, marks=pytest.mark.every_spark), SSL])
def test_a_pipeline_reads_a_secured_topic(
    broker: SecuredBroker, protocol: str, tmp_path: Path
) -> None:
    topic = f"orders-{protocol}"
    plain = parse_client_options({"bootstrap.servers": broker.bootstrap(PLAINTEXT)})
    with open_cluster(plain) as cluster:
        cluster.create_topic(NewTopic(topic, partitions=2))
        writer = TopicWriter(cluster, topic)
        for number in range(COUNT):
            writer.append(str(number).encode(), json.dumps({"id": number}).encode())
        writer.flush()
    secret = secret_of(broker, protocol)
    world = tmp_path / "world"
    world.mkdir()
    file = tmp_path / "orders.toml"
    file.write_text(definition(broker, protocol, world, topic))
    outputs = []
    for words in (["check", str(file)], ["run", str(file), "--once"], ["status", str(file)]):
        done = penstock(secret, *words)
        assert done.returncode == 0, done.stderr[-3000:]
        outputs.append(done.stdout + done.stderr)
    rows = DeltaTable(str(world / "warehouse/shop/orders")).to_pyarrow_table()
    assert sorted(rows["id"].to_pylist()) == list(range(COUNT))
    leaks = [
        str(path)
        for path in world.rglob("*")
        if path.is_file() and secret.encode() in path.read_bytes()
    ]
    assert leaks == []
    assert not [text for text in outputs if secret in text]


@pytest.mark.every_spark
def test_a_wrong_password_is_reported_before_spark(broker: SecuredBroker, tmp_path: Path) -> None:
    file = tmp_path / "orders.toml"
    file.write_text(definition(broker, SASL_SSL, tmp_path))
    done = penstock("canary-wrong", "check", str(file))
    assert done.returncode == 1
    assert "refused the login with SCRAM-SHA-256" in done.stdout + done.stderr
    assert "canary" not in done.stdout + done.stderr
