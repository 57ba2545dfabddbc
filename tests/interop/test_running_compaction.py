"""A running broker compacts: a consumer sees the last value of each key, also after a stop."""

import re
import time
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from penstock.core.settings.config import BrokerConfig
from penstock.core.settings.tree import LogCareSettings, Settings
from penstock.testing.broker import Broker
from tests.oracle.kafka_jars import run_kafka_tool

pytestmark = pytest.mark.interop

TOPIC = "latest"
KEYS = 50
SEGMENT_BYTES = 1_048_576
SECONDS_MAX = 30.0


def make_topic(bootstrap: str) -> None:
    settings = {
        "cleanup.policy": "compact",
        "segment.bytes": str(SEGMENT_BYTES),
        "min.cleanable.dirty.ratio": "0.01",
    }
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, 1, config=settings)]).values():
        future.result()


def fill(bootstrap: str) -> dict[bytes, bytes]:
    """Three segments and more of fifty keys; the last value of each."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    last: dict[bytes, bytes] = {}
    for number in range(4_000):
        key = b"key-%d" % (number * 7 % KEYS)
        last[key] = b"%d-" % number + b"x" * 1_000
        producer.produce(TOPIC, last[key], key)
        if number % 500 == 0:
            producer.flush()
    producer.flush()
    return last


def read_all(bootstrap: str) -> list[tuple[bytes, bytes]]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    found: list[tuple[bytes, bytes]] = []
    try:
        while True:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None
            if message.error() is not None:
                return found
            key, value = message.key(), message.value()
            assert key is not None
            assert value is not None
            found.append((bytes(key), bytes(value)))
    finally:
        consumer.close()


def compacting_every_ms(interval_ms: int) -> Settings:
    return Settings(log=LogCareSettings(compaction_check_interval_ms=interval_ms))


def wait_until_compacted(bootstrap: str, records_max: int) -> list[tuple[bytes, bytes]]:
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        found = read_all(bootstrap)
        if len(found) <= records_max:
            return found
        assert time.monotonic() < deadline, f"{len(found)} records are left"
        time.sleep(0.1)


def test_a_running_broker_compacts(tmp_path: Path) -> None:
    records_in_active_segment = SEGMENT_BYTES // 1_000
    settings = BrokerConfig(port=0, data_dir=tmp_path / "data", settings=compacting_every_ms(50))
    with Broker(settings) as broker:
        make_topic(broker.bootstrap_server)
        last = fill(broker.bootstrap_server)
        found = wait_until_compacted(broker.bootstrap_server, records_in_active_segment + KEYS)
        assert dict(found) == last
    with Broker(data_dir=tmp_path / "data") as broker:
        again = read_all(broker.bootstrap_server)
        assert dict(again) == last
        assert len(again) <= len(found)
    checkpoint = (tmp_path / "data" / "cleaner-offset-checkpoint").read_text()
    assert f"\n{TOPIC} 0 " in checkpoint


def test_kafkas_compaction_tester_finds_no_mismatch(tmp_path: Path) -> None:
    """It writes keys and tombstones, waits, reads what is left and compares the last values."""
    settings = BrokerConfig(
        port=0,
        data_dir=tmp_path / "data",
        segment_size=SEGMENT_BYTES,
        settings=compacting_every_ms(500),
    )
    arguments = ("--messages", "150000", "--percent-deletes", "20", "--sleep", "5")
    with Broker(settings) as broker:
        said = run_kafka_tool(
            "org.apache.kafka.tools.LogCompactionTester",
            ["--bootstrap-server", broker.bootstrap_server, "--topics", "1", *arguments],
            environment={"JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={tmp_path}"},
        )
    assert re.search(r"Validated [1-9]\d* values, 0 mismatches", said), said
    reduction = re.search(r"\(([\d.]+)% reduction\)", said)
    assert reduction is not None
    assert float(reduction[1]) > 30, "nothing was compacted"
