"""What somebody who looks at a table needs of it: the port `TableReader`, and who opens one.

It is the other side of `port`: nothing here commits, and nothing that is read here decides about a
commit. So a person may look while a pipeline runs, without being in its way.

Who implements it: `delta_reading` and `iceberg_reading`, each imported when a table of its format
is opened.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Final, Protocol

import pyarrow as pa

from penstock.spark.tables.definition import TableFormat, TableSettings
from penstock.spark.tables.opening import delta_location, open_table, storage_options

COMMITS_MAX: Final = 1_000
"""Newest commits that are looked at; the last one of a pipeline is among them, or long ago."""


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
    """States that can still be read; versions, in Delta."""
    oldest_snapshot_ms: int | None
    commits: tuple[CommitSeen, ...]
    """Of pipelines, the newest first."""

    def last_commit_ms(self, pipeline: str) -> int | None:
        """When this pipeline committed last; None when it is too long ago to be known."""
        return next((one.at_ms for one in self.commits if one.pipeline == pipeline), None)


class TableReader(Protocol):
    """One table, as it is now."""

    def facts(self) -> TableFacts:
        """Its size and its age."""

    def rows(
        self, columns: Sequence[str], *, equal: Mapping[str, str | int], limit: int
    ) -> pa.Table:
        """Rows whose columns have these values, in no order; at most so many."""

    def close(self) -> None:
        """Let go of what was opened."""


def open_reader(settings: TableSettings, name: str) -> TableReader:
    """A reader of the table of this name; `TableMissingError` when nobody has made it."""
    # Says what is missing: the table, or the library of its format.
    open_table(settings, name, is_read_only=True).close()
    module = import_module(f"penstock.spark.tables.{settings.format.value}_reading")
    if settings.format is TableFormat.DELTA:
        location = delta_location(settings, name)
        return _typed(module.DeltaReader(location, storage_options(settings)))
    return _typed(module.IcebergReader(dict(settings.catalog), name))


def _typed(reader: TableReader) -> TableReader:
    return reader
