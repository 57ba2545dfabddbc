"""Snapshots of transactions and compressed batches, on Penstock in memory, or on both brokers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from penstock.client.calls import NewTopic
from penstock.core.errors import UnknownTopicOrPartitionError
from penstock.edge.refresh.manifest import Manifest
from penstock.edge.refresh.snapshot_files import records_of, verified_batches
from penstock.edge.refresh.snapshot_stores import DirectoryStore
from tests.node.pipes.pipe_scene import client_of
from tests.node.refresh.refresh_scene import build
from tests.oracle.both_brokers import kinds_of_brokers, running_bootstrap

SECONDS_MAX = 20.0
PARTITIONS = 2

Found = dict[tuple[int, bytes], tuple[int, bytes, int]]
"""(partition, key) to offset, value and timestamp."""


@pytest.fixture(scope="module", params=kinds_of_brokers(pytest.mark.interop))
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with running_bootstrap(request.param, tmp_path_factory.mktemp) as address:
        yield address


def snapshot_of(manifest: Manifest, place: Path) -> Found:
    found: Found = {}
    for partition in manifest.partitions:
        for batch in verified_batches(DirectoryStore(place), partition):
            for record in records_of(batch):
                assert record.key is not None
                assert record.value is not None
                place_of = (partition.partition, record.key)
                assert place_of not in found, "a key twice"
                found[place_of] = (record.offset, record.value, record.timestamp_ms)
    return found


def committed(bootstrap: str, topic: str, ends: dict[int, int]) -> Found:
    """Return the state below the ends, as a consumer with read_committed sees it."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: Found = {}
    consumer.subscribe([topic])
    finished: set[int] = set()
    try:
        while len(finished) < PARTITIONS:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None, "no record in time"
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            if message.error() is not None:
                finished.add(partition)
                continue
            key = message.key()
            assert offset is not None
            assert key is not None
            if offset >= ends[partition]:
                continue
            found.pop((partition, key), None)
            if value is not None:
                found[partition, key] = (offset, value, message.timestamp()[1])
    finally:
        consumer.close()
    return found


def transactional(bootstrap: str, name: str, codec: str) -> Producer:
    settings = {
        "bootstrap.servers": bootstrap,
        "transactional.id": name,
        "compression.type": codec,
        "linger.ms": 0,
    }
    producer = Producer(settings)
    producer.init_transactions(SECONDS_MAX)
    return producer


def test_a_snapshot_is_the_committed_state_below_the_last_stable_offset(
    bootstrap: str, tmp_path: Path
) -> None:
    topic = "transactions"
    with client_of(bootstrap) as cluster:
        cluster.create_topic(NewTopic(topic, PARTITIONS, 1))
    first = transactional(bootstrap, "first", "zstd")
    second = transactional(bootstrap, "second", "none")
    for turn in range(6):
        first.begin_transaction()
        second.begin_transaction()
        for number in range(8):
            value = None if number == 5 else b"%d-%d" % (turn, number)
            one = first if number % 2 else second
            one.produce(topic, value, key=b"k%d" % number, partition=number % 2 ^ (number > 3))
        first.flush(SECONDS_MAX)
        second.flush(SECONDS_MAX)
        (first.commit_transaction if turn % 3 else first.abort_transaction)(SECONDS_MAX)
        (second.abort_transaction if turn % 2 else second.commit_transaction)(SECONDS_MAX)
    first.begin_transaction()
    first.produce(topic, b"undecided", key=b"k0", partition=0)
    first.flush(SECONDS_MAX)
    plain = Producer({"bootstrap.servers": bootstrap})
    plain.produce(topic, b"behind the open transaction", key=b"late", partition=0)
    plain.flush(SECONDS_MAX)
    manifest = build(bootstrap, tmp_path, topic)
    found = snapshot_of(manifest, tmp_path)
    assert found
    assert (0, b"late") not in found
    assert found == committed(bootstrap, topic, manifest.ends)
    first.abort_transaction(SECONDS_MAX)
    manifest = build(bootstrap, tmp_path, topic, compression="lz4")
    found = snapshot_of(manifest, tmp_path)
    assert found[0, b"late"][1] == b"behind the open transaction"
    assert found == committed(bootstrap, topic, manifest.ends)


def test_a_topic_that_does_not_exist_is_an_error(bootstrap: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="nothing"):
        build(bootstrap, tmp_path, "nothing")
    assert list(tmp_path.iterdir()) == []
