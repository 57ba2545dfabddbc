"""A pipeline without Spark whose values name their schemas in a registry that is a dictionary.

Everything is the product's own from the preparation on: parsers, plans, tasks, files, committers
and the driver of batches. Invented are the topic, into which `send` puts records, and the registry.
A batch has a task for each partition, as in Spark.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.spark.decode.buffers import HEADERS
from penstock.spark.tables.commit.note import BatchRanges, PartitionRange
from penstock.spark.tables.run.batches import BatchDriver, acquire_tables
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.run.preparing import Reading, prepare
from penstock.spark.tables.run.writing import BatchWriter
from penstock.spark.tables.tasks.judging import Judge
from penstock.spark.tables.tasks.report import BatchReport, TaskReport
from penstock.spark.tables.tasks.task import write_records
from penstock.spark.tables.tasks.task_plan import TaskPlan
from penstock.spark.tables.values import value_parsers
from penstock.spark.tables.values.registry import RegisteredSchema, UnknownSchemaError
from tests.spark.tables.batch_world import TOPIC, quick, ranges_of
from tests.spark.tables.pipeline_world import World

PARTITIONS = 3
FETCH_RECORDS = 2
"""Few, so that a schema that comes later is not seen with the first fetch."""


@dataclass
class Shelf:
    """A registry; ids are counted up, and the newest schema of the subject is the last one."""

    kind: str = "AVRO"
    schemas: dict[int, RegisteredSchema] = field(default_factory=dict)

    def register(self, document: object) -> int:
        schema_id = len(self.schemas) + 1
        text = document if isinstance(document, str) else json.dumps(document)
        self.schemas[schema_id] = RegisteredSchema(schema_id, self.kind, text)
        return schema_id

    def by_id(self, schema_id: int) -> RegisteredSchema:
        if schema_id not in self.schemas:
            raise UnknownSchemaError(f"no schema {schema_id}")
        return self.schemas[schema_id]

    def latest(self, _subject: str) -> RegisteredSchema:
        return self.schemas[max(self.schemas)]


@contextmanager
def on_shelf(shelf: Shelf) -> Iterator[None]:
    """Registries are this one, and what only takes time is left out."""
    with quick(), patch.object(value_parsers, "Registry", lambda *_: shelf):
        yield


@dataclass
class RegistryWorld:
    """The topic and both tables of a pipeline."""

    folder: Path
    format: str
    shelf: Shelf
    table: dict[str, Any] = field(default_factory=dict)
    topic: list[list[tuple[bytes, bytes | None]]] = field(
        default_factory=lambda: [[] for _ in range(PARTITIONS)]
    )
    done: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    reads: int = 0
    """How often a partition was read."""

    def __post_init__(self) -> None:
        self.world = World(self.folder, self.format, "127.0.0.1:1", TOPIC)
        self.start()

    def start(self) -> None:
        """A driver that goes on where the table is; the one before is gone."""
        value = {"format": self.shelf.kind.lower(), "schema": "http://registry"}
        definition = self.world.definition(
            pipeline={"mode": "in_task"}, table=self.table, value=value
        )
        prepared = prepare(cast("SparkSession", None), definition, None, cast("Reading", None))
        run = uuid4().hex
        self.rows, self.rejects = (
            TableCommitter(one, "orders", run, sleep_s=lambda _seconds: None)
            for one in (prepared.rows, prepared.rejects)
        )
        self.writer = BatchWriter(prepared.plans, (), self._run, None)
        self.driver = BatchDriver(
            self.rows, self.rejects, self.writer.write, renew=prepared.plans.renew
        )
        acquire_tables(self.rejects, self.rows, ranges_of([(n, 0, 0) for n in range(PARTITIONS)]))

    def send(self, partition: int, schema_id: int, body: bytes, key: bytes = b"k") -> None:
        value = b"\x00" + schema_id.to_bytes(4, "big") + body
        self.topic[partition].append((key, value))

    def delete(self, partition: int, key: bytes) -> None:
        self.topic[partition].append((key, None))

    def batch(self) -> BatchReport | None:
        """Commit the records that were sent since the last commit."""
        ends = [len(one) for one in self.topic]
        found = [(n, self.done[n], end) for n, end in enumerate(ends) if self.done[n] < end]
        self.done = ends
        return self.driver.commit(self.writer.write(ranges_of(found)))

    def _run(self, ranges: BatchRanges, plan: TaskPlan) -> list[TaskReport]:
        """A task for each partition; the last one is the quickest."""
        self.reads += len(ranges.ranges)
        return [
            write_records(self._fetches(one), Judge(plan), TaskReport(plan.number, one, "t1", "c1"))
            for one in reversed(ranges.ranges)
        ]

    def _fetches(self, of: PartitionRange) -> Iterator[pa.RecordBatch]:
        for start in range(of.start_offset, of.end_offset, FETCH_RECORDS):
            end = min(start + FETCH_RECORDS, of.end_offset)
            yield _records(of, start, self.topic[of.partition][start:end])


def _records(
    of: PartitionRange, start: int, found: Sequence[tuple[bytes, bytes | None]]
) -> pa.RecordBatch:
    count = len(found)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([key for key, _ in found], pa.binary()),
            "value": pa.array([value for _, value in found], pa.binary()),
            "topic": pa.array([of.topic] * count, pa.string()),
            "partition": pa.array([of.partition] * count, pa.int32()),
            "offset": pa.array(range(start, start + count), pa.int64()),
            "timestamp": pa.array([moment] * count, pa.timestamp("us", "UTC")),
            "headers": pa.nulls(count, HEADERS),
        }
    )
