"""`table_status`: the content of a table by pipeline, and its lag behind the topics.

Guarantees: the committed offsets are from the table's notes, the ends from the brokers. If no
broker responds, the lags are unknown and the rest is returned anyway. It reads no data file, except
the metadata for the count of bad records.
"""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field

from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition
from penstock.spark.tables.commit.note import CommitNote, LostRange, StateNote
from penstock.spark.tables.commit.pipeline_names import is_backfill, is_replay, pipeline_of
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.formats.opening import TableMissingError, open_table
from penstock.spark.tables.formats.reading import TableFacts, open_reader
from penstock.spark.tables.inspection.topics import TopicsLook
from penstock.spark.tables.values.empty_columns import emptied


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition of a pipeline."""

    at: TopicPartition
    begin_offset: int
    held_offset: int
    """The next offset that is not in the table."""
    end_offset: int | None
    """The end of the partition; None if it is unknown, or the partition is deleted."""
    lost_count: int = 0
    """Offsets before `held_offset` that were deleted from the topic and are not in the table."""

    @property
    def lag(self) -> int | None:
        """The number of offsets in the topic that are not in the table."""
        return None if self.end_offset is None else max(0, self.end_offset - self.held_offset)


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """The status of one pipeline in the table."""

    name: str
    epoch: int
    sequence: int
    """The number of its commits."""
    last_commit_ms: int | None
    rows: int
    """The rows of its last commit; the next two counts are also of that commit."""
    rejects: int
    expectations: Mapping[str, int]
    partitions: tuple[PartitionStatus, ...]
    losses: tuple[LostRange, ...] = ()
    """The newest losses."""
    unknown_fields: Mapping[str, int] = field(default_factory=dict)
    """In its last commit: fields without a column, and in how many of `looked_at` values each
    occurs."""
    looked_at: int = 0
    small_batches: int = 0
    """The number of its commits whose rows the driver wrote itself, without Spark's tasks."""
    emptied: Mapping[str, int] = field(default_factory=dict)
    """Columns that had values, and the number of rows since without a value."""
    state: StateNote | None = None
    """The batch, the watermark and the late records of a stateful pipeline."""

    @property
    def lost_count(self) -> int:
        """The number of lost offsets in all partitions."""
        return sum(one.lost_count for one in self.partitions)

    @property
    def owner(self) -> str:
        """The pipeline of a replay or a backfill; otherwise the pipeline itself."""
        return pipeline_of(self.name)

    @property
    def kind(self) -> str:
        """`pipeline`, `replay` or `backfill`."""
        if is_backfill(self.name):
            return "backfill"
        return "replay" if is_replay(self.name) else "pipeline"

    @property
    def lag(self) -> int | None:
        """The sum of the known lags; None if no lag is known."""
        known = [one.lag for one in self.partitions if one.lag is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The status of a table, read without running anything."""

    table: str
    format: str
    now_ms: int
    facts: TableFacts
    pipelines: tuple[PipelineStatus, ...]
    bad_record_count: int | None
    """Rows of the table of bad records; None if there is no such table yet."""
    newest_record_ms: int | None = None
    """The newest timestamp of a committed record."""
    problem: str = ""
    """The reason why the ends of the topics are unknown."""

    @property
    def freshness_ms(self) -> int | None:
        """The age of the newest record in the table."""
        newest = self.newest_record_ms
        return None if newest is None else max(0, self.now_ms - newest)


def table_status(
    definition: PipelineDefinition,
    *,
    clock: Clock | None = None,
    ends: Mapping[TopicPartition, int] | None = None,
) -> TableStatus:
    """Return the status of the table and topics; raise `TableMissingError` without a table.

    `ends` are the ends of the topics if they are known already.
    """
    settings = definition.table
    table = open_table(settings, settings.name, is_read_only=True)
    try:
        state = table.load()
    finally:
        table.close()
    reader = open_reader(settings, settings.name)
    try:
        facts = reader.facts()
    finally:
        reader.close()
    problem = ""
    if ends is None:
        ends, problem = _ends(definition)
    return TableStatus(
        settings.name,
        settings.format.value,
        (clock or SystemClock()).now_ms(),
        facts,
        tuple(
            _pipeline(note, facts, {} if is_backfill(name) else ends)
            for name, note in sorted(state.live.items())
        ),
        _bad_record_count(definition),
        max(
            (one.newest_ms for one in state.notes.values() if one.newest_ms is not None),
            default=None,
        ),
        problem,
    )


def _pipeline(
    note: CommitNote, facts: TableFacts, ends: Mapping[TopicPartition, int]
) -> PipelineStatus:
    return PipelineStatus(
        note.pipeline,
        note.epoch,
        note.sequence,
        facts.last_commit_ms(note.pipeline),
        note.counts.rows,
        note.counts.rejects,
        dict(note.counts.expectations),
        tuple(
            PartitionStatus(at, one.begin_offset, one.end_offset, ends.get(at), one.lost_count)
            for at, one in sorted(note.held.items())
        ),
        note.losses,
        dict(note.counts.unknown_fields),
        note.counts.looked_at,
        note.small_batches,
        emptied(note.empty_columns),
        note.state,
    )


def _ends(definition: PipelineDefinition) -> tuple[dict[TopicPartition, int], str]:
    try:
        with closing(TopicsLook(definition)) as look:
            return {one.at: one.end_offset for one in look.seen().partitions}, ""
    except PenstockError as error:
        return {}, str(error)


def _bad_record_count(definition: PipelineDefinition) -> int | None:
    try:
        reader = open_reader(definition.table, definition.table.dlq_name)
    except TableMissingError:
        return None
    try:
        return reader.facts().row_count
    finally:
        reader.close()
