"""Losses that real tasks find while they read are in the stream's progress, exact to the offset."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.oracle.running_broker import RunningBroker
from tests.spark.conftest import NewTopic
from tests.spark.rows import Source, StreamFolder, stream_frame
from tests.spark.streams import running, wait_until
from tests.spark.topics import Record, Writer

pytestmark = pytest.mark.spark

COUNT = 400
TASK_RECORDS = 10
KEPT_FROM = 395


def remover(bootstrap: str, topic: str, offset: int) -> Callable[..., Iterator[Any]]:
    """Rows as they are; with the first of them, everything before the offset is removed.

    It runs in Spark's workers, which do not know the modules of tests.
    """

    def removing(batches: Iterator[Any]) -> Iterator[Any]:
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": bootstrap})
        for batch in batches:
            for done in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
                done.result(30)
            yield batch

    return removing


def end_of(query: StreamingQuery, topic: str) -> int:
    """Where the last batch ended; -1 before there was one."""
    progress = query.lastProgress
    if progress is None:
        return -1
    document = json.loads(progress["sources"][0]["endOffset"])
    return int(document["topics"][topic]["partitions"]["0"]["offset"])


def test_what_tasks_find_gone_is_in_the_progress_of_the_next_batch(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, folder = new_topic(broker), StreamFolder(tmp_path)
    writer = Writer(broker.bootstrap)
    writer.produce(topic, [Record(b"%d" % number) for number in range(COUNT)])
    options = {
        "subscribe": topic,
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",
        # Many tasks for few slots: the first ones remove the records of the later ones.
        "maxRecordsPerPartition": str(TASK_RECORDS),
    }
    frame = stream_frame(spark, Source("penstock", broker.bootstrap, options)).select("offset")
    removing = remover(broker.bootstrap, topic, KEPT_FROM)
    output = (
        frame.mapInPandas(removing, frame.schema)
        .writeStream.format("parquet")
        .option("path", folder.output)
        .option("checkpointLocation", folder.checkpoint)
    )
    with running(output) as query:
        wait_until(query, lambda: end_of(query, topic) == COUNT)
        found = spark.read.parquet(folder.output).count()
        assert TASK_RECORDS <= found < COUNT
        writer.produce(topic, [Record(b"one more")])
        wait_until(query, lambda: end_of(query, topic) == COUNT + 1)
        (reported,) = query.recentProgress[-1]["sources"]
    skipped = json.loads(reported["latestOffset"])["skipped"]
    assert skipped == {"records": COUNT - found, "partitions": 1}
