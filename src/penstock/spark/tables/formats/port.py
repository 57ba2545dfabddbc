"""The port `Table`: the operations of Penstock on a table of any format.

Every change of a table is conditional on the state that was read before: `append`, `upsert` and
`compact` get the state of their decision, and raise `TableMovedError` after any other commit since.
So every committer has seen all earlier commits, and a driver that missed its successor's commits
cannot do harm.

Implementations: `delta`, `iceberg`, and the fake of the tests; one suite tests all three. One
thread at a time uses a table.

Schemas are Arrow's. A column may be added, or widened if the format can; the commit of the first
files that need it changes the column.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.spark.errors import SparkQueryError
from penstock.spark.tables.commit.decisions import Commit, TableState
from penstock.spark.tables.definition.model import Expectation
from penstock.spark.tables.files.data_files import FileLayout, FileReceipt
from penstock.spark.tables.files.file_order import SortField
from penstock.spark.tables.files.file_partitions import PartitionField
from penstock.spark.tables.files.table_facts import LiveFile, Partition, Retention, SnapshotFacts
from penstock.spark.tables.files.upsert import Changes


class TableError(SparkQueryError):
    """Base of the errors of a table."""


class TableMovedError(TableError):
    """The table has changed since it was read; nothing was committed."""


class AnswerLostError(TableError):
    """The result of the commit is unknown until the table is read again."""


class LayoutChangedError(TableError):
    """The files were written for columns that the table no longer has: write them again."""


class TableRefusedError(TableError):
    """The table requires an unsupported feature of its writers; nothing was committed."""


class TableReplacedError(TableError):
    """The location of the table now has another table, or none."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the table {name} was dropped, renamed or created anew while it was open. Nothing was "
            "committed to it. Start the pipeline again: it begins with what the table holds then."
        )


class PartitionsDifferError(TableError):
    """The table's partitioning differs from the pipeline's."""


class SchemaRefusedError(TableError):
    """The schema cannot be changed in this way in this format."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The partitions and the sort order of a table's new files."""

    partitions: tuple[PartitionField, ...] = ()
    sort: tuple[SortField, ...] = ()


@dataclass(frozen=True, slots=True)
class Expiry:
    """The result of an expiry."""

    state: TableState
    """The table's state afterwards."""
    removed_count: int
    """The number of snapshots, or versions of the log, that are no longer readable."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """The result of a compaction."""

    state: TableState
    """The table's state afterwards."""
    removed_count: int
    """The number of files that are no longer part of the table."""
    added_count: int


class FixedArrangement:
    """A table whose files are arranged as at its creation, always."""

    def arrangement(self) -> Arrangement | None:
        """Return None: it never changes."""
        return None

    def require_arrangeable(self, wanted: Arrangement) -> None:
        """Raise: the arrangement never changes."""
        raise PartitionsDifferError(f"{wanted} is not the arrangement of this table.")

    def arrange(self, after: TableState, wanted: Arrangement) -> TableState:
        """Raise: the arrangement never changes."""
        raise PartitionsDifferError(f"{wanted} is not the arrangement of this table ({after}).")


class Table(Protocol):
    """One table, as the driver of a pipeline uses it."""

    @property
    def may_widen(self) -> bool:
        """Whether the format can widen the type of a column."""

    def close(self) -> None:
        """Close all resources."""

    def load(self) -> TableState:
        """Read the table's current state."""

    def schema(self) -> pa.Schema:
        """Return the columns, as of the last `load` or commit."""

    def constraints(self) -> tuple[Expectation, ...]:
        """Return rules of the table's owner, as of the last `load` or commit; a row must pass each.

        A commit of rows that were judged by other rules than the table then has raises
        `LayoutChangedError`.
        """

    def layout(self, schema: pa.Schema) -> FileLayout:
        """Return the layout for files that can be appended with this schema."""

    def arrangement(self) -> Arrangement | None:
        """Return the arrangement, as of the last `load` or commit; None if it never changes."""

    def require_arrangeable(self, wanted: Arrangement) -> None:
        """Raise `OptionError` if a row has no place in these partitions, as of the last `load`."""

    def arrange(self, after: TableState, wanted: Arrangement) -> TableState:
        """Change the arrangement of new files; existing files stay. Errors as with `append`."""

    def append(
        self, commit: Commit, files: Sequence[FileReceipt], schema: pa.Schema | None = None
    ) -> TableState:
        """Add files, the note, and further columns of the schema, in one commit.

        `TableMovedError`: rejected. `AnswerLostError`: unknown. Returns the state afterwards.
        """

    def upsert(
        self, commit: Commit, changes: Changes, schema: pa.Schema | None = None
    ) -> TableState:
        """Apply the changes to the rows of their keys, with the note, in one commit.

        Afterwards a changed key has one row, or none if its last change is a deletion. Other rows
        stay unchanged. Columns and errors as with `append`. The files of the changes are only read.
        """

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return these columns of all rows of the state that was read last, in no order."""

    def rows_of(self, keys: pa.Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return these columns of the rows of these keys, of the state that was read last.

        `keys` has columns of the table. Files whose statistics exclude all keys are not read.
        """

    def live_files(self) -> list[LiveFile]:
        """Return the files of the state that was read last."""

    def retention(self) -> Retention:
        """Return the retention in the table's own properties, as of the last `load`."""

    def snapshots(self) -> SnapshotFacts:
        """Return the number of readable states, as of the last `load` or commit, and their age."""

    def compact(
        self,
        after: TableState,
        *,
        target_bytes: int,
        partitions: Collection[Partition] | None = None,
    ) -> Compaction:
        """Merge small files into fewer ones, of all partitions or of these.

        Errors as with `append`.
        """

    def expire(self, *, older_than_ms: int, keep_count: int) -> Expiry:
        """Expire old states of the table, and delete the files that only they reference.

        `older_than_ms` is a time since 1970; the newest `keep_count` states are kept anyway. The
        result of `load` stays the same. A crash in between leaves orphans. Errors as with `append`.
        """

    def remove_orphans(self, *, older_than_ms: int) -> int:
        """Delete files of the table's folders that no state references; return their number.

        Only files last written before `older_than_ms`: files of a running batch are unreferenced,
        too.
        """
