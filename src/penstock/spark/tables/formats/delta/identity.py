"""Checks whether a Delta table is still the one that was read.

A Delta table is a folder. An owner can delete it and create another table there while a pipeline
runs. The log of that table has entries of the same numbers, so a commit that is conditional on a
number would be accepted, with a note about missing rows.

Guarantees: `current` raises `TableReplacedError` if the folder has another table than the handle,
or none. It checks the entry of the version that was read last, whose size and time never change.
When they differ, or when the entry is missing because the log was cut or copied, the table is
reopened and its id decides.

A replacement of the table between this check and the commit is not detected.
"""

from collections.abc import Callable

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from penstock.spark.tables.formats.delta.log import DeltaLog, EntryStamp
from penstock.spark.tables.formats.port import TableReplacedError


class SameTable:
    """The known identity of one table."""

    def __init__(self, uri: str, open_newest: Callable[[], DeltaTable]) -> None:
        self._uri = uri
        self._open_newest = open_newest
        self._version = -1
        self._stamp: EntryStamp | None = None

    def remember(self, table: DeltaTable) -> None:
        """Record the version up to which the handle has read this table."""
        if table.version() != self._version:
            self._version = table.version()
            self._stamp = DeltaLog(table).stamp(self._version)

    def current(self, table: DeltaTable) -> DeltaTable:
        """Return this handle, or a new one if its part of the log is missing or was copied."""
        if self._stamp is not None and DeltaLog(table).stamp(self._version) == self._stamp:
            return table
        try:
            found = self._open_newest()
        except TableNotFoundError as error:
            raise TableReplacedError(self._uri) from error
        if found.metadata().id != table.metadata().id:
            raise TableReplacedError(self._uri)
        self._version, self._stamp = -1, None
        return found
