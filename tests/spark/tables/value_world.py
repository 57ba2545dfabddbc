"""One batch of records into both tables of a pipeline, without Spark: for values at the edges.

Everything is the product's own but the topic: a test gives values, keys and timestamps.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.spark.decode.buffers import HEADERS
from penstock.spark.tables.definition.model import PipelineDefinition, RunMode
from penstock.spark.tables.files.file_partitions import PartitionField, Transform
from penstock.spark.tables.formats.rejects import REJECTS
from penstock.spark.tables.rules.planner import Plan
from penstock.spark.tables.run import replay as replaying
from penstock.spark.tables.run.batches import BatchDriver, acquire_tables
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.run.plans import Plans
from penstock.spark.tables.run.preparing import Prepared
from penstock.spark.tables.run.writing import BatchWriter
from penstock.spark.tables.tasks.judging import Judge
from penstock.spark.tables.tasks.report import TaskReport
from penstock.spark.tables.tasks.task import write_records
from penstock.spark.tables.values.columns import table_schema
from penstock.spark.tables.values.value_parsers import new_parser, plan_parser
from tests.spark.tables.batch_world import ranges_of
from tests.spark.tables.pipeline_world import World
from tests.spark.tables.table_kinds import DeltaKind, IcebergKind, Kind

KINDS: dict[str, Callable[..., Kind]] = {"delta": DeltaKind, "iceberg": IcebergKind}
TOPIC = "orders"
GOOD_US = 1_767_225_600_000_000
"""The beginning of 2026."""


def records(
    values: Sequence[object],
    times_us: Sequence[int] | None = None,
    keys: Sequence[bytes | None] | None = None,
    start: int = 0,
) -> pa.RecordBatch:
    """Records as the source gives them; a value that is None is a deletion."""
    count = len(values)
    texts = [
        one if isinstance(one, bytes) else None if one is None else json.dumps(one).encode()
        for one in values
    ]
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array(keys or [b"k"] * count, pa.binary()),
            "value": pa.array(texts, pa.binary()),
            "topic": pa.array([TOPIC] * count, pa.string()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(list(range(start, start + count)), pa.int64()),
            "timestamp": pa.array(times_us or [GOOD_US] * count, pa.timestamp("us", "UTC")),
            "headers": pa.nulls(count, HEADERS),
        }
    )


@dataclass
class ValueWorld:
    """Both tables of one pipeline."""

    folder: Path
    format: str
    ddl: str
    table: Mapping[str, Any] = field(default_factory=dict)
    """More of the definition's section."""
    rows: Kind = field(init=False)
    rejects: Kind = field(init=False)
    offset: int = 0
    value: Mapping[str, Any] = field(default_factory=dict)
    """More of the definition's section."""

    def __post_init__(self) -> None:
        definition = self.definition()
        schema = table_schema(self._value_schema(definition), definition.table.metadata)
        for name, columns in {"rows": schema, "rejects": REJECTS}.items():
            folder = self.folder / name
            folder.mkdir(parents=True)
            kind = KINDS[self.format](folder, schema=columns)
            partitions = [
                PartitionField(one.column, Transform(one.transform.value))
                for one in definition.table.partition_by
            ]
            kind.create(partitions if name == "rows" else ())
            setattr(self, name, kind)

    def definition(self) -> PipelineDefinition:
        return World(self.folder, self.format, "127.0.0.1:1", TOPIC).definition(
            pipeline={"mode": "in_task"},
            table=self.table,
            value={"format": "json", "schema": self.ddl, **self.value},
        )

    @staticmethod
    def _value_schema(definition: PipelineDefinition) -> pa.Schema:
        return new_parser(plan_parser(definition.value, definition.source.topics)).schema

    def prepared(self) -> Prepared:
        definition = self.definition()
        rows, rejects = self.rows.open(), self.rejects.open()
        parser = plan_parser(definition.value, definition.source.topics)
        schema = self._value_schema(definition)
        plans = Plans(definition, parser, schema, rows, rejects, is_staged=False)
        return Prepared(Plan(RunMode.IN_TASK, ("a test",)), plans, rows, rejects)

    def commit(
        self,
        values: Sequence[object],
        times_us: Sequence[int] | None = None,
        keys: Sequence[bytes | None] | None = None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """One batch, as a new driver; `meanwhile` runs between its plan and its commit."""
        prepared = self.prepared()
        run = uuid4().hex
        rows, rejects = (
            TableCommitter(one, TOPIC, run, sleep_s=lambda _seconds: None)
            for one in (prepared.rows, prepared.rejects)
        )
        given = records(values, times_us, keys, self.offset)
        ranges = ranges_of([(0, self.offset, self.offset + len(values))])
        about = TaskReport(prepared.plans.task.number, ranges.ranges[0], "t1", "c1")
        writer = BatchWriter(
            prepared.plans,
            (),
            lambda _ranges, plan: [write_records(iter([given]), Judge(plan), about)],
            None,
        )
        assert acquire_tables(rejects, rows, ranges_of([(0, 0, 0)])) is not None
        meanwhile()
        BatchDriver(rows, rejects, writer.write).commit(writer.write(ranges))
        self.offset += len(values)

    def replay(self) -> None:
        """Put the rejects in again."""
        prepared = self.prepared()
        reading = SimpleNamespace(cluster=SimpleNamespace(close=lambda: None))
        with (
            patch.object(replaying, "open_reading", lambda _definition: reading),
            patch.object(replaying, "prepare", lambda *_given: prepared),
        ):
            replaying.replay(self.definition(), cast("SparkSession", None))

    def held(self, *names: str) -> list[tuple[Any, ...]]:
        """These columns of the table's rows, in order."""
        table = self.rows.read()
        found = zip(*(table[name].to_pylist() for name in names), strict=True)
        return sorted(found, key=repr)

    def reasons(self) -> dict[int, str]:
        """Why an offset is not in the table."""
        table = self.rejects.read()
        return dict(zip(table["offset"].to_pylist(), table["message"].to_pylist(), strict=True))
