"""The files, the states and the retention of a table, as plain values (pure).

The port `Table` returns them; each format reads them in its own way.
"""

from dataclasses import dataclass

Partition = tuple[tuple[str, str | None], ...]
"""Names and values of one partition of a table, as text; empty without partitions."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of the table's current state."""

    path: str
    """The path in the table's metadata."""
    row_count: int
    """The number of rows, without deleted ones."""
    size_bytes: int
    partition: Partition = ()
    """Equal for all files of one partition."""
    deleted_count: int = 0
    """The number of rows in the file that are deleted, and that readers leave out."""


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """The readable states of a table."""

    count: int
    """The number of snapshots, or of log entries."""
    oldest_ms: int | None
    """The commit time of the oldest state; None if there is none."""


CREATED_KEY = "penstock.created"
"""The property of Iceberg tables that Penstock has created."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention that the owner of a table has set."""

    is_own: bool
    """Whether Penstock created the table."""
    age_ms_min: int = 0
    """The minimum age of expired snapshots, by the table's own properties; 0: not set."""
    count_min: int = 0
    """The number of newest snapshots that are always kept."""
    file_age_ms_min: int = 0
    """The minimum age before files that were removed from the table are deleted."""
