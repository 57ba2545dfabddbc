"""From one broker to three on a real etcd, with real processes and the command line; and back."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.oracle.etcd_server import EtcdCluster
from tests.oracle.penstock_broker import ROOT
from tests.oracle.running_broker import Recipe, RunningBroker, free_port

pytestmark = [pytest.mark.etcd, pytest.mark.timeout(400)]

QUIET = {"log_level": 0}
SECONDS_MAX = 30.0
RECORDS = 300
COMMITTED = 120
ENVIRONMENT = {"PYTHONPATH": str(ROOT / "src")}
NAME = "production"


def until(is_met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_met():
        assert time.monotonic() < deadline, "in vain"
        time.sleep(0.05)


class Site:
    """Brokers on this machine with one etcd."""

    def __init__(self, folder: Path, etcd: EtcdCluster) -> None:
        self.folder = folder
        self.etcd = etcd
        self.ports = {broker_id: free_port() for broker_id in (1, 2, 3)}
        self.running: dict[int, RunningBroker] = {}

    def data_dir(self, broker_id: int) -> Path:
        return self.folder / f"b{broker_id}" / "data"

    def settings_file(self, broker_id: int, *, is_clustered: bool) -> Path:
        folder = self.folder / f"b{broker_id}"
        folder.mkdir(exist_ok=True)
        cluster = f"""
[cluster]
etcd = ["{self.etcd.endpoints[0]}"]
name = "{NAME}"
listen_port = 0
session_seconds = 3
"""
        text = f"""
