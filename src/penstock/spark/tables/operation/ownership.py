"""Checks before a restart that no other driver has acquired the table since the failure.

A start acquires the table, and so stops the driver that owned it. That is right for a start by a
user, and wrong for a restart: the user may have started the pipeline elsewhere meanwhile, or
skipped offsets, or let the table forget the pipeline.
"""

from penstock.spark.tables.commit import stops
from penstock.spark.tables.commit.decisions import NOBODY, Driver, TableState
from penstock.spark.tables.commit.note import NoteKind
from penstock.spark.tables.commit.stops import CommitStoppedError, Stop
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.formats.opening import open_table


def require_still_owner(definition: PipelineDefinition, driver: Driver) -> None:
    """Raise `CommitStoppedError` if another driver owns the table of rows now."""
    table = open_table(definition.table, definition.table.name, is_read_only=True)
    try:
        stop = replaced(table.load(), driver)
    finally:
        table.close()
    if stop is not None:
        raise CommitStoppedError(stop.reason, stop.text)


def replaced(state: TableState, driver: Driver) -> Stop | None:
    """Return the stop if the table's owner is not this driver any more."""
    note = state.notes.get(driver.pipeline)
    if note is None:
        return stops.went_back(driver.pipeline, driver.epoch, 0)
    if note.kind is NoteKind.FORGET:
        return stops.forgotten(driver.pipeline)
    if note.run == NOBODY:
        return stops.rolled_back(driver.pipeline)
    if note.run != driver.run:
        return stops.fenced(driver.pipeline, driver.epoch, note.epoch, note.run)
    return None
