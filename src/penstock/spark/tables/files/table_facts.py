"""The files, the states and the retention of a table, as plain values (pure).

The port `Table` returns them; each format reads them in its own way.
"""

from dataclasses import dataclass

Partition = tuple[tuple[str, str | None], ...]
"""Names and values of one partition of a table, as text; empty when it has none."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of the table's current state."""

    path: str
    """As the table names it."""
    row_count: int
    size_bytes: int
    partition: Partition = ()
    """Files of one partition have the same."""


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """The states of a table that can still be read."""

    count: int
    """Snapshots, or entries of the log."""
    oldest_ms: int | None
    """When the oldest was committed; None when there is none."""


CREATED_KEY = "penstock.created"
"""The property of Iceberg tables that Penstock has created."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention that the owner of a table has set."""

    is_own: bool
    """Penstock has created the table."""
    age_ms_min: int = 0
    """Snapshots are kept this long, by the table's own properties; 0: not set."""
    count_min: int = 0
    """The newest snapshots that are kept in any case."""
    file_age_ms_min: int = 0
    """Files that were removed from the table are kept this long."""
