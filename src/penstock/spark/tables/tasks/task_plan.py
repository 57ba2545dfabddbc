"""The plan of a pipeline's tasks.

A plan is a plain value that is pickled into tasks. It defines how values are read, the rules for
rows, and how the files of both tables are written. It changes while a pipeline runs, when a table
gets a column, and has a number, which a report carries.
"""

import pickle
from dataclasses import dataclass

import pyarrow as pa

from penstock.spark.tables.definition.model import Expectation, Metadata
from penstock.spark.tables.files.data_files import FileLayout
from penstock.spark.tables.values.value_parsers import ParserPlan


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """How a task turns records into files."""

    number: int
    pipeline: str
    parser: ParserPlan
    value_schema: pa.Schema
    """The columns of values, as the table has them; values that do not fit are rejects."""
    may_widen: bool
    expectations: tuple[Expectation, ...]
    rows: FileLayout
    rejects: FileLayout
    metadata: Metadata = Metadata.STRUCT
    """How rows identify their record."""
    key: tuple[str, ...] = ()
    """The columns of the key: the rows are changes for an upsert."""
    deletions: FileLayout | None = None
    """Of an upsert: records without a value, which delete the row of their key."""
    required: tuple[str, ...] = ()
    """Columns that are required in the table: a row without a value is a reject."""
    filled: tuple[str, ...] = ()
    """Columns in which the table cannot hold an empty text."""
    derived: frozenset[str] = frozenset()
    """Names of columns that the table's partitions add."""
    is_staged: bool = False
    """The rows are staged: their keys and rules are checked later."""
    keeps_record: bool = False
    """Rows have the whole record beside them (`columns.VALUE`), for a later quarantine."""


def pack_plan(plan: TaskPlan) -> bytes:
    """Return the plan as bytes for tasks."""
    return pickle.dumps(plan)


def unpack_plan(data: bytes) -> TaskPlan:
    """Return the plan in a task's bytes."""
    plan = pickle.loads(data)  # noqa: S301 - from the driver of this query
    assert isinstance(plan, TaskPlan)
    return plan
