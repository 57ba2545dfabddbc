"""What a table says of its files, its states and how long it keeps them, as plain values (pure).

They come through the port `Table`; how they were found out is the format's business.
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
    """What the owner of a table says of its maintenance."""

    is_own: bool
    """Penstock has created the table."""
    age_ms_min: int = 0
    """Snapshots are kept this long, by the table's own properties; 0: they say nothing."""
    count_min: int = 0
    """The newest snapshots that are kept in any case."""
    file_age_ms_min: int = 0
    """Files that were taken out of the table are kept this long."""
