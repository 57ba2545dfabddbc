"""What Penstock needs of a table, whatever its format: the port `Table`, and what goes through it.

Every change of a table is conditional on what was read before: `append`, `upsert` and `compact` get
the state from which they were decided, and are refused with `TableMovedError` when anything at all
was committed since. So whoever commits has seen everything, and a driver that slept through its
successor's commits cannot do harm.

Who implements it: `delta`, `iceberg`, and the fake of the tests; one suite holds for all three. A
table is used by one thread at a time.

Schemas are Arrow's. A column may be added, or widened where the format can; that happens in the
same commit as the first files that need it.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.spark.errors import SparkQueryError
from penstock.spark.tables.commit import Commit, TableState
from penstock.spark.tables.data_files import FileLayout, FileReceipt
from penstock.spark.tables.definition import Expectation
from penstock.spark.tables.table_facts import LiveFile, Partition, Retention, SnapshotFacts
from penstock.spark.tables.upsert import Changes


class TableError(SparkQueryError):
    """Base of what a table answers."""


class TableMovedError(TableError):
    """The table is not as it was read; nothing was committed."""


class AnswerLostError(TableError):
    """Nobody knows whether the commit was made; the table does, when it is read again."""


class LayoutChangedError(TableError):
    """The files were written for columns that the table has not any more: write them again."""


class TableRefusedError(TableError):
    """The table needs writers to do what Penstock does not; nothing was committed."""


class TableReplacedError(TableError):
    """The place of the table has another one by now, or none."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the table {name} was dropped, renamed or created anew while it was open. Nothing was "
            "committed to it. Start the pipeline again: it begins with what the table holds then."
        )


class PartitionsDifferError(TableError):
    """The table is partitioned in another way than the pipeline would write."""


class SchemaRefusedError(TableError):
    """The schema cannot be changed in this way in this format."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """What an expiry removed."""

    state: TableState
    """What the table says afterwards."""
    removed_count: int
    """Snapshots, or versions of the log, that cannot be read any more."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a compaction did."""

    state: TableState
    """What the table says afterwards."""
    removed_count: int
    """Files that are not part of the table any more."""
    added_count: int


class Table(Protocol):
    """One table, and what the driver of a pipeline does with it."""

    @property
    def may_widen(self) -> bool:
        """Whether the format can make the type of a column wider."""

    def close(self) -> None:
        """Let go of whatever is open."""

    def load(self) -> TableState:
        """Read what the table says now."""

    def schema(self) -> pa.Schema:
        """The columns, as of the last `load` or commit."""

    def constraints(self) -> tuple[Expectation, ...]:
        """Rules of the table's owner, as of the last `load` or commit; a row has to keep each.

        Files of rows that were judged by other rules than the table has when they are committed
        are refused with `LayoutChangedError`.
        """

    def layout(self, schema: pa.Schema) -> FileLayout:
        """How tasks write files that can be appended with this schema."""

    def append(
        self, commit: Commit, files: Sequence[FileReceipt], schema: pa.Schema | None = None
    ) -> TableState:
        """Add files and the note in one commit, and with them columns that the schema has more.

        `TableMovedError`: refused. `AnswerLostError`: made or not. Gives the state afterwards.
        """

    def upsert(
        self, commit: Commit, changes: Changes, schema: pa.Schema | None = None
    ) -> TableState:
        """Bring the rows of changed keys to what the changes say, with the note, in one commit.

        Afterwards a key that was changed has one row, or none if its last change is a deletion.
        Other rows stay as they are. Columns and errors as with `append`. The files of the changes
        are only read.
        """

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns of all rows of the state that was read last, in no order."""

    def live_files(self) -> list[LiveFile]:
        """The files of the state that was read last."""

    def retention(self) -> Retention:
        """What the table's own properties say of its maintenance, as of the last `load`."""

    def snapshots(self) -> SnapshotFacts:
        """How many states can be read, as of the last `load` or commit, and how old they are."""

    def compact(
        self,
        after: TableState,
        *,
        target_bytes: int,
        partitions: Collection[Partition] | None = None,
    ) -> Compaction:
        """Put the rows of small files into fewer ones, of all partitions or of these.

        Errors as with `append`.
        """

    def expire(self, *, older_than_ms: int, keep_count: int) -> Expiry:
        """Let go of old states of the table, and of the files that only they refer to.

        `older_than_ms` is a time since 1970; the newest `keep_count` states are kept anyway. What
        `load` says stays the same. A crash in between leaves orphans. Errors as with `append`.
        """

    def remove_orphans(self, *, older_than_ms: int) -> int:
        """Remove files of the table's folders that no state refers to; gives how many.

        Only what was last written before `older_than_ms`: a running batch has files, too, to which
        nothing refers yet.
        """
