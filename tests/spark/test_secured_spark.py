"""`format("penstock")` and the exactly-once sink on secured brokers, beside Spark's own connector.

Each test runs on Apache Kafka and on Penstock, with a login and with a client certificate.
No password is in Spark's event log, plans, checkpoint or output: Spark's own connector has options
with the same names, so its part of the event log is searched too.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.calls import NewTopic
from penstock.client.opening import open_cluster
from penstock.client.records.topic_writer import TopicWriter
from penstock.client.transport.options import parse_client_options
from tests.oracle.secured_brokers import BROKERS, secured_broker
from tests.oracle.secured_kafka import PLAINTEXT, SASL_SSL, SCRAM_512, SSL, USER
from tests.oracle.secured_penstock import SecuredBroker

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
VALUES = sorted(f"value-{number}" for number in range(200))


@pytest.fixture(scope="module", params=BROKERS)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredBroker]:
    with secured_broker(request.param, tmp_path_factory.mktemp(request.param)) as running:
        yield running


def options(broker: SecuredBroker, protocol: str) -> dict[str, str]:
    """Options that both connectors accept."""
    chosen = {
        "kafka.bootstrap.servers": broker.bootstrap(protocol),
        "kafka.security.protocol": protocol,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(broker.ca),
    }
    if protocol == SASL_SSL:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        chosen["kafka.sasl.mechanism"] = SCRAM_512
        chosen["kafka.sasl.jaas.config"] = (
            f'{module} required username="{USER}" password="{broker.password(SCRAM_512)}";'
        )
    else:
        chosen["kafka.ssl.keystore.type"] = "PKCS12"
        chosen["kafka.ssl.keystore.location"] = str(broker.client.keystore)
        chosen["kafka.ssl.keystore.password"] = broker.client.password
    return chosen


@pytest.mark.parametrize("protocol", [pytest.param(SASL_SSL, marks=pytest.mark.every_spark), SSL])
def test_both_connectors_and_the_sink(broker: SecuredBroker, protocol: str, tmp_path: Path) -> None:
    source, target = f"source-{protocol}", f"target-{protocol}"
    plain = parse_client_options({"bootstrap.servers": broker.bootstrap(PLAINTEXT)})
    with open_cluster(plain) as cluster:
        for topic in (source, target):
            cluster.create_topic(NewTopic(topic, partitions=2))
        writer = TopicWriter(cluster, source)
        for value in VALUES:
            writer.append(value.encode(), value.encode())
        writer.flush()
    chosen = options(broker, protocol)
    given = {"ours": chosen, "theirs": chosen, "source": source, "target": target}
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.secured_app", str(tmp_path)],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"ours": VALUES, "theirs": VALUES, "copied": VALUES}
    secret = broker.password(SCRAM_512) if protocol == SASL_SSL else broker.client.password
    leaks = [
        str(path.relative_to(tmp_path))
        for path in tmp_path.rglob("*")
        if path.is_file() and secret.encode() in path.read_bytes()
    ]
    assert leaks == []
    # The search above sees what it must: the name of the topic is there.
    assert source in (tmp_path / "plans.txt").read_text()
    events = "".join(path.read_text() for path in (tmp_path / "events").rglob("events_*"))
    assert source in events
    assert secret not in done.stdout + done.stderr
