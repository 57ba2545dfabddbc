"""Apache Kafka as the parent of up pipes: exactly once over kills of both sides, and two sites."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from penstock.client.calls import NewTopic
from penstock.testing import Broker
from tests.node.pipes.pipe_scene import Operator, child_settings, client_of, until, up_pipe
from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.running_broker import RunningBroker

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

TOPIC = "sales"


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[RunningBroker]:
    with kafka_broker(tmp_path / "kafka") as running:
        with client_of(running.bootstrap) as cluster:
            cluster.create_topic(NewTopic(TOPIC, partitions=2))
        yield running


def site(kafka: RunningBroker, name: str, pipe_name: str = "up") -> Broker:
    pipe = up_pipe(kafka.bootstrap, topics=(TOPIC,), site=name, name=pipe_name)
    return Broker(child_settings([pipe]))


def produce(child: Broker, values: list[str], **settings: str) -> None:
    producer = Producer({"bootstrap.servers": child.bootstrap_server, **settings})
    if "transactional.id" in settings:
        producer.init_transactions(30)
        producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(TOPIC, value=value, partition=number % 2)
    assert producer.flush(30) == 0
    if settings.get("client.id") == "aborts":
        producer.abort_transaction(30)
    elif "transactional.id" in settings:
        producer.commit_transaction(30)


def is_in_step(child: Broker, pipe_name: str = "up") -> bool:
    return bool(Operator(child).pipe(pipe_name)["is_in_step"])


def committed(kafka: RunningBroker, count: int) -> dict[int, list[str]]:
    """Return what a read_committed consumer sees, by partition, until the end of the topic."""
    reader = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": f"check-{count}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    reader.subscribe([TOPIC])
    found: dict[int, list[str]] = {0: [], 1: []}

    def is_complete() -> bool:
        message = reader.poll(1.0)
        if message is not None and message.error() is None:
            value = message.value()
            found[message.partition() or 0].append(str(value, "utf-8") if value else "")
            return False
        return sum(map(len, found.values())) >= count

    until(is_complete, 60)
    reader.close()
    return found


def test_sites_send_exactly_once_over_kills_of_both_sides(kafka: RunningBroker) -> None:
    wanted: dict[str, list[str]] = {"a": [], "b": []}
    with ExitStack() as stack:
        sites = {name: stack.enter_context(site(kafka, name)) for name in wanted}
        for child in sites.values():
            child.create_topic(TOPIC, partitions=2)
        for turn in range(3):
            for name, child in sites.items():
                some = [f"{name}-{turn}-{number}" for number in range(200)]
                codec = ("none", "zstd", "lz4")[turn]
                produce(child, some, **{"compression.type": codec})
                wanted[name] += some
            produce(
                sites["a"], ["lost", "lost"], **{"transactional.id": "t", "client.id": "aborts"}
            )
            produce(sites["a"], [f"a-{turn}-t", f"a-{turn}-u"], **{"transactional.id": "u"})
            wanted["a"] += [f"a-{turn}-t", f"a-{turn}-u"]
            if turn == 1:
                kafka.kill()
                kafka.start()
            else:
                sites["a"].crash()
                sites["a"].restart()
        for child in sites.values():
            until(partial(is_in_step, child), 90)
        found = committed(kafka, sum(map(len, wanted.values())))
    for name, values in wanted.items():
        for partition in (0, 1):
            own = [one for one in found[partition] if one.startswith(f"{name}-")]
            assert own == [one for one in values if one in set(own)]
        both = [one for some in found.values() for one in some if one.startswith(f"{name}-")]
        assert sorted(both) == sorted(values)
    assert not any("lost" in some for some in found.values())


@pytest.mark.parametrize("pipe_name", ["up", "other-up"])
def test_a_second_broker_of_a_site_is_refused(kafka: RunningBroker, pipe_name: str) -> None:
    with site(kafka, "a") as first:
        first.create_topic(TOPIC, partitions=2)
        produce(first, ["1", "2"])
        until(partial(is_in_step, first), 60)
        with site(kafka, "a", pipe_name) as second:
            second.create_topic(TOPIC, partitions=2)
            until(partial(is_in_step, second, pipe_name), 60)
            produce(first, ["3", "4"])
            until(lambda: "another broker sends" in str(Operator(first).pipe("up")["reason"]), 60)
            produce(second, ["5", "6"])
            found = committed(kafka, 4)
    assert sorted(one for some in found.values() for one in some) == ["1", "2", "5", "6"]
