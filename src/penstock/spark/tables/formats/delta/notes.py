"""Reads the notes of our commits from the log of a Delta table, and caches them.

Guarantees: `read` returns the valid note of each pipeline at the version of the handle. It reads
only the entries since the last read, or since the copy in the table's properties was written,
unless a `RESTORE` restored an earlier version. `delta.history` interprets the entries.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from deltalake import CommitProperties, DeltaTable, Transaction

from penstock.spark.tables.commit.note import CommitNote, read_note, write_note
from penstock.spark.tables.formats.delta.history import (
    KEPT_AT_KEY,
    KEPT_PREFIX,
    NOTE_KEY,
    LogEntry,
    must_read_on,
    notes_of,
    restore_to_find,
)
from penstock.spark.tables.formats.delta.log import COMMITTED_AT_KEY, history_of, versions_before
from penstock.spark.tables.formats.delta.restore import find_version, log_entry

_HISTORY_ATTEMPTS_MAX: Final = 10


def note_properties(note: CommitNote, now_ms: int) -> CommitProperties:
    """Return the properties of an entry with this note; the entry is tried once."""
    return CommitProperties(
        custom_metadata={NOTE_KEY: write_note(note), COMMITTED_AT_KEY: str(now_ms)},
        max_commit_retries=0,
        app_transactions=[Transaction(application_of(note), note.sequence)],
    )


def application_of(note: CommitNote) -> str:
    """Return Delta's name for the pipeline of this note."""
    return f"penstock.{note.pipeline}"


class DeltaNotes:
    """The cached notes of one table."""

    def __init__(self, open_version: Callable[[int], DeltaTable]) -> None:
        self._open_version = open_version
        self._notes: dict[str, CommitNote] = {}
        self._version = -1
        self._restores: dict[int, int] = {}
        """The version that each RESTORE by time restored, by the RESTORE's own version."""

    def know(self, notes: Mapping[str, CommitNote], version: int) -> None:
        """Cache the notes after a commit of ours."""
        self._notes, self._version = dict(notes), version

    def read(self, table: DeltaTable) -> dict[str, CommitNote]:
        """Return the newest note of each pipeline, at the version of this handle."""
        version = table.version()
        if version != self._version:
            self._notes = self._read(table, version)
            self._version = version
        return dict(self._notes)

    def _read(self, table: DeltaTable, version: int) -> dict[str, CommitNote]:
        properties = table.metadata().configuration
        kept_at = int(properties.get(KEPT_AT_KEY, -1))
        kept = {
            name.removeprefix(KEPT_PREFIX): read_note(text)
            for name, text in properties.items()
            if name.startswith(KEPT_PREFIX)
        }
        bases = [(kept, kept_at)]
        if self._version >= kept_at:
            bases.insert(0, (self._notes, self._version))  # as good as the copy, and newer
        for base, base_version in bases:
            entries = self._with_restores(_entries(table, version - base_version), base)
            if not must_read_on(entries, base_version):
                return notes_of(entries, base, base_version)
        return notes_of(self._with_restores(_entries(table, None), kept), kept, kept_at)

    def _with_restores(
        self, entries: Sequence[LogEntry], kept: Mapping[str, CommitNote]
    ) -> list[LogEntry]:
        """Return the entries with the versions that RESTOREs by time restored, if needed."""
        known = list(entries)
        while (restore := restore_to_find(known, kept)) is not None:
            if restore.version not in self._restores:
                before = versions_before(restore.version, self._open_version)
                self._restores[restore.version] = find_version(restore, before)
            found = replace(restore, restored_version=self._restores[restore.version])
            known[known.index(restore)] = found
        return known


def _entries(table: DeltaTable, count: int | None) -> list[LogEntry]:
    """Return the newest entries of the version that was read, the newest first."""
    version = table.version()
    if count == 0:
        return []
    limit = count
    for _ in range(_HISTORY_ATTEMPTS_MAX):
        found = [log_entry(one) for one in history_of(table, limit)]
        newer = found[0].version - version if found else 0
        if limit is None or newer <= limit - (count or 0):
            break
        limit += newer  # another writer has committed, so the wanted entries are further back
    return [one for one in found if one.version <= version]
