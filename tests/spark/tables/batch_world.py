"""A pipeline without Spark: its driver of batches over two tables, to be crashed at any operation.

Everything starting at the judgement of records is the product's own: files, committers, the driver
of batches and the replay of rejects. Only the topic is invented: partition and offset define a
record. A `Drama` counts the operations on both tables, and causes an event at one of them: a crash
before or after it, a lost answer, or the whole run of another driver.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.spark.decode.buffers import HEADERS
from penstock.spark.tables.commit.decisions import Commit, TableState
from penstock.spark.tables.commit.note import BatchRanges, PartitionRange
from penstock.spark.tables.commit.stops import CommitStoppedError
from penstock.spark.tables.definition.model import Metadata, PipelineDefinition, RunMode
from penstock.spark.tables.files.data_files import FileReceipt
from penstock.spark.tables.files.upsert import Changes
from penstock.spark.tables.formats.port import AnswerLostError, Table
from penstock.spark.tables.formats.rejects import REJECTS
from penstock.spark.tables.rules import sql as expectation_sql
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
from penstock.spark.tables.tasks.task_plan import TaskPlan
from penstock.spark.tables.values.columns import table_schema
from penstock.spark.tables.values.database import new_database
from penstock.spark.tables.values.value_parsers import new_parser, plan_parser
from tests.spark.tables.pipeline_world import World, with_places
from tests.spark.tables.table_kinds import DeltaKind, FakeKind, IcebergKind, Kind

TOPIC = "orders"
ENDS = (4, 2)
"""Records of each partition."""
EVERYTHING = sorted((part, offset) for part, end in enumerate(ENDS) for offset in range(end))
RULES = ("amount <> 0", "amount <> 1", "amount < 9")
"""Which records are bad by the rule of a driver: others each time, and none by the last."""
KINDS: dict[str, Callable[..., Kind]] = {
    "fake": FakeKind,
    "delta": DeltaKind,
    "iceberg": IcebergKind,
}


class CrashError(BaseException):
    """The process has crashed: no code catches this."""


@dataclass
class Drama:
    """The event at each operation on the tables; by default none."""

    at: int = -1
    before: Callable[[], object] | None = None
    after: Callable[[], object] | None = None
    count: int = 0

    def play(self, operation: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever it gives
        number = self.count
        self.count += 1
        if number == self.at and self.before is not None:
            self.before()
        result = operation()
        if number == self.at and self.after is not None:
            self.after()
        return result


class StagedTable:
    """A table whose operations are part of a drama."""

    def __init__(self, table: Table, drama: Drama) -> None:
        self._table = table
        self._drama = drama

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the rest of the port
        return getattr(self._table, name)

    def load(self) -> TableState:
        return cast("TableState", self._drama.play(self._table.load))

    def append(
        self, commit: Commit, files: Sequence[FileReceipt], schema: pa.Schema | None = None
    ) -> TableState:
        made = self._drama.play(lambda: self._table.append(commit, files, schema))
        return cast("TableState", made)

    def upsert(
        self, commit: Commit, changes: Changes, schema: pa.Schema | None = None
    ) -> TableState:
        made = self._drama.play(lambda: self._table.upsert(commit, changes, schema))
        return cast("TableState", made)

    def scan(self, columns: Sequence[str]) -> list[pa.RecordBatch]:
        found = self._drama.play(lambda: list(self._table.scan(columns)))
        return cast("list[pa.RecordBatch]", found)


@contextmanager
def quick() -> Iterator[None]:
    """Without what only takes time here: power stays on, and DuckDB starts once."""
    with (
        new_database() as database,
        patch.object(expectation_sql, "new_database", database.cursor),
        patch.object(os, "fsync", lambda _descriptor: None),
    ):
        yield


def crash() -> None:
    raise CrashError


def lose_answer() -> None:
    raise AnswerLostError("the answer was lost")


@dataclass(frozen=True)
class Life:
    """How a driver goes about its work: which rule, how its batches are cut, where it begins."""

    rule: str = RULES[0]
    sizes: tuple[int, ...] = (2, 1)
    """Offsets of a batch, for each partition."""
    checkpoint: tuple[int, ...] | None = None
    """Where its checkpoint says that it goes on, but not after what the table has: it was set
    back. None: it has none, and asks the table."""
    pipeline: str = "orders"


@dataclass
class BatchWorld:
    """Both tables of one pipeline."""

    folder: Path
    kind: str = "fake"
    rows: Kind = field(init=False)
    rejects: Kind = field(init=False)
    offered: list[int] = field(default_factory=list)
    """The number of records in each attempt of a commit."""

    def __post_init__(self) -> None:
        value_schema = new_parser(self._parser(self.definition(RULES[0]))).schema
        schemas = {"rows": table_schema(value_schema, Metadata.STRUCT), "rejects": REJECTS}
        for name, schema in schemas.items():
            folder = self.folder / name
            folder.mkdir(parents=True)
            kind = KINDS[self.kind](folder, schema=schema)
            kind.create()
            setattr(self, name, kind)

    def definition(self, rule: str, pipeline: str = "orders") -> PipelineDefinition:
        return World(self.folder, "delta", "127.0.0.1:1", TOPIC).definition(
            pipeline={"name": pipeline, "mode": "in_task"},
            value={"format": "json", "schema": "id bigint, amount bigint"},
            expectations=[{"name": "rule", "sql": rule, "action": "quarantine"}],
        )

    @staticmethod
    def _parser(definition: PipelineDefinition) -> Any:  # noqa: ANN401 - only passed on
        return plan_parser(definition.value, definition.source.topics, None)

    def prepared(self, rule: str, drama: Drama, pipeline: str = "orders") -> Prepared:
        definition = self.definition(rule, pipeline)
        parser = self._parser(definition)
        rows, rejects = (
            cast("Table", StagedTable(one.open(), drama)) for one in (self.rows, self.rejects)
        )
        schema = new_parser(parser).schema
        plans = Plans(definition, parser, schema, rows, rejects, is_staged=False)
        return Prepared(Plan(RunMode.IN_TASK, ("a test",)), plans, rows, rejects)

    def live(self, life: Life, drama: Drama | None = None) -> None:
        """A driver from its start to the end of the topic."""
        prepared = self.prepared(life.rule, drama or Drama(), life.pipeline)
        run = uuid4().hex
        rows, rejects = (
            TableCommitter(one, life.pipeline, run, sleep_s=lambda _seconds: None)
            for one in (prepared.rows, prepared.rejects)
        )
        expectations = self.definition(life.rule).expectations
        writer = BatchWriter(prepared.plans, expectations, written_ranges, None)
        driver = BatchDriver(rows, rejects, writer.write)
        starting = ranges_of([(part, 0, 0) for part in range(len(ENDS))])
        resumed = acquire_tables(rejects, rows, starting)
        assert resumed is not None
        held = [one.offset for _, one in sorted(resumed.positions.items())]
        positions = [min(one) for one in zip(life.checkpoint or held, held, strict=True)]
        while positions != list(ENDS):
            ends = [
                min(at + size, end)
                for at, size, end in zip(positions, life.sizes, ENDS, strict=True)
            ]
            batch = [(n, *one) for n, one in enumerate(zip(positions, ends, strict=True))]
            report = writer.write(ranges_of([one for one in batch if one[1] < one[2]]))
            driver.commit(report, lambda _ranges, records, _rejects: self.offered.append(records))
            positions = ends

    def replay(self, rule: str, drama: Drama | None = None, *, anew: bool = False) -> None:
        """Put rejects in again, by this rule."""
        prepared = self.prepared(rule, drama or Drama())
        reading = SimpleNamespace(cluster=SimpleNamespace(close=lambda: None))
        with (
            patch.object(replaying, "open_reading", lambda _definition: reading),
            patch.object(replaying, "prepare", lambda *_given: prepared),
        ):
            replaying.replay(self.definition(rule), cast("SparkSession", None), anew=anew)

    def wrong(self) -> str:
        """What is not in exactly one of both tables; nothing when all is well."""
        rows, rejects = self.rows.read(), self.rejects.read()
        held = Counter(_places(with_places(rows), "partition", "offset"))
        bad = Counter(_places(rejects, "partition", "offset"))
        both = held + bad
        expected = Counter(EVERYTHING)
        problems = {
            "missing": sorted((expected - both).elements()),
            "doubled": sorted((both - expected).elements()),
            "claimed": sorted(set(rejects["pipeline"].to_pylist()) - {"orders"}),
        }
        return ", ".join(f"{name} {found}" for name, found in problems.items() if found)


def survived(work: Callable[[], None]) -> bool:
    """Whether somebody got to the end; a crash, or being replaced, is no error here."""
    try:
        work()
    except (CrashError, CommitStoppedError):
        return False
    return True


def completed(work: Callable[[], None]) -> None:
    """What somebody else does in the middle: nothing stops it."""
    assert survived(work), "the one who came last was stopped"


def operations(work: Callable[[Drama], None]) -> int:
    """How many operations on the tables something takes."""
    drama = Drama()
    work(drama)
    return drama.count


def ranges_of(found: Sequence[tuple[int, int, int]]) -> BatchRanges:
    ranges = tuple(PartitionRange(TOPIC, *one, 1) for one in found)
    return BatchRanges(ranges, {TOPIC: "t1"}, "c1")


def written_ranges(ranges: BatchRanges, plan: TaskPlan) -> list[TaskReport]:
    """What tasks do: a task for each partition."""
    return [
        write_records(
            iter([records(one)]), Judge(plan), TaskReport(plan.number, one, "t1", ranges.cluster_id)
        )
        for one in ranges.ranges
    ]


def records(of: PartitionRange) -> pa.RecordBatch:
    """The records of the invented topic; the third of a partition is always bad."""
    offsets = range(of.start_offset, of.end_offset)
    values = [
        b"not json" if n == 2 else json.dumps({"id": n, "amount": n % 3}).encode() for n in offsets
    ]
    count = len(offsets)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"k"] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array([of.topic] * count, pa.string()),
            "partition": pa.array([of.partition] * count, pa.int32()),
            "offset": pa.array(list(offsets), pa.int64()),
            "timestamp": pa.array(
                [datetime(2026, 1, 1, tzinfo=UTC)] * count, pa.timestamp("us", "UTC")
            ),
            "headers": pa.nulls(count, HEADERS),
        }
    )


def _places(table: pa.Table, partition: str, offset: str) -> list[tuple[int, int]]:
    return list(zip(table[partition].to_pylist(), table[offset].to_pylist(), strict=True))
