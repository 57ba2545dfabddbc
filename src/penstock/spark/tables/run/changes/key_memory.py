"""Adds the deleted keys to a sequenced commit: reads the files of the notes, writes the next one.

Guarantees: the result depends on the changes and on the table's state of the commit alone. The file
is stored before the commit that names it. The files of the last commit stay in memory, by
their names: files are never changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from penstock.core.clock import Clock, SystemClock
from penstock.spark.tables.commit.decisions import Commit
from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.files.deleted_keys import (
    deleted_keys_folder,
    read_keys,
    remembered_after,
    remove_unreferenced,
    together,
    write_keys,
)
from penstock.spark.tables.files.upsert import Changes
from penstock.spark.tables.formats.change_files import ReducedChanges
from penstock.spark.tables.values.cdc.sequence import SEQUENCE

CLEANED_EVERY: Final = 100
"""The number of written files between two searches for unreferenced ones."""


class KeyMemory:
    """The deleted keys of one table."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._known: dict[str, pa.Table] = {}
        self._written = 0

    def remembering(self, commit: Commit, changes: Changes) -> tuple[Commit, Changes]:
        """Return the commit and the changes with the deleted keys."""
        if not changes.is_sequenced or not changes.receipts:
            return commit, changes
        folder = deleted_keys_folder(changes.directory)
        notes = commit.after.notes.values()
        names = sorted({one.deleted_keys for one in notes if one.deleted_keys is not None})
        self._known = {name: self._read(folder, name) for name in names}
        _require_same_key(self._known, changes.key)
        held = together((self._known[name] for name in names), changes.key)
        changes = replace(changes, deleted_keys=held)
        reduced = ReducedChanges(changes)
        if not reduced.count:
            return commit, changes
        after = remembered_after(held, reduced.last(), changes.key)
        if _is_same(held, after) or (held is None and not after.num_rows):
            return commit, changes
        name = write_keys(folder, after)
        self._known[name] = after
        self._written += 1
        if self._written % CLEANED_EVERY == 0:
            remove_unreferenced(folder, {*names, name}, self._clock.now_ms())
        return replace(commit, note=replace(commit.note, deleted_keys=name)), changes

    def _read(self, folder: str, name: str) -> pa.Table:
        known = self._known.get(name)
        return read_keys(folder, name) if known is None else known


def _is_same(held: pa.Table | None, after: pa.Table) -> bool:
    """Return whether nothing was added: a deletion always has another order than those held."""
    if held is None or held.num_rows != after.num_rows:
        return False
    order = [(name, "ascending") for name in held.schema.names]
    return bool(held.sort_by(order).equals(after.cast(held.schema).sort_by(order)))


def _require_same_key(known: Mapping[str, pa.Table], key: Sequence[str]) -> None:
    """Raise if remembered deletions have another key than the definition."""
    for keys in known.values():
        names = [name for name in keys.schema.names if name != SEQUENCE]
        if set(names) != set(key):
            raise SchemaError(
                "table.key",
                f"the table remembers deletions by {', '.join(names)}, not by {', '.join(key)}.",
                "Restore the key, or let the table forget the pipeline (penstock table forget) and "
                "start it under a new name, if no older change can arrive.",
            )
