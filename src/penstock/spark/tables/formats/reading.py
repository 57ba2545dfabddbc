"""The port `TableReader`: read-only access to a table, and the function that opens one.

It is the counterpart of `port`: this port never commits, and no commit depends on its values. So a
table can be inspected while a pipeline runs, without a conflict.

Implementations: `delta.reading` and `iceberg.reading`, each imported when a table of its format is
opened.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Final, Protocol

import pyarrow as pa

from penstock.spark.tables.definition.model import TableFormat, TableSettings
from penstock.spark.tables.formats.opening import delta_location, open_table, storage_options

COMMITS_MAX: Final = 1_000
"""The number of newest commits that are read; a pipeline without one committed long ago."""


@dataclass(frozen=True, slots=True)
class CommitSeen:
    """One commit of a pipeline, in the history of a table."""

    pipeline: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The size and the age of a table."""

    version: int
    row_count: int
    file_count: int
    file_bytes: int
    snapshot_count: int
    """The number of readable states; versions, in Delta."""
    oldest_snapshot_ms: int | None
    commits: tuple[CommitSeen, ...]
    """The commits of pipelines, the newest first."""

    def last_commit_ms(self, pipeline: str) -> int | None:
        """Return the time of this pipeline's last commit; None if it is not among the newest."""
        return next((one.at_ms for one in self.commits if one.pipeline == pipeline), None)


class TableReader(Protocol):
    """The current state of one table."""

    def facts(self) -> TableFacts:
        """Return the size and the age of the table."""

    def rows(
        self, columns: Sequence[str], *, equal: Mapping[str, str | int], limit: int
    ) -> pa.Table:
        """Return rows whose columns have these values, in no order; at most `limit`."""

    def close(self) -> None:
        """Close all resources."""


def open_reader(settings: TableSettings, name: str) -> TableReader:
    """Open a reader of the table of this name; raise `TableMissingError` if it is missing."""
    # Raises for a missing table, or a missing library of its format.
    open_table(settings, name, is_read_only=True).close()
    module = import_module(f"penstock.spark.tables.formats.{settings.format.value}.reading")
    if settings.format is TableFormat.DELTA:
        location = delta_location(settings, name)
        return _typed(module.DeltaReader(location, storage_options(settings)))
    return _typed(module.IcebergReader(dict(settings.catalog), name))


def _typed(reader: TableReader) -> TableReader:
    return reader
