"""Finds unreferenced files in a table's folders (pure).

A mistake here destroys data, so two guards stand before every removal: a file has to be older than
any batch that may still commit it, and the names that the table uses must be found among the names
that the storage lists. When they are not found, the two are spelled differently, every file would
look like an orphan, and nothing is removed.

The folders are listed before the table is read: files committed in between are referenced by then.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from penstock.spark.errors import SparkQueryError

ORPHANS_MAX: Final = 10_000
"""Removed at once, so that a batch does not wait for minutes; the next cleaning continues."""
STORED_FILES_MAX: Final = 2_000_000
"""Listed at once: some hundred megabytes of names."""


class OrphansUnclearError(SparkQueryError):
    """Orphans cannot be identified; nothing was removed."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file, as the storage lists it."""

    name: str
    modified_ms: int


def orphans_of(
    stored: Collection[StoredFile],
    referred: Collection[str],
    live: Iterable[str],
    older_than_ms: int,
) -> list[str]:
    """Return the oldest orphans. `live`: files referenced before the folders were listed."""
    if len(stored) > STORED_FILES_MAX:
        raise OrphansUnclearError(
            f"the table's folders have {len(stored)} files, more than {STORED_FILES_MAX} that are "
            "looked through at once. Remove orphans with another tool, or keep snapshots shorter."
        )
    names = {one.name for one in stored}
    missing = next((one for one in live if one not in names), None)
    if missing is not None:
        raise OrphansUnclearError(
            f"file '{missing[:500]}' is part of the table and not in the listing of its folders: "
            "it was removed this moment, or the storage spells names in another way. No orphan was "
            "removed; it is tried again."
        )
    old = [one for one in stored if one.modified_ms < older_than_ms and one.name not in referred]
    old.sort(key=lambda one: one.modified_ms)
    return [one.name for one in old[:ORPHANS_MAX]]
