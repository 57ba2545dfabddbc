"""Read-only access to an Iceberg table, by the `pyiceberg` package."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from penstock.spark.tables.formats.iceberg.note_keys import PIPELINE_KEY
from penstock.spark.tables.formats.iceberg.position_deletes import deleted_counts
from penstock.spark.tables.formats.iceberg.protocol import readable_metadata
from penstock.spark.tables.formats.iceberg.rows import IcebergRows
from penstock.spark.tables.formats.iceberg.storage import open_catalog
from penstock.spark.tables.formats.reading import COMMITS_MAX, CommitSeen, TableFacts

NO_SNAPSHOT = -1


class IcebergReader:
    """The newest snapshot of one table."""

    def __init__(self, catalog: Mapping[str, str], name: str) -> None:
        self._catalog = open_catalog(catalog)
        with readable_metadata(name):
            self._table: Table = self._catalog.load_table(name)

    def facts(self) -> TableFacts:
        """Return the size and the age of the table."""
        metadata = self._table.metadata
        found = list(deleted_counts(self._table.scan().plan_files()))
        files = [task.file for task, _ in found]
        snapshots = sorted(metadata.snapshots, key=lambda one: one.sequence_number or 0)
        return TableFacts(
            version=metadata.current_snapshot_id or NO_SNAPSHOT,
            row_count=sum(task.file.record_count - deleted for task, deleted in found),
            file_count=len(files),
            file_bytes=sum(one.file_size_in_bytes for one in files),
            snapshot_count=len(snapshots),
            oldest_snapshot_ms=min((one.timestamp_ms for one in snapshots), default=None),
            commits=tuple(_commits(snapshots[: -COMMITS_MAX - 1 : -1])),
        )

    def rows(
        self, columns: Sequence[str], *, equal: Mapping[str, str | int], limit: int
    ) -> pa.Table:
        """Return rows whose columns have these values, in no order; at most `limit`."""
        wanted: BooleanExpression = AlwaysTrue()
        for name, value in equal.items():
            wanted = And(wanted, _is_equal(name, value))
        tasks = list(self._table.scan(row_filter=wanted).plan_files())
        reader = IcebergRows(self._table, list(dict.fromkeys([*columns, *equal])))
        found = [reader.schema.empty_table()]
        for batch in reader.batches(tasks):
            rows = pa.Table.from_batches([batch])
            for name, value in equal.items():
                rows = rows.filter(pc.equal(rows.column(name), value))
            found.append(rows.slice(0, limit))
            limit -= found[-1].num_rows
            if limit <= 0:
                break
        return pa.concat_tables(found).select(list(columns))

    def close(self) -> None:
        """Close the catalog."""
        self._catalog.close()


def _is_equal(name: str, value: str | int) -> BooleanExpression:
    return EqualTo(name, value)  # type: ignore[call-arg, arg-type] # its own __init__, not the model's


def _commits(snapshots: Sequence[Snapshot]) -> list[CommitSeen]:
    found = []
    for snapshot in snapshots:
        pipeline = snapshot.summary[PIPELINE_KEY] if snapshot.summary else None
        if pipeline is not None:
            found.append(CommitSeen(str(pipeline), snapshot.timestamp_ms))
    return found
