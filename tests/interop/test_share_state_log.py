"""The stored state of share groups: Kafka's own tool reads it, and both brokers store the same.

A state is created, changed, reset and deleted; the broker stops. `DumpLogSegments` then decodes
`__share_group_state` as Penstock wrote it, and as Apache Kafka did. After a restart both answer the
same.
"""

import json
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock.coordinator.shares.ports import ShareKey
from tests.broker.handlers.asker import Asker
from tests.broker.handlers.share_states import SharePartitionAsker, share_partition
from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.kafka_jars import run_kafka_tool
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker

pytestmark = pytest.mark.interop

RECORD = re.compile(r"\| offset: \d+ .* key: (\{.*\}) payload: (\{.*\}|null|<DELETE>)")
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


def converse(broker: RunningBroker, *, is_kafka: bool) -> UUID:
    """Use each kind of change; returns the id of the topic."""
    with Asker(broker.port, is_kafka=is_kafka) as asker:
        topic_id = asker.create("orders", 1)
        queue = share_partition(asker, topic_id, group="g")
        queue.initialize(1, 0)
        queue.read(leader_epoch=2)
        queue.write((0, 9, ACKNOWLEDGED, 1), (10, 14, AVAILABLE, 1), leader_epoch=2)
        queue.write((10, 12, ARCHIVED, 2), start_offset=5, leader_epoch=2, complete=8)
        queue.write((13, 14, ACKNOWLEDGED, 2), (11, 15, ARCHIVED, 3), leader_epoch=2, complete=9)
        queue.initialize(2, -1)
        queue.write((7, 7, ACKNOWLEDGED, 1), state_epoch=2, leader_epoch=2)
        queue.delete()
        queue.initialize(3, 4)
    return topic_id


def decoded(data_dir: Path) -> list[tuple[Any, Any]]:
    """The records as Kafka's tool prints them, without times and topic ids."""
    files = sorted((data_dir / "__share_group_state-0").glob("*.log"))
    printed = run_kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments",
        ["--share-group-state-decoder", "--files", ",".join(map(str, files))],
    )
    assert "isvalid: false" not in printed
    assert len(RECORD.findall(printed)) == printed.count("| offset: "), printed
    found = []
    for key_text, value_text in RECORD.findall(printed):
        key = json.loads(key_text)
        key["data"].pop("topicId")
        value = None if not value_text.startswith("{") else json.loads(value_text)
        for name in ("createTimestamp", "writeTimestamp"):
            if value is not None:
                value["data"].pop(name, None)
        found.append((key, value))
    return found


def made(tmp_path: Path, kind: str) -> RunningBroker:
    folder = tmp_path / kind
    folder.mkdir()
    if kind == "kafka":
        return kafka_broker(
            folder,
            properties={
                "share.coordinator.state.topic.num.partitions": "1",
                "share.coordinator.snapshot.update.records.per.snapshot": "2",
            },
        )
    return penstock_broker(
        folder,
        environment={
            "PENSTOCK_SHARES__STATE_PARTITIONS": "1",
            "PENSTOCK_SHARES__UPDATES_PER_SNAPSHOT": "2",
        },
    )


def test_both_brokers_store_the_same(tmp_path: Path) -> None:
    stored = {}
    for kind in ("kafka", "penstock"):
        broker = made(tmp_path, kind)
        with broker as running:
            converse(running, is_kafka=kind == "kafka")
        stored[kind] = decoded(broker.data_dir)
    assert len(stored["kafka"]) >= 9
    assert stored["penstock"] == stored["kafka"]


def state(asker: Asker, topic_id: UUID) -> object:
    queue = SharePartitionAsker(asker, ShareKey("g", topic_id, 0))
    return queue.read(), queue.summary()


def test_the_state_is_there_after_a_restart_of_either(tmp_path: Path) -> None:
    found = {}
    for kind in ("kafka", "penstock"):
        broker = made(tmp_path, kind)
        is_kafka = kind == "kafka"
        with broker as running:
            topic_id = converse(running, is_kafka=is_kafka)
        with broker as running, Asker(running.port, is_kafka=is_kafka) as asker:
            share_partition(asker, topic_id, group="g")
            found[kind] = state(asker, topic_id)
    assert found["penstock"] == found["kafka"]
