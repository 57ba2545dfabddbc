"""The requirements of a pipeline, each with its error message.

Guarantees: no Spark, nothing permanent is written, and no call is retried for longer than a user
waits. `check` checks everything and reports all problems; `preflight` runs before Spark is started,
and reports the first problem. Both have the same messages, because both use this module.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from penstock.spark.errors import OptionError
from penstock.spark.offsets import NO_EPOCH
from penstock.spark.tables.commit.decisions import Driver, Offer, TableState, decide, take_over
from penstock.spark.tables.commit.note import (
    BatchRanges,
    CommitNote,
    PartitionRange,
    StateNote,
)
from penstock.spark.tables.commit.stateful_rules import decide_stateful
from penstock.spark.tables.commit.stops import Stop
from penstock.spark.tables.definition.errors import (
    SchemaError,
    UnusableError,
    as_written,
)
from penstock.spark.tables.definition.locations import local_path
from penstock.spark.tables.definition.model import (
    PipelineDefinition,
    SchemaSource,
    StartingOffsets,
    WriteMode,
)
from penstock.spark.tables.files.file_order import require_sortable
from penstock.spark.tables.files.file_partitions import require_partitionable
from penstock.spark.tables.files.upsert import require_key
from penstock.spark.tables.formats.opening import partition_fields, sort_fields
from penstock.spark.tables.formats.port import Table
from penstock.spark.tables.inspection.topics import TopicsSeen
from penstock.spark.tables.run.plans import require_change
from penstock.spark.tables.values.columns import table_schema
from penstock.spark.tables.values.schema_changes import Change, all_nullable


def table_columns(definition: PipelineDefinition, values: pa.Schema) -> pa.Schema:
    """Return the columns of the table that such values need."""
    if definition.value.schema_source is SchemaSource.REGISTRY:
        values = all_nullable(values)  # the next schema may lack a column
    return table_schema(values, definition.table.metadata)


def require_columns(
    definition: PipelineDefinition, columns: pa.Schema, grown: pa.Schema | None = None
) -> None:
    """Require the columns of key and partitions; `grown` has those of an existing table."""
    settings = definition.table
    try:
        require_partitionable(partition_fields(settings, settings.name), columns)
        require_sortable(sort_fields(settings, settings.name), columns)
        if settings.mode is WriteMode.UPSERT:
            require_key(settings.key, columns if grown is None else grown)
    except OptionError as error:
        raise as_written(error, "") from None


def require_fitting(table: Table, name: str, columns: pa.Schema) -> Change:
    """Return the change that an existing table needs for these columns."""
    try:
        return require_change(table.schema(), columns, may_widen=table.may_widen)
    except SchemaError as error:
        raise SchemaError(f"table '{name}'", error.problem, error.remedy) from None


def require_free_offsets(
    definition: PipelineDefinition, state: TableState, seen: TopicsSeen
) -> None:
    """Raise if the commits of the next run would be stopped."""
    name = definition.pipeline.name
    is_latest = definition.source.starting_offsets is StartingOffsets.LATEST
    firsts = {one.at: one.end_offset if is_latest else one.begin_offset for one in seen.partitions}
    starting = [PartitionRange(*at, first, first, NO_EPOCH) for at, first in firsts.items()]
    ids, cluster_id = seen.topic_ids, seen.cluster_id
    taken = take_over(state, name, "", BatchRanges(tuple(starting), ids, cluster_id))
    if isinstance(taken, Stop):
        raise taken.error()
    held = taken.note.held
    coming = tuple(
        PartitionRange(
            *one.at,
            held[one.at].end_offset,
            max(one.end_offset, held[one.at].end_offset + 1),
            NO_EPOCH,
        )
        for one in seen.partitions
    )
    driver = Driver(name, "", taken.note.epoch)
    offer = Offer(driver, BatchRanges(coming, ids, cluster_id))
    rule = decide
    if definition.state is not None:
        offer, rule = replace(offer, state=_next_batch(taken.note)), decide_stateful
    decision = rule(TableState({**state.notes, name: taken.note}, state.version), offer)
    if isinstance(decision, Stop):
        raise decision.error()


def _next_batch(note: CommitNote) -> StateNote:
    """Return the place of the next batch of the same checkpoint."""
    if note.state is None:
        return StateNote("", 0, 0, 0)
    return note.state._replace(batch=note.state.batch + 1)


def require_writable(key: str, place: str) -> bool | None:
    """Require a writable folder; return whether it exists, None if it is remote."""
    path = local_path(place)
    if path is None:
        return None
    folder = wanted = Path(path)
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UnusableError(
            "",
            key,
            f"nothing can be written in {folder}: {error.strerror}.",
            "Let the user who runs the pipeline write there, or correct it.",
        ) from None
    return folder == wanted
