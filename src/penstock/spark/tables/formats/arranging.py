"""Decides whether a pipeline may change the partitions and the sort order of its table (pure).

Guarantees: the definition changes only a table that Penstock created and that no other pipeline
writes to: two definitions would otherwise change it back and forth. A backfill belongs to its
pipeline. A key that the definition does not mention changes nothing.
"""

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from penstock.spark.errors import OptionError
from penstock.spark.tables.commit.decisions import TableState
from penstock.spark.tables.commit.pipeline_names import pipeline_of
from penstock.spark.tables.definition.model import TableSettings
from penstock.spark.tables.files.file_order import require_sortable
from penstock.spark.tables.files.file_partitions import require_partitionable
from penstock.spark.tables.formats.opening import partition_fields, sort_fields
from penstock.spark.tables.formats.port import Arrangement, PartitionsDifferError, Table


def needed_arrangement(
    settings: TableSettings, pipeline: str, table: Table, state: TableState
) -> Arrangement | None:
    """Return the arrangement that the table has to get; None if it has it.

    Raises `PartitionsDifferError` if this pipeline may not change the table, and `OptionError` if
    the table's rows have no place in these partitions.
    """
    held = table.arrangement()
    if held is None:
        return None
    wanted = held
    if not settings.keeps_partitions:
        wanted = replace(wanted, partitions=partition_fields(settings, settings.name))
    if not settings.keeps_sort:
        wanted = replace(wanted, sort=sort_fields(settings, settings.name))
    if set(wanted.partitions) == set(held.partitions) and wanted.sort == held.sort:
        return None
    others = sorted({pipeline_of(name) for name in state.live} - {pipeline_of(pipeline)})
    reason = ""
    if not table.retention().is_own:
        reason = "another program created it"
    elif others:
        reason = f"other pipelines write to it, too ({', '.join(others)[:500]})"
    if reason:
        raise PartitionsDifferError(_refusal(settings.name, held, wanted, reason))
    _require_columns(table.schema(), wanted)
    table.require_arrangeable(wanted)
    return wanted


def _require_columns(schema: pa.Schema, wanted: Arrangement) -> None:
    try:
        require_partitionable(wanted.partitions, schema)
        require_sortable(wanted.sort, schema)
    except OptionError as error:
        remedy = (
            f"{error.remedy} If the schema adds the column now, start the pipeline once with the "
            f"old {error.option}: its first commit adds it."
        )
        raise OptionError(error.option, error.problem, remedy) from None


def _refusal(name: str, held: Arrangement, wanted: Arrangement, reason: str) -> str:
    return (
        f"table {name} is {_shown(held)}, and the definition says {_shown(wanted)}. A pipeline "
        f"does not change this table: {reason}. Remove table.partition_by and table.sort_by from "
        f"the definition, or change the table in Spark: ALTER TABLE {name} with ADD PARTITION "
        "FIELD, DROP PARTITION FIELD or WRITE ORDERED BY."
    )


def _shown(one: Arrangement) -> str:
    return f"partitioned by {_listed(one.partitions)} and sorted by {_listed(one.sort)}"


def _listed(fields: Iterable[object]) -> str:
    return ", ".join(map(str, fields)) or "nothing"
