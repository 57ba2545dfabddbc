"""`StoredTable`: a table in a remote store, whose errors that may pass are `StoreError`.

Guarantees: an error of a library that the same call may not meet later again (an unreachable store,
a catalog that restarts, keys that have expired) is a `StoreError` with one line, without secrets.
`TableMovedError` and `AnswerLostError` keep their meaning, also without secrets. All other errors
stay. After a `StoreError` the table is read again before its next use, with the credentials of that
moment. `penstock table run` starts a pipeline again after a `StoreError`.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from penstock.core.errors import PenstockError
from penstock.spark.tables.commit.decisions import Commit, TableState
from penstock.spark.tables.definition.model import Expectation
from penstock.spark.tables.files.data_files import FileLayout, FileReceipt
from penstock.spark.tables.files.storages import StoreError
from penstock.spark.tables.files.store_remedies import with_remedy
from penstock.spark.tables.files.table_facts import LiveFile, Partition, Retention, SnapshotFacts
from penstock.spark.tables.files.upsert import Changes
from penstock.spark.tables.formats.port import (
    AnswerLostError,
    Arrangement,
    Compaction,
    Expiry,
    Table,
    TableMovedError,
)
from penstock.spark.tables.formats.store_problems import passing_reason


class StoredTable:
    """A table, and the way to hide its secrets."""

    def __init__(self, table: Table, hide: Callable[[str], str]) -> None:
        self._table = table
        self._hide = hide
        self._is_renewed = True
        """False after a `StoreError`: the handle may have credentials that have expired."""

    @property
    def may_widen(self) -> bool:
        """Whether the format can widen the type of a column."""
        return self._table.may_widen

    def close(self) -> None:
        """Close all resources."""
        self._table.close()

    def load(self) -> TableState:
        """Read the table's current state."""
        with self._reported("read"):
            return self._table.load()

    def schema(self) -> pa.Schema:
        """Return the columns."""
        return self._table.schema()

    def constraints(self) -> tuple[Expectation, ...]:
        """Return rules of the table's owner."""
        return self._table.constraints()

    def layout(self, schema: pa.Schema) -> FileLayout:
        """Return the layout for files that can be appended with this schema."""
        return self._table.layout(schema)

    def arrangement(self) -> Arrangement | None:
        """Return the arrangement of new files."""
        return self._table.arrangement()

    def require_arrangeable(self, wanted: Arrangement) -> None:
        """Raise `OptionError` if a row has no place in these partitions."""
        with self._reported("read"):
            self._table.require_arrangeable(wanted)

    def arrange(self, after: TableState, wanted: Arrangement) -> TableState:
        """Change the arrangement of new files."""
        with self._reported("written"):
            return self._table.arrange(after, wanted)

    def append(
        self, commit: Commit, files: Sequence[FileReceipt], schema: pa.Schema | None = None
    ) -> TableState:
        """Add files, the note, and columns, in one commit."""
        with self._reported("written"):
            return self._table.append(commit, files, schema)

    def upsert(
        self, commit: Commit, changes: Changes, schema: pa.Schema | None = None
    ) -> TableState:
        """Apply the changes, with the note, in one commit."""
        with self._reported("written"):
            return self._table.upsert(commit, changes, schema)

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return these columns of all rows."""
        with self._reported("read"):
            yield from self._table.scan(columns)

    def rows_of(self, keys: pa.Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return these columns of the rows of these keys."""
        with self._reported("read"):
            yield from self._table.rows_of(keys, columns)

    def live_files(self) -> list[LiveFile]:
        """Return the files of the state that was read last."""
        with self._reported("read"):
            return self._table.live_files()

    def retention(self) -> Retention:
        """Return the retention in the table's own properties."""
        return self._table.retention()

    def snapshots(self) -> SnapshotFacts:
        """Return the number of readable states, and their age."""
        with self._reported("read"):
            return self._table.snapshots()

    def compact(
        self,
        after: TableState,
        *,
        target_bytes: int,
        partitions: Collection[Partition] | None = None,
    ) -> Compaction:
        """Merge small files into fewer ones."""
        with self._reported("compacted"):
            return self._table.compact(after, target_bytes=target_bytes, partitions=partitions)

    def expire(self, *, older_than_ms: int, keep_count: int) -> Expiry:
        """Expire old states of the table."""
        with self._reported("cleaned"):
            return self._table.expire(older_than_ms=older_than_ms, keep_count=keep_count)

    def remove_orphans(self, *, older_than_ms: int) -> int:
        """Delete files that no state references."""
        with self._reported("cleaned"):
            return self._table.remove_orphans(older_than_ms=older_than_ms)

    @contextmanager
    def _reported(self, done: str) -> Iterator[None]:
        try:
            if not self._is_renewed:
                self._table.load()
                self._is_renewed = True
            yield
        except (TableMovedError, AnswerLostError) as error:
            raise type(error)(self._hide(str(error))) from None
        except PenstockError:
            raise
        except Exception as error:
            reason = passing_reason(error)
            if reason is None:
                raise
            self._is_renewed = False
            text = f"the table cannot be {done} now: {self._hide(reason)}"
            raise StoreError(with_remedy(text, error)) from None
