"""Apache Kafka as the parent of a pipe: batches, epochs, transactions, groups, kills and gaps."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from penstock.cli.main import run
from penstock.client.calls import NewTopic
from penstock.client.groups.groups import Groups
from penstock.client.records.record_deletion import delete_before
from penstock.core.types import TopicPartition
from penstock.testing import Broker
from tests.node.pipes.pipe_scene import (
    Operator,
    child_settings,
    client_of,
    down_pipe,
    stored,
    until,
)
from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.running_broker import RunningBroker

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

TOPIC = "orders"
AT = TopicPartition(TOPIC, 0)


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[RunningBroker]:
    with kafka_broker(tmp_path / "kafka") as running:
        with client_of(running.bootstrap) as cluster:
            cluster.create_topic(
                NewTopic(TOPIC, partitions=2, configs={"retention.ms": "987654321"})
            )
        yield running


def produce(kafka: RunningBroker, count: int, **settings: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": "1", **settings})
    is_transactional = "transactional.id" in settings
    if is_transactional:
        producer.init_transactions(30)
        producer.begin_transaction()
    for number in range(count):
        producer.produce(TOPIC, value=f"value {number}" * 20, partition=number % 2)
    assert producer.flush(30) == 0
    if is_transactional:
        producer.commit_transaction(30)


@contextmanager
def child_of(kafka: RunningBroker, **options: object) -> Iterator[Broker]:
    pipe = down_pipe(kafka.bootstrap, topics=(TOPIC,), **options)
    with Broker(child_settings([pipe])) as running:
        yield running


def assert_equal(child: Broker, kafka: RunningBroker) -> None:
    def is_equal() -> bool:
        return all(
            stored(child.bootstrap_server, TOPIC, one) == stored(kafka.bootstrap, TOPIC, one)
            for one in (0, 1)
        )

    until(is_equal, 30)


def test_batches_epochs_and_transactions_are_those_of_kafka(kafka: RunningBroker) -> None:
    produce(kafka, 500)
    produce(kafka, 300, **{"compression.type": "zstd"})
    produce(kafka, 100, **{"transactional.id": "t"})
    with child_of(kafka) as child:
        operator = Operator(child)
        until(lambda: bool(operator.pipe()["is_in_step"]), 30)
        assert_equal(child, kafka)
        with client_of(kafka.bootstrap) as up, client_of(child.bootstrap_server) as down:
            assert down.describe([TOPIC])[TOPIC].topic_id == up.describe([TOPIC])[TOPIC].topic_id
            settings = {one.name: one.value for one in down.topic_configs([TOPIC])[TOPIC].configs}
        assert settings["retention.ms"] == "987654321"
        assert len(child.records(TOPIC, count=900)) == 900


def test_a_killed_kafka_raises_the_epoch_of_the_mirror(kafka: RunningBroker) -> None:
    produce(kafka, 200)
    with child_of(kafka) as child:
        until(lambda: bool(Operator(child).pipe()["is_in_step"]), 30)
        for _ in range(2):
            kafka.kill()
            kafka.start()
            produce(kafka, 50)
            child.crash()
            produce(kafka, 50)
            child.restart()
        assert_equal(child, kafka)
        with client_of(kafka.bootstrap) as up, client_of(child.bootstrap_server) as down:
            theirs, ours = up.leaders([AT])[AT].leader_epoch, down.leaders([AT])[AT].leader_epoch
        assert ours >= theirs >= 2
        assert Operator(child).pipe()["cut_records"] == 0


def test_a_gap_and_a_recreated_topic_are_reported(kafka: RunningBroker) -> None:
    produce(kafka, 100)
    with child_of(kafka, on_gap="skip") as child:
        operator = Operator(child)
        until(lambda: bool(operator.pipe()["is_in_step"]), 30)
        child.crash()
        produce(kafka, 100)
        with client_of(kafka.bootstrap) as up:
            delete_before(up, {AT: 75})  # within a batch
        child.restart()
        assert_equal(child, kafka)
        assert (operator.pipe()["gaps"], operator.pipe()["gap_records"]) == (1, 25)
        with client_of(kafka.bootstrap) as up:
            up.delete_topic(TOPIC)
            until(lambda: TOPIC not in up.describe(None), 30)
            up.create_topic(NewTopic(TOPIC, partitions=2))
        until(lambda: "recreated" in str(operator.pipe()["reason"]), 60)


def test_the_mirror_command_moves_clients(
    kafka: RunningBroker, capfd: pytest.CaptureFixture[str]
) -> None:
    produce(kafka, 100)
    with client_of(kafka.bootstrap) as up:
        Groups(up).commit("billing", {AT: 30, TopicPartition(TOPIC, 1): 40})
    with Broker(child_settings([])) as child:
        admin = Operator(child).url
        words = ["mirror", "--from", kafka.bootstrap, "--topic", "*", "--group", "*"]
        assert run([*words, "--until-in-step", "--admin", admin]) == 0
        assert "in step: move your clients now" in capfd.readouterr().out
        with client_of(child.bootstrap_server) as down:
            groups = Groups(down)
            until(
                lambda: (
                    sorted(one.offset for one in groups.committed("billing").values()) == [30, 40]
                )
            )
        assert run(["pipe", "promote", "mirror", "--yes", "--admin", admin]) == 0
        moved = Producer({"bootstrap.servers": child.bootstrap_server})
        moved.produce(TOPIC, value="after the move", partition=0)
        assert moved.flush(30) == 0
        reader = Consumer(
            {
                "bootstrap.servers": child.bootstrap_server,
                "group.id": "billing",
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
            }
        )
        reader.subscribe([TOPIC])
        offsets: list[int] = []
        until(lambda: _polled(reader, offsets) and len(offsets) == 31, 30)
        reader.close()
        assert offsets[0] in (30, 40)


def _polled(reader: Consumer, offsets: list[int]) -> bool:
    message = reader.poll(1.0)
    if message is not None and message.error() is None:
        offsets.append(message.offset() or 0)
    return True
