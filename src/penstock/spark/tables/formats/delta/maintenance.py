"""Maintenance of a Delta table: deletion of old log entries, and of their files.

Compaction is in `delta.compaction`.

This module cuts the log, not `deltalake`, whose cleanup uses the times of the storage and whole
hours. The first kept version gets a checkpoint, then the entries before it are deleted, the oldest
first, and then the files that these entries had removed from the table. A crash in between leaves
entries that the next cut removes, or files that are orphans.

A file that was removed, restored by a `RESTORE` and removed again is missing for readers of the
versions in between. Files of the current version are never deleted.
"""

from collections.abc import Callable, Mapping
from typing import Final
from uuid import uuid4

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties

from penstock.spark.tables.files.orphans import orphans_of
from penstock.spark.tables.files.table_facts import Retention, SnapshotFacts
from penstock.spark.tables.formats.delta.log import (
    COMMITTED_AT_KEY,
    DeltaLog,
    LogListing,
    live_names,
)
from penstock.spark.tables.formats.port import TableError

ENTRIES_MAX: Final = 5_000
"""The maximum number of entries deleted in one step: some seconds of work."""
MARK_KEY: Final = "penstock.compaction"
"""The table's property that every compaction changes."""
DESCRIPTION: Final = "Created by Penstock"
"""The description of a new table: `deltalake` accepts no property of ours when it creates one. A
table with another description counts as its owner's."""
LOG_KEY: Final = "delta.logRetentionDuration"
FILES_KEY: Final = "delta.deletedFileRetentionDuration"
_UNITS_MS: Final = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
KEEP_LOG: Final = PostCommitHookProperties(cleanup_expired_logs=False)


def plain_properties(now_ms: int) -> CommitProperties:
    """Return the properties of an entry without a batch: it is tried once."""
    return CommitProperties(custom_metadata={COMMITTED_AT_KEY: str(now_ms)}, max_commit_retries=0)


def mark(table: DeltaTable, now_ms: int) -> None:
    """Fail every `OPTIMIZE` of `deltalake` that has read the table before now, or raise."""
    table.alter.set_table_properties(
        {MARK_KEY: uuid4().hex},
        raise_if_not_exists=False,
        commit_properties=plain_properties(now_ms),
    )


def retention_of(properties: Mapping[str, str], description: str | None) -> Retention:
    """Return the retention in the table's properties; unset ones are ignored.

    Files that only old entries reference are deleted with these entries. So the log is kept at
    least as long as files that were removed from the table.
    """
    log_ms, file_ms = (interval_ms(properties.get(key)) for key in (LOG_KEY, FILES_KEY))
    return Retention(description == DESCRIPTION, max(log_ms, file_ms), file_age_ms_min=file_ms)


def interval_ms(text: str | None) -> int:
    """Return a duration in Delta's form, `interval 30 days`; 0 if it is not set."""
    if text is None:
        return 0
    words = text.strip().lower().removeprefix("interval").split()
    pairs = list(zip(words[::2], words[1::2], strict=False))
    units = [_UNITS_MS.get(unit.removesuffix("s")) for _, unit in pairs]
    if not pairs or len(words) % 2 or None in units or not all(n.isdecimal() for n, _ in pairs):
        raise TableError(
            f"the table keeps its log or its files for {text[:100]!r}, which cannot be read, so "
            "nothing is expired. Write a duration such as 'interval 30 days'."
        )
    return sum(int(n) * unit for (n, _), unit in zip(pairs, units, strict=True) if unit is not None)


def snapshot_facts(table: DeltaTable) -> SnapshotFacts:
    """Return the number of readable versions, and the time of the oldest."""
    log = DeltaLog(table)
    listing = log.listing()
    versions = [one for one in listing.entries if listing.oldest <= one <= table.version()]
    oldest_ms = log.entry(versions[0]).committed_at_ms if versions else None
    return SnapshotFacts(len(versions), oldest_ms)


def first_kept_version(table: DeltaTable, older_than_ms: int, keep_count: int) -> int | None:
    """Return the first version that is kept; None if no entry has to be deleted."""
    log = DeltaLog(table)
    versions = [one for one in log.listing().entries if one <= table.version()]
    first = None
    spare = len(versions) - max(1, keep_count)
    for index in range(max(0, min(spare, ENTRIES_MAX))):
        if log.entry(versions[index]).committed_at_ms >= older_than_ms:
            break
        first = versions[index + 1]
    return first


def cut(table: DeltaTable, at_version: DeltaTable) -> int:
    """Delete the entries before `at_version`, the first that is kept; return their number."""
    log = DeltaLog(table)
    first = at_version.version()
    at_version.create_checkpoint()
    table.create_checkpoint()  # readers begin with the newest, and the previous one is older
    listing = log.listing()
    # Files that the first kept entry removed are as young as this entry.
    is_kept = FILES_KEY in table.metadata().configuration
    taken_out = _taken_out(log, listing, first - 1 if is_kept else first)
    log.remove(name for version, name in listing.names if version < first)
    log.remove(sorted(taken_out - live_names(at_version) - live_names(table)))
    return sum(1 for version in listing.entries if version < first)


def _taken_out(log: DeltaLog, listing: LogListing, last: int) -> set[str]:
    """Return the files that entries up to this version have removed from the table."""
    gone: set[str] = set()
    for version in listing.entries:
        if version <= last:
            gone.update(log.entry(version).removed)
    return gone


def remove_orphans(
    table: DeltaTable, open_version: Callable[[int], DeltaTable], older_than_ms: int
) -> int:
    """Delete old files that no version references."""
    log = DeltaLog(table)
    live = live_names(table)
    stored = log.data_files()
    table.update_incremental()
    listing = log.listing()
    referred = live_names(table) | live_names(open_version(listing.oldest))
    for version in listing.entries:
        if version > listing.oldest:
            referred.update(log.entry(version).added)
    return log.remove(orphans_of(stored, referred, live, older_than_ms))
