"""What the tasks of a pipeline are told, and the file by which the driver tells it.

A plan is a plain value that is pickled into tasks. It says how values are read, which rules rows
have to keep, and how the files of both tables are written. It changes while a pipeline runs, when a
table gets a column, and has a number by which a report says after which plan it was made.

Spark gives a streaming source its options once and for all, and keeps it in a process of its own on
the driver's machine. So the newest plan lies in a file there, and is read anew for each batch. The
file is replaced as a whole; it is nobody's but this run's.
"""

import pickle
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pyarrow as pa

from penstock.spark.offsets import StreamOffset
from penstock.spark.tables.data_files import FileLayout
from penstock.spark.tables.definition import Expectation
from penstock.spark.tables.value_parsers import ParserPlan

_NAME: Final = "plan"


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """How a task makes files of records."""

    number: int
    pipeline: str
    parser: ParserPlan
    value_schema: pa.Schema
    """The columns of values, as the table has them; what does not fit is a reject."""
    may_widen: bool
    has_metadata: bool
    expectations: tuple[Expectation, ...]
    rows: FileLayout
    rejects: FileLayout
    key: tuple[str, ...] = ()
    """The columns of the key: the rows are changes for an upsert."""
    deletions: FileLayout | None = None
    """Of an upsert: records without a value, which delete the row of their key."""
    keeps_record: bool = False
    """Rows have the whole record beside them (`columns.RECORD`), for a later quarantine."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What the source is told for each batch."""

    task: TaskPlan
    initial: StreamOffset
    """Where a query without a checkpoint begins."""
    held: StreamOffset
    """What the table has already: the next offset of each partition. It is not read again."""
    only_ranges: bool = False
    """Tasks tell what there is to read, and read nothing."""


class PlanFile:
    """The newest plan of one run, for the process of the source."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="penstock-pipeline-")
        self.path = str(Path(self._folder.name) / _NAME)

    def write(self, plan: BatchPlan) -> None:
        """Replace the plan."""
        target = Path(self.path)
        draft = target.with_suffix(".new")
        draft.write_bytes(pickle.dumps(plan))
        draft.replace(target)

    def close(self) -> None:
        """Remove it."""
        self._folder.cleanup()


def read_plan(path: str) -> BatchPlan:
    """The newest plan."""
    # Written by this run's driver, into a folder that nobody else can write to.
    plan = pickle.loads(Path(path).read_bytes())  # noqa: S301
    assert isinstance(plan, BatchPlan)
    return plan
