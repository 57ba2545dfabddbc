"""Spark's own connector in real-time mode: records pass one by one, on both brokers.

A micro-batch lasts five minutes here, so whatever arrives did not wait for its end. How fast it is
compared with Apache Kafka: `python -m benchmarks.spark_realtime`.
"""

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.oracle.running_broker import RunningBroker
from tests.spark.conftest import NewTopic
from tests.spark.realtime import pass_through
from tests.spark.streams import running, topic_reader, wait_until
from tests.spark.topics import Record, Writer

pytestmark = [pytest.mark.spark, pytest.mark.every_spark]

SECONDS_MAX = 10.0
"""Far below five minutes, far above the milliseconds that it takes."""


def test_records_pass_at_once(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic, tmp_path: Path
) -> None:
    source, target = new_topic(broker), new_topic(broker)
    writer = Writer(broker.bootstrap)
    query_plan = pass_through(spark, broker.bootstrap, source, target, tmp_path / "checkpoint")
    with running(query_plan) as query, topic_reader(broker.bootstrap, target) as reader:
        writer.produce(source, [Record(b"first")])
        wait_until(query, lambda: reader.has(1))
        for number in range(5):
            begun = time.monotonic()
            writer.produce(source, [Record(b"%d" % number, b"key")])
            wait_until(query, lambda wanted=number + 2: reader.has(wanted))  # type: ignore[misc]
            assert time.monotonic() - begun < SECONDS_MAX
    found = [(message.key(), message.value()) for message in reader.messages]
    assert found == [(None, b"first"), *((b"key", b"%d" % number) for number in range(5))]
