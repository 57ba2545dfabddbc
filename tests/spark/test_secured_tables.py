"""`penstock table` on a secured Apache Kafka: TLS and SCRAM from `source.options`, no leak."""

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
from tests.oracle.secured_kafka import (
    PLAINTEXT,
    SASL_SSL,
    SCRAM_256,
    USER,
    SecuredKafka,
    secured_kafka,
)

pytestmark = [pytest.mark.spark, pytest.mark.every_spark, pytest.mark.timeout(600)]

COUNT = 300


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


def definition(kafka: SecuredKafka, folder: Path, password: str) -> str:
    options = {
        "kafka.security.protocol": SASL_SSL,
        "kafka.ssl.ca.location": str(kafka.ca),
        "kafka.sasl.mechanism": SCRAM_256,
        "kafka.sasl.username": USER,
        "kafka.sasl.password": password,
    }
    lines = ", ".join(
        f"{json.dumps(name)} = {json.dumps(value)}" for name, value in options.items()
    )
    return (
        f'[pipeline]\nname = "orders"\nbootstrap_servers = "{kafka.bootstrap(SASL_SSL)}"\n'
        f'checkpoint = "{folder}/checkpoint"\n'
        f'[source]\ntopics = ["orders"]\noptions = {{ {lines} }}\n'
        f'[table]\nformat = "delta"\nname = "shop.orders"\n'
        f'catalog = {{ warehouse = "{folder}/warehouse" }}\n'
        '[value]\nformat = "json"\nschema = "id bigint"\n'
    )


def penstock(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", "table", *words],
        env={**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_pipeline_reads_a_secured_topic(kafka: SecuredKafka, tmp_path: Path) -> None:
    plain = parse_client_options({"bootstrap.servers": kafka.bootstrap(PLAINTEXT)})
    with open_cluster(plain) as cluster:
        cluster.create_topic(NewTopic("orders", partitions=2))
        writer = TopicWriter(cluster, "orders")
        for number in range(COUNT):
            writer.append(str(number).encode(), json.dumps({"id": number}).encode())
        writer.flush()
    password = kafka.password(SCRAM_256)
    world = tmp_path / "world"
    world.mkdir()
    file = tmp_path / "orders.toml"
    file.write_text(definition(kafka, world, password))
    outputs = []
    for words in (["check", str(file)], ["run", str(file), "--once"], ["status", str(file)]):
        done = penstock(*words)
        assert done.returncode == 0, done.stderr[-3000:]
        outputs.append(done.stdout + done.stderr)
    rows = DeltaTable(str(world / "warehouse/shop/orders")).to_pyarrow_table()
    assert sorted(rows["id"].to_pylist()) == list(range(COUNT))
    leaks = [
        str(path)
        for path in world.rglob("*")
        if path.is_file() and password.encode() in path.read_bytes()
    ]
    assert leaks == []
    assert not [text for text in outputs if password in text]


def test_a_wrong_password_is_reported_before_spark(kafka: SecuredKafka, tmp_path: Path) -> None:
    file = tmp_path / "orders.toml"
    file.write_text(definition(kafka, tmp_path, "canary-wrong"))
    done = penstock("check", str(file))
    assert done.returncode == 1
    assert "refused the login with SCRAM-SHA-256" in done.stdout + done.stderr
    assert "canary" not in done.stdout + done.stderr
