"""The plan of a pipeline's tasks.

A plan is a plain value that is pickled into tasks. It defines the parsing of values, the rules for
rows, and the files of both tables. It changes in a running pipeline when a table gets a column. It
has a number, which is part of a report.
"""

import pickle
from dataclasses import dataclass

import pyarrow as pa

from penstock.spark.tables.definition.model import Expectation, Metadata
from penstock.spark.tables.files.data_files import FileLayout
from penstock.spark.tables.files.partition_limits import NO_LIMITS, PartitionLimits
from penstock.spark.tables.values.value_parsers import ParserPlan


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """The plan of a task: from records to files."""

    number: int
    pipeline: str
    parser: ParserPlan
    value_schema: pa.Schema
    """The columns of values, as in the table; values that do not fit are rejects."""
    may_widen: bool
    expectations: tuple[Expectation, ...]
    rows: FileLayout
    rejects: FileLayout
    metadata: Metadata = Metadata.STRUCT
    """The columns that identify the record of a row."""
    key: tuple[str, ...] = ()
    """The columns of the key; with a key, the rows are changes for an upsert."""
    deletions: FileLayout | None = None
    """For an upsert: records without a value, which delete the row of their key."""
    required: tuple[str, ...] = ()
    """Columns that are required in the table: a row without a value there is a reject."""
    limits: PartitionLimits = NO_LIMITS
    """The columns that the table's partitions limit."""
    derived: frozenset[str] = frozenset()
    """The names of columns that the table's partitions add."""
    is_staged: bool = False
    """Whether the rows are staged: their keys and rules are checked later."""
    keeps_record: bool = False
    """Whether rows include the whole record (`columns.VALUE`), for a later quarantine."""


def pack_plan(plan: TaskPlan) -> bytes:
    """Return the plan as bytes for tasks."""
    return pickle.dumps(plan)


def unpack_plan(data: bytes) -> TaskPlan:
    """Return the plan in a task's bytes."""
    plan = pickle.loads(data)  # noqa: S301 - from the driver of this query
    assert isinstance(plan, TaskPlan)
    return plan
