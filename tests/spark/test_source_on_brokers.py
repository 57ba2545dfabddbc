"""The source's questions to real brokers, without Spark: restarts, restored disks, sizes."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client.opening import open_cluster
from penstock.spark.errors import DataLossError
from penstock.spark.offsets import read_offset
from penstock.spark.planning import ReadLimits
from penstock.spark.source.lookups import Lookups
from penstock.spark.source.micro_batches import MicroBatches
from penstock.spark.source.options import Mode, read_source_options
from penstock.spark.source.task_reader import TaskSettings, read_range
from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker
from tests.spark.topics import Record, create_topic, produce

pytestmark = pytest.mark.interop

TOPIC = "orders"


@pytest.fixture(params=["penstock", "kafka"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningBroker]:
    made = kafka_broker(tmp_path) if request.param == "kafka" else penstock_broker(tmp_path)
    with made as running:
        create_topic(running.bootstrap, TOPIC, partitions=2)
        yield running


class Stream:
    """A stream that runs one batch at a time, each in a run of its own."""

    def __init__(self, broker: RunningBroker) -> None:
        self._bootstrap = broker.bootstrap
        self._document: dict[str, Any] | None = None

    def run(self, limits: ReadLimits | None = None, **given: str) -> list[int]:
        """The next batch; the values of its records."""
        options = read_source_options(
            {
                "kafka.bootstrap.servers": self._bootstrap,
                "subscribe": TOPIC,
                "startingOffsets": "earliest",
                "fetchOffset.retryIntervalMs": "50",
                **given,
            },
            Mode.STREAM,
        )
        with open_cluster(options.client) as cluster:
            batches = MicroBatches(Lookups(cluster, options), options)
            start = self._document or batches.initial_offset()
            end = json.loads(json.dumps(batches.latest_offset(start, limits or ReadLimits())))
            found = [
                int(row["value"])
                for task in batches.plan(start, end)
                for batch in read_range(cluster, task, TaskSettings.of(options))
                for row in batch.to_pylist()
            ]
        self._document = end
        return sorted(found)

    def epochs(self) -> set[int]:
        assert self._document is not None
        return {one.leader_epoch for one in read_offset(self._document).positions.values()}


def send(broker: RunningBroker, numbers: range) -> None:
    produce(broker.bootstrap, TOPIC, [Record(b"%d" % n, partition=n % 2) for n in numbers])


def test_a_restarted_broker_is_no_loss(broker: RunningBroker) -> None:
    stream = Stream(broker)
    send(broker, range(10))
    assert stream.run() == list(range(10))
    first = stream.epochs()
    for restart in range(2):
        broker.stop()
        broker.start()
        assert stream.run() == []
        numbers = range(10 * (restart + 1), 10 * (restart + 2))
        send(broker, numbers)
        assert stream.run() == list(numbers)
    if broker.name == "kafka":
        assert min(stream.epochs()) > max(first), "a new epoch was met, and found in order"


def test_a_restored_disk_is_a_loss(broker: RunningBroker, tmp_path: Path) -> None:
    send(broker, range(10))
    broker.stop()
    backup = tmp_path / "backup"
    shutil.copytree(broker.data_dir, backup)
    broker.start()
    stream = Stream(broker)
    send(broker, range(10, 30))
    assert stream.run() == list(range(30))

    broker.stop()
    shutil.rmtree(broker.data_dir)
    shutil.copytree(backup, broker.data_dir)
    broker.start()
    for _ in range(2):
        with pytest.raises(DataLossError, match="is wanted, and its log ends at 5"):
            stream.run()
    assert stream.run(failOnDataLoss="false") == []
    send(broker, range(100, 104))
    assert stream.run() == list(range(100, 104))


def test_a_limit_of_bytes(broker: RunningBroker) -> None:
    stream = Stream(broker)
    payload = [Record(b"%01000d" % n, partition=n % 2) for n in range(100)]
    produce(broker.bootstrap, TOPIC, payload)
    found: list[int] = []
    batches = 0
    while some := stream.run(ReadLimits(bytes_max=20_000)):
        assert 10 <= len(some) <= 22
        found += some
        batches += 1
    assert sorted(found) == list(range(100))
    assert 5 <= batches <= 8
