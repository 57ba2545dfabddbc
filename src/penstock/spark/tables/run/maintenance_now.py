"""Maintains a pipeline's tables at once, for a user who does not want to wait for it.

Guarantees: it does not become the owner of the tables, so a running pipeline continues. Both commit
on condition that nothing was committed since; the second committer gives way, and for this one the
conflict is reported as its problem. It needs no Spark session.
"""

from contextlib import suppress
from uuid import uuid4

from penstock.core.clock import Clock, SystemClock
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.formats.opening import TableMissingError, open_table
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.run.events import CareDone
from penstock.spark.tables.run.maintenance import Caretaker


def care_now(
    definition: PipelineDefinition, *, clock: Clock | None = None
) -> tuple[tuple[str, CareDone], ...]:
    """Maintain the table and that of bad records, if there is one; return results by name."""
    settings = definition.table
    used_clock = clock or SystemClock()
    done = [(settings.name, _care(definition, settings.name, used_clock))]
    with suppress(TableMissingError):  # no pipeline has created one yet
        done.append((settings.dlq_name, _care(definition, settings.dlq_name, used_clock)))
    return tuple(done)


def _care(definition: PipelineDefinition, name: str, clock: Clock) -> CareDone:
    table = open_table(definition.table, name)
    try:
        committer = TableCommitter(table, definition.pipeline.name, uuid4().hex)
        return Caretaker(committer, definition.maintenance, clock).care_now()
    finally:
        table.close()
