"""The listener without a session: events as Spark's client makes them from JSON."""

import io
import uuid
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)

from penstock.client.groups.groups import Groups
from penstock.client.opening import open_cluster
from penstock.client.transport.options import parse_client_options
from penstock.core.types import TopicPartition
from penstock.spark import ProgressListener
from penstock.testing import Broker
from tests.spark.progress.documents import recorded

DOCUMENTS = recorded("kafka_source")
QUERY, RUN = DOCUMENTS[0]["id"], DOCUMENTS[0]["runId"]


def started() -> QueryStartedEvent:
    return QueryStartedEvent(uuid.UUID(QUERY), uuid.UUID(RUN), "clicks", "", set())


def progressed(document: dict[str, Any]) -> QueryProgressEvent:
    return QueryProgressEvent.fromJson({"progress": document})


def ended(error: str | None = None) -> QueryTerminatedEvent:
    return QueryTerminatedEvent(uuid.UUID(QUERY), uuid.UUID(RUN), error, None)


def test_lines_of_a_query() -> None:
    stream = io.StringIO()
    listener = ProgressListener(stream=stream, line_seconds=0)
    listener.onQueryStarted(started())
    for document in DOCUMENTS[:2]:
        listener.onQueryProgress(progressed(document))
    listener.onQueryIdle(QueryIdleEvent(uuid.UUID(QUERY), uuid.UUID(RUN), ""))
    listener.onQueryTerminated(ended("a.b.SomeError: gone\n\tat c.d"))
    listener.close()  # it publishes nothing, so there is nothing to do
    assert stream.getvalue().splitlines() == [
        "clicks  batch 0  4.3 rows/s  7,058 ms  lag clicks 70  offsets clicks 0:30",
        "clicks  batch 1  84 rows/s  358 ms  lag clicks 40  offsets clicks 0:60",
        "clicks  batch 1  idle  358 ms  lag clicks 40  offsets clicks 0:60",
        "clicks  failed after 2 batches, 60 rows: SomeError: gone",
    ]


def test_a_log_is_not_flooded() -> None:
    stream = io.StringIO()
    listener = ProgressListener(stream=stream)
    for document in DOCUMENTS:
        listener.onQueryProgress(progressed(document))
    listener.onQueryTerminated(ended())
    first, last = stream.getvalue().splitlines()
    assert "batch 0" in first
    assert last == "clicks  stopped after 6 batches, 150 rows"


def test_positions_are_published() -> None:
    with Broker() as broker:
        options = parse_client_options({"bootstrap.servers": broker.bootstrap_server})
        with (
            open_cluster(options) as cluster,
            ProgressListener(
                broker.bootstrap_server, group_id_prefix="etl", stream=io.StringIO()
            ) as listener,
        ):
            cluster.topic("clicks", auto_create=True)
            listener.onQueryStarted(started())
            for document in DOCUMENTS:
                listener.onQueryProgress(progressed(document))
            listener.onQueryTerminated(ended())
            listener.close(30.0)
            committed = Groups(cluster).committed("etl-clicks")
    assert {at: one.offset for at, one in committed.items()} == {TopicPartition("clicks", 0): 150}
