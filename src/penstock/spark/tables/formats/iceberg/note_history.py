"""Finds the newest note of each pipeline in an Iceberg table's metadata (no IO).

Guarantees: a note is searched for among the ancestors of the current snapshot, and in the copy
among the table's properties. If both are cut after a rollback, the state is unknown and an error is
raised.
"""

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from penstock.spark.tables.commit.decisions import TableState, newest_note
from penstock.spark.tables.commit.note import CommitNote, NoteError, read_note
from penstock.spark.tables.formats.iceberg.note_keys import (
    KEPT_AT_PREFIX,
    KEPT_PREFIX,
    NO_SNAPSHOT,
    NOTE_KEY,
    PIPELINE_KEY,
)


def state_of(metadata: TableMetadata) -> TableState:
    """Return the notes and the current snapshot."""
    kept = {
        name.removeprefix(KEPT_PREFIX): read_note(text)
        for name, text in metadata.properties.items()
        if name.startswith(KEPT_PREFIX)
    }
    found, is_whole = _notes_in_history(metadata, frozenset(kept))
    current = metadata.current_snapshot()
    notes = {}
    for name in {*kept, *found}:
        if name not in found and not is_whole:
            _require_not_before(metadata, current, name)
        note = newest_note(found.get(name), kept.get(name), is_whole=is_whole)
        if note is not None:
            notes[name] = note
    return TableState(notes, NO_SNAPSHOT if current is None else current.snapshot_id)


def _notes_in_history(
    metadata: TableMetadata, wanted: frozenset[str]
) -> tuple[dict[str, CommitNote], bool]:
    """Return the newest note of each pipeline in the history; whether it is complete."""
    by_id = {one.snapshot_id: one for one in metadata.snapshots}
    found: dict[str, CommitNote] = {}
    at = metadata.current_snapshot_id
    while at is not None:
        snapshot = by_id.get(at)
        if snapshot is None:
            return found, False
        pipeline = snapshot.summary[PIPELINE_KEY] if snapshot.summary else None
        if pipeline is not None and pipeline not in found:
            assert snapshot.summary is not None
            found[pipeline] = read_note(str(snapshot.summary[NOTE_KEY]))
            if wanted and wanted <= found.keys():
                return found, False  # earlier snapshots are older
        at = snapshot.parent_snapshot_id
        if at is None:
            # An expiry by pyiceberg leaves the oldest snapshot without a parent, like the table's
            # first one: only the first has the first sequence number.
            return found, snapshot.sequence_number == 1
    return found, True


def _require_not_before(metadata: TableMetadata, current: Snapshot | None, pipeline: str) -> None:
    """Raise after a rollback to before a note if the history is cut: the state is unknown."""
    kept_at = int(metadata.properties.get(f"{KEPT_AT_PREFIX}{pipeline}", "0"))
    if current is None or (current.sequence_number or 0) < kept_at:
        raise NoteError(
            f"the table was rolled back to a snapshot from before the last commit of pipeline "
            f"'{pipeline}', and the snapshots that say what it held then have expired. Roll it "
            "forward again, or name another table and the offsets from which the pipeline "
            "shall go on there."
        )
