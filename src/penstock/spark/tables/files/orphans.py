"""Finds unreferenced files in a table's folders (pure).

A mistake here destroys data, so every deletion requires two checks. A file must be older than any
batch that may still commit it. And the table's file names must be among the names in the storage's
listing. If they are not, the two are spelled differently, every file would seem to be an orphan,
and nothing is deleted.

The folders are listed before the table is read: files committed in between are referenced by then.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from penstock.spark.errors import SparkQueryError

ORPHANS_MAX: Final = 10_000
"""The maximum number of deletions in one step, so that a batch does not wait for minutes; the next
cleanup continues."""
STORED_FILES_MAX: Final = 2_000_000
"""The maximum number of listed files: some hundred megabytes of names."""


class OrphansUnclearError(SparkQueryError):
    """Orphans cannot be identified; nothing was removed."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in the storage's listing."""

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
