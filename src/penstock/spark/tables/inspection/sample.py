"""Converts a sample of records to rows, as the pipeline does (no IO).

Guarantees: the parser, the rules and the order are those of a task, so a reject here is also a
reject in a task. If the schema is inferred, it is inferred from this sample.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.tables.definition.model import (
    Metadata,
    PipelineDefinition,
    TableFormat,
    TableSettings,
    WriteMode,
)
from penstock.spark.tables.files.file_partitions import Transform
from penstock.spark.tables.files.partition_limits import PartitionLimits, partition_rejects
from penstock.spark.tables.formats.opening import partition_fields
from penstock.spark.tables.rules.sql import ExpectationEvaluator
from penstock.spark.tables.tasks.judging import with_whole_keys
from penstock.spark.tables.values.columns import table_schema, with_metadata
from penstock.spark.tables.values.keys import KeyParser
from penstock.spark.tables.values.limits import with_shown_timestamps
from penstock.spark.tables.values.parser import Reject, ValueParser, of_record, rejecting


@dataclass(frozen=True, slots=True)
class RejectSeen:
    """A record of the sample that would not be in the table."""

    topic: str
    partition: int
    offset: int
    error_class: str
    message: str


@dataclass(frozen=True, slots=True)
class Sample:
    """The rows and rejects of a few records."""

    record_count: int
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    """The values as Python objects, in the order of the columns."""
    rejects: tuple[RejectSeen, ...] = ()
    broken: Mapping[str, int] = field(default_factory=dict)
    """The number of rows that break each evaluated rule, by its name."""
    deletion_count: int = 0
    """For an upsert: the number of records without a value, which delete their row."""
    is_before_function: bool = False
    """Whether the rows are the input of the user's function, which has not run."""


def parse_sample(
    records: pa.Table,
    parser: ValueParser,
    definition: PipelineDefinition,
    *,
    asks_rules: bool,
    has_transform: bool = False,
) -> Sample:
    """Parse records that have the columns of the source."""
    settings = definition.table
    batch = records.combine_chunks().to_batches(max_chunksize=None)
    if not batch:
        columns = table_schema(parser.schema, settings.metadata)
        return Sample(0, tuple(columns.names), ())
    source, deletions = _split(batch[0], definition)
    parsed = parser.parse(source.column("value"))
    taken = source if parsed.row_numbers is None else source.take(parsed.row_numbers)
    # Add the metadata before keys are read: a metadata column may be part of the key.
    parsed = replace(parsed, rows=with_metadata(parsed.rows, taken, settings.metadata))
    if not has_transform:  # else the function may still change them
        key = [name for name in settings.key if name in parsed.rows.schema.names]
        parsed = with_whole_keys(parsed, key)
        parsed = rejecting(parsed, partition_rejects(parsed.rows, _limits(settings)))
    if settings.metadata is not Metadata.NONE:
        parsed = with_shown_timestamps(parsed, source)
    rows = parsed.rows
    rejects = [_seen(source, one.row, one) for one in parsed.rejects]
    rejects += _bad_deletions(deletions, definition, rows.schema)
    broken: Mapping[str, int] = {}
    if asks_rules and definition.expectations:
        outcome = ExpectationEvaluator(definition.expectations).evaluate(rows)
        broken = outcome.broken
        bad = (of_record(one, parsed) for one in outcome.quarantined)
        rejects += [_seen(source, one.row, one) for one in bad]
        rows = rows if outcome.kept is None else rows.take(outcome.kept)
    if settings.metadata is Metadata.NONE:
        rows = rows.select(parser.schema.names)
    return Sample(
        batch[0].num_rows,
        tuple(rows.schema.names),
        tuple(zip(*(column.to_pylist() for column in rows.columns), strict=True)),
        tuple(sorted(rejects, key=lambda one: (one.topic, one.partition, one.offset))),
        broken,
        deletions.num_rows,
        has_transform,
    )


def _split(
    source: pa.RecordBatch, definition: PipelineDefinition
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return records with a value, and records that delete the row of their key."""
    if definition.table.mode is not WriteMode.UPSERT:
        return source, source.slice(0, 0)
    is_deletion = source.column("value").is_null()
    return source.filter(pc.invert(is_deletion)), source.filter(is_deletion)


def _bad_deletions(
    deletions: pa.RecordBatch, definition: PipelineDefinition, columns: pa.Schema
) -> list[RejectSeen]:
    """Return deletions with an unreadable key; a key without a column is reported elsewhere."""
    key = definition.table.key
    if not deletions.num_rows or not set(key) <= set(columns.names):
        return []
    parser = KeyParser(pa.schema([columns.field(name) for name in key]))
    found = parser.parse(deletions.column("key")).rejects
    return [_seen(deletions, one.row, one) for one in found]


def _limits(table: TableSettings) -> PartitionLimits:
    """Return the columns that the partitions of the definition limit."""
    fields = partition_fields(table, table.name)
    if table.format is TableFormat.DELTA:
        plain = (one.column for one in fields if one.transform is Transform.IDENTITY)
        return PartitionLimits(filled=tuple(plain))
    return PartitionLimits(
        truncated=tuple(one for one in fields if one.transform is Transform.TRUNCATE)
    )


def _seen(source: pa.RecordBatch, row: int, reject: Reject) -> RejectSeen:
    at: Sequence[object] = [
        source.column(name)[row].as_py() for name in ("topic", "partition", "offset")
    ]
    topic, partition, offset = at
    assert isinstance(topic, str)
    assert isinstance(partition, int)
    assert isinstance(offset, int)
    return RejectSeen(topic, partition, offset, reject.error.value, reject.message)
