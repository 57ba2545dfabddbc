"""The client and the commands against real brokers: Apache Kafka and Penstock give the same."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.calls import FetchBounds, NewTopic
from penstock.client.cluster import Cluster
from penstock.client.records.positions import parse_start
from penstock.client.records.topic_reader import TopicReader
from penstock.client.records.topic_writer import TopicWriter
from penstock.client.transport.addresses import parse_addresses
from penstock.client.transport.blocking import connect
from penstock.core.errors import BrokerAnswerError, UnknownTopicOrPartitionError
from penstock.records.compression import CODEC_NAMES
from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker

pytestmark = pytest.mark.interop

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", params=["kafka", "penstock"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningBroker]:
    folder = tmp_path_factory.mktemp(request.param)
    started = kafka_broker(folder) if request.param == "kafka" else penstock_broker(folder)
    with started as running:
        yield running


@pytest.fixture
def cluster(broker: RunningBroker) -> Iterator[Cluster]:
    with Cluster(
        parse_addresses(broker.bootstrap),
        lambda address: connect(address, timeout_seconds=10),
        timeout_seconds=10,
    ) as opened:
        yield opened


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"client.{abs(hash(request.node.nodeid)) % 10**9}"
    cluster.create_topic(NewTopic(name, 3))
    # Kafka answers some moments before its broker knows of the topic.
    deadline = time.monotonic() + 30
    while name not in cluster.describe(None):
        assert time.monotonic() < deadline, name
        time.sleep(0.02)
    yield name
    cluster.delete_topic(name)


def read(cluster: Cluster, topic: str, start: str, partition: int = 0) -> list[bytes | None]:
    places = cluster.partitions_of(topic, [partition])
    return [r.value for r in TopicReader(cluster, places, parse_start(start)).records()]


@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
@pytest.mark.parametrize("acks", [-1, 1])
def test_what_is_written_is_read(cluster: Cluster, topic: str, codec: int, acks: int) -> None:
    writer = TopicWriter(cluster, topic, partition=0, codec=codec, acks=acks, batch_bytes_max=5000)
    wanted = [b"%d-" % number + b"x" * (number % 700) for number in range(300)]
    for number, value in enumerate(wanted):
        writer.append(b"key-%d" % number, value, (("h", b"%d" % number),))
    writer.flush()
    assert writer.records_sent == 300
    places = cluster.partitions_of(topic, [0])
    found = list(TopicReader(cluster, places, parse_start("earliest")).records())
    assert [record.value for record in found] == wanted
    assert [record.offset for record in found] == list(range(300))
    assert found[7].key == b"key-7"
    assert found[7].headers == (("h", b"7"),)


def test_acks_zero(cluster: Cluster, topic: str) -> None:
    # A broker that does not lead the new partition yet drops records without acknowledgement: first
    # a record that is acknowledged, then those that are not.
    for acks, values in ((1, [b"0"]), (0, [b"1", b"2", b"3"])):
        writer = TopicWriter(cluster, topic, partition=0, acks=acks)
        for value in values:
            writer.append(None, value)
            writer.flush()
    places = cluster.partitions_of(topic, [0])
    records = TopicReader(cluster, places, parse_start("earliest"), follow=True).records()
    assert [next(records).value for _ in range(4)] == [b"0", b"1", b"2", b"3"]


def test_every_start(cluster: Cluster, topic: str) -> None:
    writer = TopicWriter(cluster, topic, partition=0)
    for number in range(20):
        writer.append(None, b"%d" % number)
        if number % 3 == 2:
            writer.flush()
    writer.flush()
    values = [b"%d" % number for number in range(20)]
    assert read(cluster, topic, "earliest") == values
    assert read(cluster, topic, "7") == values[7:]
    assert read(cluster, topic, "-4") == values[-4:]
    assert read(cluster, topic, "latest") == []
    assert read(cluster, topic, "@0") == values
    assert read(cluster, topic, "2100-01-01") == []
    assert read(cluster, topic, "999") == []


def test_small_fetches_lose_nothing(cluster: Cluster, topic: str) -> None:
    """A partition limit below one batch: the broker sends it all the same."""
    writer = TopicWriter(cluster, topic, batch_bytes_max=20_000)
    for number in range(500):
        writer.append(b"%d" % number, b"%d" % number + b"y" * 200)
    writer.flush()
    bounds = FetchBounds(bytes_max=30_000, partition_bytes_max=1_000)
    places = cluster.partitions_of(topic)
    reader = TopicReader(cluster, places, parse_start("earliest"), bounds=bounds)
    keys = sorted(int(record.key or b"") for record in reader.records())
    assert keys == list(range(500))


def test_settings_and_cluster(cluster: Cluster, topic: str) -> None:
    assert len(cluster.brokers()) == 1
    assert cluster.cluster_id()
    configs = {c.name: c.value for c in cluster.topic_configs([topic])[topic].configs}
    assert configs["cleanup.policy"] == "delete"
    assert topic in {one.name for one in cluster.all_topics()}


def test_refusals(cluster: Cluster, topic: str) -> None:
    with pytest.raises(BrokerAnswerError, match="TOPIC_ALREADY_EXISTS"):
        cluster.create_topic(NewTopic(topic))
    with pytest.raises(BrokerAnswerError, match="INVALID_TOPIC_EXCEPTION"):
        cluster.create_topic(NewTopic("not/possible"))
    with pytest.raises(BrokerAnswerError, match="INVALID_CONFIG"):
        cluster.create_topic(NewTopic("client.wrong", configs={"no.such.setting": "1"}))
    with pytest.raises(UnknownTopicOrPartitionError):
        cluster.delete_topic("client.nothing")
    with pytest.raises(UnknownTopicOrPartitionError):
        cluster.topic("client.nothing")


def test_a_topic_is_created_when_it_is_written(cluster: Cluster) -> None:
    writer = TopicWriter(cluster, "client.automatic")
    writer.append(None, b"first")
    writer.flush()
    assert read(cluster, "client.automatic", "earliest") == [b"first"]
    cluster.delete_topic("client.automatic")


def run(broker: RunningBroker, *words: str, stdin: bytes = b"") -> bytes:
    environment = {
        **os.environ,
        "PENSTOCK_BOOTSTRAP_SERVER": broker.bootstrap,
        "PYTHONPATH": str(ROOT / "src"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *words],
        input=stdin,
        capture_output=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_the_commands(broker: RunningBroker) -> None:
    assert run(broker, "topic", "create", "cli", "--partitions", "2").startswith(b"cli created")
    words = ("--key-separator", ":", "--compression", "zstd")
    sent = run(broker, "produce", "cli", *words, stdin=b"a:1\nb:2\na:3\n")
    assert sent == b"3 records sent to cli\n"
    documents = [json.loads(line) for line in run(broker, "consume", "cli", "--json").splitlines()]
    assert sorted((d["key"], d["value"]) for d in documents) == [("a", "1"), ("a", "3"), ("b", "2")]
    followed = run(broker, "consume", "cli", "--follow", "--count", "3")
    assert sorted(followed.split()) == [b"1", b"2", b"3"]
    (described,) = json.loads(run(broker, "topic", "describe", "cli", "--json"))
    assert sum(part["end_offset"] for part in described["partitions"]) == 3
    assert run(broker, "topic", "delete", "--yes", "cli") == b"cli deleted\n"


def test_the_dump_of_a_segment(broker: RunningBroker, cluster: Cluster, topic: str) -> None:
    writer = TopicWriter(cluster, topic, partition=0, codec=2)
    for number in range(50):
        writer.append(None, b"%d" % number)
    writer.flush()
    path = broker.data_dir / f"{topic}-0" / "00000000000000000000.log"
    output = run(broker, "log", "dump", "--json", str(path))
    documents = [json.loads(line) for line in output.splitlines()]
    values = [d["value"] for d in documents if d["type"] == "record"]
    assert values == [str(number) for number in range(50)]
    assert documents[-1]["damages"] == 0


def test_topics_change(cluster: Cluster, topic: str) -> None:
    with pytest.raises(BrokerAnswerError, match="INVALID_PARTITIONS"):
        cluster.add_partitions(topic, 3)
    with pytest.raises(BrokerAnswerError, match="INVALID_CONFIG"):
        cluster.configure_topic(topic, {"retention.ms": "soon"})
    with pytest.raises(UnknownTopicOrPartitionError):
        cluster.add_partitions("nobody", 3)
    with pytest.raises(UnknownTopicOrPartitionError):
        cluster.configure_topic("nobody", {"retention.ms": "5"})
    cluster.configure_topic(topic, {"retention.ms": "5000", "segment.ms": "6000"})
    cluster.configure_topic(topic, {"segment.ms": None})
    cluster.add_partitions(topic, 4)

    def is_changed() -> bool:
        settings = {config.name: config for config in cluster.topic_configs([topic])[topic].configs}
        sources = (settings["retention.ms"].config_source, settings["segment.ms"].config_source)
        return len(cluster.topic(topic).partitions) == 4 and sources == (1, 5)

    # Kafka answers before its brokers have heard of the change.
    deadline = time.monotonic() + 10
    while not is_changed():
        assert time.monotonic() < deadline
