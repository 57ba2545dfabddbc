"""Reading as tests do, from Apache Kafka and Penstock: records that librdkafka writes and reads."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from penstock.core.errors import UnknownTopicOrPartitionError
from penstock.testing.topic_names import fresh_topic_name
from penstock.testing.topic_records import arrived_records, create_topic, produce
from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker

pytestmark = pytest.mark.interop

SECONDS_MAX = 30.0


@pytest.fixture(scope="module", params=["kafka", "penstock"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningBroker]:
    folder = tmp_path_factory.mktemp(request.param)
    started = kafka_broker(folder) if request.param == "kafka" else penstock_broker(folder)
    with started as running:
        yield running


def consumed(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """What a consumer of committed records gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    messages = consumer.consume(count, SECONDS_MAX)
    consumer.close()
    return [message.value() for message in messages]


def test_committed_records_of_a_producer_that_aborts(broker: RunningBroker) -> None:
    topic = fresh_topic_name("transactions")
    create_topic(broker.bootstrap, topic)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": topic,
            "compression.type": "lz4",
        }
    )
    producer.init_transactions(SECONDS_MAX)
    fates = [("kept", True), ("aborted", False), ("again", True), ("gone", False), ("last", True)]
    for value, is_committed in fates:
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic, f"{value} {number}", headers={"fate": value})
        producer.flush(SECONDS_MAX)
        end = producer.commit_transaction if is_committed else producer.abort_transaction
        end(SECONDS_MAX)
    found = arrived_records(broker.bootstrap, topic, count=9)
    wanted = [f"{value} {number}" for value in ("kept", "again", "last") for number in range(3)]
    assert [record.value for record in found] == wanted
    assert [record.value_bytes for record in found] == consumed(broker.bootstrap, topic, 9)
    assert found[0].headers == {"fate": "kept"}
    assert len(arrived_records(broker.bootstrap, topic, count=15, committed=False)) == 15


def test_what_is_produced_is_what_others_read(broker: RunningBroker) -> None:
    topic = fresh_topic_name("produced")
    create_topic(broker.bootstrap, topic, partitions=2, configs={"retention.ms": "60000"})
    produce(broker.bootstrap, topic, ["a", b"b"], key="42")
    assert consumed(broker.bootstrap, topic, 2) == [b"a", b"b"]
    with pytest.raises(UnknownTopicOrPartitionError):
        arrived_records(broker.bootstrap, f"{topic}-none")
