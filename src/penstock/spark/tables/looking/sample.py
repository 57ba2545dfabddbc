"""A sample of records, turned into rows as the pipeline would do it (no IO).

Guarantees: the same parser, the same rules and the same order as in a task, so what is a reject
here is one there. With a schema that has to be inferred, it is inferred from this very sample.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.spark.tables.columns import table_schema, with_metadata
from penstock.spark.tables.definition import (
    PipelineDefinition,
    TableFormat,
    TableSettings,
    Transform,
)
from penstock.spark.tables.expectation_sql import ExpectationEvaluator
from penstock.spark.tables.values.limits import empty_rejects, with_shown_timestamps
from penstock.spark.tables.values.parser import Reject, ValueParser, rejecting


@dataclass(frozen=True, slots=True)
class RejectSeen:
    """One record of the sample that would not be in the table."""

    topic: str
    partition: int
    offset: int
    error_class: str
    message: str


@dataclass(frozen=True, slots=True)
class Sample:
    """What became of a few records."""

    record_count: int
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    """Python's values, in the order of the columns."""
    rejects: tuple[RejectSeen, ...] = ()
    broken: Mapping[str, int] = field(default_factory=dict)
    """By the name of each rule that was asked, how many rows break it."""


def parse_sample(
    records: pa.Table, parser: ValueParser, definition: PipelineDefinition, *, asks_rules: bool
) -> Sample:
    """Parse records that have the columns of the source."""
    batch = records.combine_chunks().to_batches(max_chunksize=None)
    if not batch:
        columns = table_schema(parser.schema, has_metadata=definition.table.has_metadata_columns)
        return Sample(0, tuple(columns.names), ())
    (source,) = batch
    parsed = parser.parse(source.column("value"))
    if asks_rules:  # else a function may still change them
        parsed = rejecting(parsed, empty_rejects(parsed.rows, _filled(definition.table)))
    if definition.table.has_metadata_columns:
        parsed = with_shown_timestamps(parsed, source)
    rejects = [_seen(source, one.row, one) for one in parsed.rejects]
    taken = source if parsed.row_numbers is None else source.take(parsed.row_numbers)
    rows = with_metadata(parsed.rows, taken)
    broken: Mapping[str, int] = {}
    if asks_rules and definition.expectations:
        outcome = ExpectationEvaluator(definition.expectations).evaluate(rows)
        broken = outcome.broken
        rejects += [_seen(taken, one.row, one) for one in outcome.quarantined]
        rows = rows if outcome.kept is None else rows.take(outcome.kept)
    if not definition.table.has_metadata_columns:
        rows = rows.select(parsed.rows.schema.names)
    return Sample(
        source.num_rows,
        tuple(rows.schema.names),
        tuple(zip(*(column.to_pylist() for column in rows.columns), strict=True)),
        tuple(sorted(rejects, key=lambda one: (one.topic, one.partition, one.offset))),
        broken,
    )


def _filled(table: TableSettings) -> list[str]:
    """Columns in which the table cannot hold an empty text."""
    if table.format is not TableFormat.DELTA:
        return []
    plain = Transform.IDENTITY
    return [one.column for one in table.partition_by if one.transform is plain]


def _seen(source: pa.RecordBatch, row: int, reject: Reject) -> RejectSeen:
    at: Sequence[object] = [
        source.column(name)[row].as_py() for name in ("topic", "partition", "offset")
    ]
    topic, partition, offset = at
    assert isinstance(topic, str)
    assert isinstance(partition, int)
    assert isinstance(offset, int)
    return RejectSeen(topic, partition, offset, reject.error.value, reject.message)
