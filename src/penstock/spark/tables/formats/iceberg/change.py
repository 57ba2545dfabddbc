"""`Change`: a transaction of pyiceberg that caches its resulting metadata.

pyiceberg computes and copies all metadata each time that a transaction returns it: fifteen times
for one append. With the snapshots of some hours this was two thirds of the time of a commit. The
metadata is only read, so the cached metadata is valid until another update is staged.
"""

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableUpdate


class Change(Transaction):
    """The staged updates, and the metadata with them."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._known: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata after this change; it is read-only."""
        before, staged = self._table.metadata, self._updates
        if self._known is None or self._known[0] is not before or self._known[1] is not staged:
            self._known = (before, staged, super().table_metadata)
        return self._known[2]
