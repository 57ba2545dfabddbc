"""Checks before a restart that no other driver has acquired the table since the failure.

It is the early check, before a missing table would be created again. A driver that acquires the
table later is found when the restart itself acquires it (`commit.owned_tables`).
"""

from penstock.spark.tables.commit.decisions import Driver
from penstock.spark.tables.commit.owned_tables import replaced
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
        raise stop.error()
