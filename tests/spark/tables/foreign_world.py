"""A pipeline without Spark into a table that another writer created.

Everything starting at the judgement of records is the product's own, as in `batch_world`. Records
are JSON values, and their offsets count up, so a test sends records and reads the table.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable

from penstock.spark.decode.buffers import HEADERS
from penstock.spark.tables.commit.note import BatchRanges, PartitionRange
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.formats.opening import make_table, open_table
from penstock.spark.tables.formats.rejects import REJECTS
from penstock.spark.tables.run.batches import BatchDriver, acquire_tables
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.run.plans import Plans, require_change, value_columns
from penstock.spark.tables.run.writing import BatchWriter
from penstock.spark.tables.tasks.judging import Judge
from penstock.spark.tables.tasks.report import TaskReport
from penstock.spark.tables.tasks.task import write_records
from penstock.spark.tables.tasks.task_plan import TaskPlan
from penstock.spark.tables.values.value_parsers import new_parser, plan_parser
from tests.spark.tables.pipeline_world import World

TOPIC = "orders"
Value = Mapping[str, object] | None
"""What a record holds; None deletes the row of its key."""


@dataclass
class ForeignWorld:
    """The folder of a warehouse, in which another writer creates the table."""

    folder: Path
    schema: str = "id bigint, amount double"
    mode: str = "append"
    format: str = "delta"
    name: str = "shop.orders"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """More of the definition's section of the table."""

    @property
    def table(self) -> Path:
        return Path(self.folder, "warehouse", *self.name.split("."))

    @property
    def definition(self) -> PipelineDefinition:
        upsert: dict[str, Any] = {"mode": "upsert", "key": ["id"]} if self.mode == "upsert" else {}
        return World(self.folder, self.format, "127.0.0.1:1", TOPIC).definition(
            pipeline={"mode": "in_task"},
            table={"name": self.name, **upsert, **self.settings},
            value={"format": "json", "schema": self.schema},
        )

    def start(self) -> "ForeignPipeline":
        """A driver that has taken both tables."""
        return ForeignPipeline(self.definition)

    def rows(self, *names: str) -> list[tuple[Any, ...]]:
        """These columns of the table, in order, by the format's own library."""
        return self._read(self.name, names)

    def rejects(self) -> list[tuple[int, str, str]]:
        """Offset, error class and reason of each bad record."""
        return self._read(f"{self.name}__dlq", ("offset", "error_class", "message"))

    def _read(self, name: str, names: Sequence[str]) -> list[tuple[Any, ...]]:
        if self.format == "delta":
            return rows_of(str(Path(self.folder, "warehouse", *name.split("."))), *names)
        found = World(self.folder, self.format, "127.0.0.1:1", TOPIC).rows(name)
        rows = zip(*(found[one].to_pylist() for one in names), strict=True)
        return sorted(rows, key=repr)


@dataclass
class ForeignPipeline:
    """One driver; `commit` is one micro-batch."""

    definition: PipelineDefinition
    next_offset: int = 0
    _come: pa.RecordBatch | None = None
    driver: BatchDriver = field(init=False)
    writer: BatchWriter = field(init=False)

    def __post_init__(self) -> None:
        settings = self.definition.table
        rows = open_table(settings, settings.name)
        rejects = make_table(settings, settings.dlq_name, REJECTS)
        parser = plan_parser(self.definition.value, self.definition.source.topics, None)
        held = value_columns(self.definition, rows.schema())
        wanted = require_change(held, new_parser(parser).schema, may_widen=rows.may_widen)
        plans = Plans(self.definition, parser, wanted.schema, rows, rejects, is_staged=False)
        run = uuid4().hex
        of_rows, of_rejects = (
            TableCommitter(one, "orders", run, sleep_s=lambda _seconds: None)
            for one in (rows, rejects)
        )
        self.writer = BatchWriter(plans, self.definition.expectations, self._written, None)
        self.driver = BatchDriver(of_rows, of_rejects, self.writer.write, renew=plans.renew)
        acquire_tables(of_rejects, of_rows, ranges_of(0, 0))

    def commit(self, *values: Value, keys: Sequence[object] = ()) -> None:
        """Commit these records as one batch."""
        self.write(*values, keys=keys)()

    def write(self, *values: Value, keys: Sequence[object] = ()) -> Any:  # noqa: ANN401
        """Write the files of these records; what is returned commits them."""
        start, end = self.next_offset, self.next_offset + len(values)
        self.next_offset = end
        self._come = records(start, values, keys)
        report = self.writer.write(ranges_of(start, end))
        return lambda: self.driver.commit(report)

    def _written(self, ranges: BatchRanges, plan: TaskPlan) -> list[TaskReport]:
        assert self._come is not None
        (one,) = ranges.ranges
        about = TaskReport(plan.number, one, "t1", "c1")
        return [write_records(iter([self._come]), Judge(plan), about)]


def ranges_of(start: int, end: int) -> BatchRanges:
    return BatchRanges((PartitionRange(TOPIC, 0, start, end, 1),), {TOPIC: "t1"}, "c1")


def records(start: int, values: Sequence[Value], keys: Sequence[object]) -> pa.RecordBatch:
    """Records as the source gives them."""
    count = len(values)
    shown = [None if one is None else json.dumps(one).encode() for one in values]
    named = [json.dumps(one).encode() for one in keys] or [b"k"] * count
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array(named, pa.binary()),
            "value": pa.array(shown, pa.binary()),
            "topic": pa.array([TOPIC] * count, pa.string()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(start, start + count), pa.int64()),
            "timestamp": pa.array([moment] * count, pa.timestamp("us", "UTC")),
            "headers": pa.nulls(count, HEADERS),
        }
    )


def rows_of(uri: str, *names: str) -> list[tuple[Any, ...]]:
    found = pa.table(DeltaTable(uri).scan(columns=list(names)).read_all())
    rows = zip(*(found[name].to_pylist() for name in names), strict=True)
    return sorted(rows, key=repr)
