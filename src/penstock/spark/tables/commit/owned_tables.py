"""Whether another driver has acquired a table since a driver owned it (pure).

A start by a user acquires the table from any driver: only the user knows that the other one should
end. A restart inside the same command does not: the user may have started the pipeline elsewhere
meanwhile, or skipped offsets, or let the table forget the pipeline. So a command remembers which
tables its starts have acquired (`Owned`), even if a start failed before its query ran, and its next
start leaves a table that has another owner.

A start whose acquisition got no response counts as none, unless the table shows it.
"""

from dataclasses import dataclass, field

from penstock.spark.tables.commit import stops as commit_stops
from penstock.spark.tables.commit.decisions import NOBODY, Driver, TableState
from penstock.spark.tables.commit.note import NoteKind
from penstock.spark.tables.commit.stops import Stop


@dataclass(slots=True)
class OwnedTable:
    """The driver as which a command has acquired one table; None: it has not."""

    driver: Driver | None = None


@dataclass(frozen=True, slots=True)
class Owned:
    """What the starts of one command have acquired; all of them are one driver."""

    run: str
    """The unique name of the driver."""
    rows: OwnedTable = field(default_factory=OwnedTable)
    rejects: OwnedTable = field(default_factory=OwnedTable)


def acquired_since(state: TableState, driver: Driver) -> Stop | None:
    """Return the stop if another driver, or the user, acquired the table from this driver.

    A table without an owner, because it is new or was rolled back, may be acquired again.
    """
    note = state.notes.get(driver.pipeline)
    if note is None or note.run == driver.run:
        return None
    if note.kind is NoteKind.FORGET:
        return commit_stops.forgotten(driver.pipeline)
    if note.run == NOBODY:
        return None
    return commit_stops.fenced(driver.pipeline, driver.epoch, note.epoch, note.run)


def replaced(state: TableState, driver: Driver) -> Stop | None:
    """Return the stop if the table's owner is not this driver any more."""
    note = state.notes.get(driver.pipeline)
    if note is None:
        return commit_stops.went_back(driver.pipeline, driver.epoch, 0)
    if note.run == NOBODY and note.kind is not NoteKind.FORGET:
        return commit_stops.rolled_back(driver.pipeline)
    return acquired_since(state, driver)
