"""Maintains a pipeline's tables immediately, on the user's request.

Guarantees: it does not become the owner of the tables, so a running pipeline continues. Both commit
on condition that the table has not changed since; the second committer is rejected, and this module
reports its own conflict as a problem. It needs no Spark session.
"""

from contextlib import suppress
from uuid import uuid4

from penstock.core.clock import Clock, SystemClock
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.formats.opening import TableMissingError, open_table
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.run.events import MaintenanceDone
from penstock.spark.tables.run.maintenance import TableMaintenance


def maintain_now(
    definition: PipelineDefinition, *, clock: Clock | None = None
) -> tuple[tuple[str, MaintenanceDone], ...]:
    """Maintain the table and that of bad records, if there is one; return results by name."""
    settings = definition.table
    used_clock = clock or SystemClock()
    done = [(settings.name, _maintain(definition, settings.name, used_clock))]
    with suppress(TableMissingError):  # no pipeline has created it yet
        done.append((settings.dlq_name, _maintain(definition, settings.dlq_name, used_clock)))
    return tuple(done)


def _maintain(definition: PipelineDefinition, name: str, clock: Clock) -> MaintenanceDone:
    table = open_table(definition.table, name)
    try:
        committer = TableCommitter(table, definition.pipeline.name, uuid4().hex)
        return TableMaintenance(committer, definition.maintenance, clock).maintain_now()
    finally:
        table.close()
