"""A log with a past: every codec, many rolls, a clean stop, a kill -9 under load, a recovery.

Guarantees: `write_history(broker, folder)` leaves three copies of the broker's data folder, one for
each moment at which a log must be readable, and returns for each the records acknowledged by then.
One idempotent producer lives through the kill, so that its retries meet the recovered log.
"""

import dataclasses
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.interop.client_drivers import DriverProcess
from tests.interop.driver_protocol import Produce, Record
from tests.oracle.running_broker import RunningBroker

TOPIC = "history"
PARTITIONS = 2
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SEGMENT_BYTES = 1 << 20
"""The least that Apache Kafka takes for a topic."""

RECORDS_OF_CODEC = 300
RECORDS_UNDER_KILL = 800
ACKNOWLEDGED_BEFORE_KILL = 150
FLUSH_SECONDS = 60

Acknowledged = dict[tuple[int, int], tuple[str, str]]
"""(partition, offset) to (key, value)."""


@dataclasses.dataclass(frozen=True)
class Moment:
    """The data folder at one moment, and the records acknowledged by then."""

    data_dir: Path
    acknowledged: Acknowledged

    def partition(self, index: int) -> Path:
        return self.data_dir / f"{TOPIC}-{index}"

    def acknowledged_in(self, index: int) -> dict[int, tuple[str, str]]:
        return {
            offset: pair
            for (partition, offset), pair in self.acknowledged.items()
            if partition == index
        }


@dataclasses.dataclass(frozen=True)
class History:
    """The three moments."""

    stopped: Moment
    killed: Moment
    recovered: Moment


class _Load:
    """Sends records and keeps the acknowledged ones."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.acknowledged: Acknowledged = {}
        self.dice = random.Random(4)

    def producer(self, codec: str) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": codec,
                "enable.idempotence": True,
                "batch.num.messages": 4,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def send(self, producer: Producer, word: str, count: int) -> None:
        for index in range(count):
            key = f"{word}-{index}"
            value = self.dice.randbytes(2000).hex()
            producer.produce(TOPIC, value, key, index % PARTITIONS, self._on_delivery(key, value))
            producer.poll(0)

    def send_lz4(self, count: int) -> None:
        """With kafka-python: librdkafka sends LZ4 uncompressed where FindCoordinator is absent."""
        pairs = [(f"lz4-{index}", self.dice.randbytes(2000).hex()) for index in range(count)]
        records = tuple(
            Record(index % PARTITIONS, value.encode(), key.encode())
            for index, (key, value) in enumerate(pairs)
        )
        driver = DriverProcess("kafka-python", self.bootstrap)
        try:
            places = driver.produce(Produce(TOPIC, records, codec="lz4"))
        finally:
            driver.close()
        self.acknowledged |= dict(zip(places, pairs, strict=True))

    def _on_delivery(self, key: str, value: str) -> Callable[[KafkaError | None, Message], None]:
        def delivered(problem: KafkaError | None, message: Message) -> None:
            assert problem is None, problem
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            place = (partition, offset)
            assert place not in self.acknowledged, "two records at one offset"
            self.acknowledged[place] = (key, value)

        return delivered


def _create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {"segment.bytes": str(SEGMENT_BYTES), "index.interval.bytes": "8192"}
    new = NewTopic(TOPIC, PARTITIONS, 1, config=settings)
    admin.create_topics([new])[TOPIC].result(30)


def _copy(broker: RunningBroker, place: Path, load: _Load) -> Moment:
    shutil.copytree(broker.data_dir, place)
    return Moment(place, dict(load.acknowledged))


def write_history(broker: RunningBroker, folder: Path) -> History:
    """Write the whole past with this broker, which is not running before and after."""
    broker.start()
    load = _Load(broker.bootstrap)
    _create_topic(broker.bootstrap)
    for codec in CODECS:
        if codec == "lz4":
            load.send_lz4(RECORDS_OF_CODEC)
            continue
        producer = load.producer(codec)
        load.send(producer, codec, RECORDS_OF_CODEC)
        assert producer.flush(FLUSH_SECONDS) == 0
    broker.stop()
    stopped = _copy(broker, folder / "stopped", load)

    broker.start()
    producer = load.producer("zstd")
    load.send(producer, "killed", RECORDS_UNDER_KILL)
    while len(load.acknowledged) < len(stopped.acknowledged) + ACKNOWLEDGED_BEFORE_KILL:
        producer.poll(0.01)
    broker.kill()
    killed = _copy(broker, folder / "killed", load)

    broker.start()
    assert producer.flush(FLUSH_SECONDS) == 0
    broker.stop()
    return History(stopped, killed, _copy(broker, folder / "recovered", load))