[node]
id = {broker_id}
data_dir = "{self.data_dir(broker_id)}"
[listener]
port = {self.ports[broker_id]}
[admin]
enabled = false
[security]
authorizer = "acl"
super_users = "User:ANONYMOUS"
[groups]
offsets_partitions = 4
[transactions]
state_partitions = 4
{cluster if is_clustered else ""}
"""
        file = folder / ("cluster.toml" if is_clustered else "alone.toml")
        file.write_text(text)
        return file

    def start(self, broker_id: int, *, is_clustered: bool = True) -> None:
        file = self.settings_file(broker_id, is_clustered=is_clustered)
        command = [sys.executable, "-m", "penstock", "serve", "--config", str(file)]
        recipe = Recipe("penstock", command, ENVIRONMENT, self.data_dir(broker_id))
        broker = RunningBroker(recipe, folder=file.parent, port=self.ports[broker_id])
        self.running[broker_id] = broker.start()

    def stop(self, broker_id: int) -> None:
        assert self.running.pop(broker_id).stop() == 0

    def penstock(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "penstock", *words],
            env={**os.environ, **ENVIRONMENT},
            input=given,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def ask(self, *words: str, given: str = "") -> str:
        """Run a command against a running broker."""
        port = self.ports[next(iter(self.running))]
        done = self.penstock(*words, "--bootstrap-server", f"127.0.0.1:{port}", given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def document(self, *words: str) -> Any:  # noqa: ANN401 (a JSON document)
        return json.loads(self.ask(*words, "--json"))

    def transfer(self, direction: str, *words: str) -> subprocess.CompletedProcess[str]:
        where = ("--data-dir", str(self.data_dir(1)), "--etcd", self.etcd.endpoints[0])
        return self.penstock("cluster", direction, *where, "--name", NAME, *words)

    def keys(self) -> list[str]:
        """Return the keys in etcd; etcdctl may write warnings too."""
        lines = self.etcd.control("get", "--prefix", "/penstock/", "--keys-only").splitlines()
        return [line for line in lines if line.startswith("/penstock/")]

    @property
    def client(self) -> dict[str, Any]:
        servers = ",".join(f"127.0.0.1:{self.ports[one]}" for one in self.running)
        return {"bootstrap.servers": servers, **QUIET}

    # --- The data of the broker ---

    def fill(self) -> None:
        """Create topics, records, a group, transactions, users, access rules, quotas, settings."""
        self.ask("topic", "create", "orders", "--partitions", "3")
        self.ask("topic", "create", "audit.log", "--config", "retention.ms=86400000")
        producer = Producer({**self.client, "enable.idempotence": True})
        for number in range(RECORDS):
            producer.produce("orders", str(number), partition=number % 3)
        producer.produce("audit.log", "entry")
        assert producer.flush(SECONDS_MAX) == 0
        self.transact("committed")
        self.transact("aborted", commits=False)
        consumer = Consumer({**self.client, "group.id": "billing", "enable.auto.commit": False})
        offsets = [TopicPartition("orders", one, COMMITTED // 3) for one in range(3)]
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()
        self.ask("user", "add", "alice", "--password-stdin", given="a long password\n")
        self.ask(
            "acl", "add", "--principal", "User:alice", "--operation", "read", "--topic", "orders"
        )
        self.ask("quota", "set", "--user", "alice", "consumer_byte_rate=1048576")

    def transact(self, value: str, *, commits: bool = True) -> None:
        producer = Producer({**self.client, "transactional.id": "payments"})
        producer.init_transactions(SECONDS_MAX)
        producer.begin_transaction()
        producer.produce("orders", value, partition=0)
        if commits:
            producer.commit_transaction(SECONDS_MAX)
        else:
            producer.flush(SECONDS_MAX)
            producer.abort_transaction(SECONDS_MAX)

    def orders(self) -> list[str]:
        """Read the committed records of the topic, as a consumer does."""
        config = {
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
        consumer = Consumer({**self.client, **config})
        consumer.assign([TopicPartition("orders", one, 0) for one in range(3)])
        found: list[str] = []
        ended: set[int] = set()
        deadline = time.monotonic() + SECONDS_MAX
        while len(ended) < 3 and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is None:
                continue
            error, value, partition = message.error(), message.value(), message.partition()
            if error is None and value is not None:
                found.append(value.decode())
            elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                ended.add(partition if partition is not None else -1)
        consumer.close()
        assert len(ended) == 3
        return sorted(found)

    def check(self, *more: str) -> None:
        """Check that everything of `fill` is there, and these transactions."""
        numbers = [str(number) for number in range(RECORDS)]
        assert self.orders() == sorted([*numbers, "committed", *more])
        topics = {one["name"] for one in self.document("topic", "list")}
        assert {"orders", "audit.log"} <= topics
        consumer = Consumer({**self.client, "group.id": "billing"})
        wanted = [TopicPartition("orders", one) for one in range(3)]
        found = consumer.committed(wanted, timeout=SECONDS_MAX)
        assert [one.offset for one in found] == [COMMITTED // 3] * 3
        consumer.close()
        assert [one["user"] for one in self.document("user", "list")] == ["alice"]
        assert "User:alice" in self.ask("acl", "list")
        assert "consumer_byte_rate" in self.ask("quota", "list")
        assert "86400000" in self.ask("topic", "describe", "audit.log")

    def leaders(self, topic: str) -> list[int]:
        found = AdminClient(self.client).list_topics(topic, timeout=SECONDS_MAX).topics[topic]
        return [one.leader for one in found.partitions.values()]

    def in_sync(self, topic: str) -> list[set[int]]:
        found = AdminClient(self.client).list_topics(topic, timeout=SECONDS_MAX).topics[topic]
        return [set(one.isrs) for one in found.partitions.values()]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with contextlib.ExitStack() as stack:
        etcd = stack.enter_context(EtcdCluster(tmp_path / "etcd", members=1))
        site = Site(tmp_path, etcd)
        try:
            yield site
        finally:
            for broker in site.running.values():
                broker.kill()


def test_from_one_broker_to_three(site: Site) -> None:
    site.start(1, is_clustered=False)
    site.fill()
    site.check()
    refused = site.transfer("import")
    assert refused.returncode == 1
    assert "a running broker uses the data directory" in refused.stderr
    site.stop(1)

    checked = site.transfer("import", "--check")
    assert checked.returncode == 0, checked.stderr
    assert "nothing was changed" in checked.stdout
    assert not site.keys()
    done = site.transfer("import", "--json")
    assert done.returncode == 0, done.stderr
    moved = json.loads(done.stdout)["moved"]
    # Two topics, and the two internal ones with four partitions each.
    assert (moved["topics"], moved["partitions"]) == (4, 12)
    assert (moved["users"], moved["access rules"], moved["quotas"]) == (1, 1, 1)
    assert "imported before" in site.transfer("import").stdout

    alone = site.penstock(
        "serve", "--config", str(site.settings_file(1, is_clustered=False)), "--port", "0"
    )
    assert alone.returncode == 2
    assert "penstock cluster export" in alone.stderr

    for broker_id in (1, 2, 3):
        site.start(broker_id)
    until(lambda: site.leaders("orders") == [1, 1, 1])
    site.check()
    # The producer of before goes on, with its id and the next epoch.
    site.transact("in the cluster")
    site.check("in the cluster")
    assert "penstock.cluster" in site.ask("cluster", "features")

    # Other brokers get replicas; then the first broker is not needed for its records any more.
    site.ask("topic", "replicas", "orders", "3")
    site.ask("topic", "replicas", "audit.log", "3")
    topics = ("orders", "audit.log", "__consumer_offsets", "__transaction_state")
    until(lambda: all(one == {1, 2, 3} for topic in topics for one in site.in_sync(topic)))
    site.running.pop(1).kill()
    until(lambda: not {1, -1} & {one for topic in topics for one in site.leaders(topic)})
    site.check("in the cluster")
    refused = site.transfer("export")
    assert refused.returncode == 1
    assert "brokers of the cluster run: 2, 3" in refused.stderr
    for broker_id in (2, 3):
        site.stop(broker_id)
    refused = site.transfer("export")
    assert refused.returncode == 1
    assert "other brokers have replicas of" in refused.stderr
    # It can go on as a cluster.
    for broker_id in (1, 2, 3):
        site.start(broker_id)
    until(lambda: site.in_sync("orders") == [{1, 2, 3}] * 3)
    site.check("in the cluster")


def test_there_and_back(site: Site) -> None:
    site.start(1, is_clustered=False)
    site.fill()
    site.stop(1)
    assert site.transfer("import").returncode == 0
    site.start(1)
    until(lambda: site.leaders("orders") == [1, 1, 1])
    site.transact("in the cluster")
    site.ask("quota", "set", "--user", "bob", "consumer_byte_rate=1")
    # It is killed, and its session in etcd lasts for seconds.
    site.running.pop(1).kill()
    done = site.transfer("export")
    assert done.returncode == 0, done.stderr
    assert "start broker 1 without cluster.etcd now" in done.stdout
    assert not site.keys()
    assert "is alone" in site.transfer("export").stdout
    site.start(1, is_clustered=False)
    site.check("in the cluster")
    assert "bob" in site.ask("quota", "list")
    site.transact("alone again")
    site.check("in the cluster", "alone again")
    site.stop(1)
    # And in again.
    assert site.transfer("import").returncode == 0
    site.start(1)
    until(lambda: site.leaders("orders") == [1, 1, 1])
    site.check("in the cluster", "alone again")
