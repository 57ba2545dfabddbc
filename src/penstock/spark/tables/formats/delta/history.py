"""Our commits in the log of a Delta table (pure).

Each commit of ours has its note in its log entry. Entries are deleted eventually, so the newest
notes of all pipelines are also copied to the table's properties, with the version of the copy. The
copy counts, and the entries after it.

A `RESTORE` sets the table back to an older version and is itself an entry: the notes between that
version and the `RESTORE` are no longer valid. A `RESTORE` by time does not name the version:
`delta.restore` finds it, only if a note depends on it. If required entries are missing, an error is
raised: the content of a table is never guessed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.spark.errors import SparkQueryError
from penstock.spark.tables.commit.decisions import newest_note
from penstock.spark.tables.commit.note import CommitNote

NOTE_KEY: Final = "penstock.note"
"""The key of the note in the log entries of our commits."""
KEPT_PREFIX: Final = "penstock.note."
"""The prefix of a table's property with a copy of a pipeline's newest note; the name follows."""
KEPT_AT_KEY: Final = "penstock.notes-at-version"
"""The table's property with the version of the copies."""


class HistoryError(SparkQueryError):
    """Required parts of the table's log are missing."""


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A time with the precision of its text: without a zone, it covers many hours."""

    earliest_ms: float
    latest_ms: float
    text: str
    """The original text, for messages."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One version of a table, with the fields for notes."""

    version: int
    note: CommitNote | None = None
    restored_version: int | None = None
    """The version that a RESTORE restored, if it is known."""
    restored_to: TimeSpan | None = None
    """The time of a RESTORE that does not name the version."""


def must_read_on(entries: Iterable[LogEntry], kept_at: int) -> bool:
    """Return whether entries from before the copy are needed too."""
    return any(
        one.restored_version is not None and one.restored_version < kept_at for one in entries
    )


def restore_to_find(entries: Iterable[LogEntry], kept: Mapping[str, CommitNote]) -> LogEntry | None:
    """Return the newest RESTORE of unknown version on which a note depends."""
    entries = list(entries)
    wanted = {*kept, *(one.note.pipeline for one in entries if one.note is not None)}
    ceiling: int | None = None
    for entry in entries:
        if not wanted:
            return None
        if ceiling is not None and entry.version > ceiling:
            continue
        if entry.restored_version is not None:
            ceiling = entry.restored_version
        elif entry.restored_to is not None:
            return entry
        if entry.note is not None:
            wanted.discard(entry.note.pipeline)
    return None


def notes_of(
    entries: Iterable[LogEntry], kept: Mapping[str, CommitNote], kept_at: int
) -> dict[str, CommitNote]:
    """Return the valid note of each pipeline. `entries` are the newest ones, the newest first."""
    found: dict[str, CommitNote] = {}
    highest = dict(kept)
    ceiling: int | None = None
    oldest: int | None = None
    for entry in entries:
        oldest = entry.version
        note = entry.note
        is_void = ceiling is not None and entry.version > ceiling
        if entry.restored_version is not None and not is_void:
            ceiling = entry.restored_version
        if note is None:
            continue
        if note.pipeline not in highest or note.sequence > highest[note.pipeline].sequence:
            highest[note.pipeline] = note
        if not is_void:
            found.setdefault(note.pipeline, note)
    is_restored = ceiling is not None and ceiling < kept_at
    is_complete = oldest is None or oldest <= (0 if is_restored else kept_at + 1)
    if not is_complete and set(highest) - set(found):
        raise HistoryError(
            f"the log of the table begins at version {oldest}, but Penstock needs notes from older "
            "versions: another program cleaned the log up although "
            "delta.enableExpiredLogCleanup is false, or restored the table to a version from "
            "before that. RESTORE it to a newer version, or name another table and the offsets "
            "at which the pipeline should continue there."
        )
    notes = {}
    for name, last in highest.items():
        # The copy is part of the history unless the table was restored to before it.
        in_history = found.get(name) or (None if is_restored else kept.get(name))
        note = newest_note(in_history, last, is_whole=True)
        if note is not None:
            notes[name] = note
    return notes
