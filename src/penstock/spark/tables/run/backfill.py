"""Writes records from before the first offset of a pipeline into its table.

Guarantees: the records of a backfill are in the table once, in addition to those of the pipeline;
it stops at the pipeline's start. Its name is derived from its start and its end, so that an
interrupted backfill continues when it is started again with the same arguments. The pipeline may
run at the same time. With `segments.url` among the options of the source, the tasks read leased
segments as files; offsets and commits are the same.
"""

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final
from uuid import uuid4

from pyspark.sql import SparkSession

from penstock.core.types import TopicPartition
from penstock.spark.errors import SparkQueryError
from penstock.spark.offsets import StreamOffset
from penstock.spark.source.options import Mode, read_source_options
from penstock.spark.source.segments import segments_of
from penstock.spark.source.task_reader import TaskSettings
from penstock.spark.tables.commit.decisions import TableState, held_by_others
from penstock.spark.tables.commit.note import BatchRanges, PartitionRange
from penstock.spark.tables.definition.model import PipelineDefinition, WriteMode
from penstock.spark.tables.definition.source_reading import read_resolved_options
from penstock.spark.tables.definition.source_references import checkable
from penstock.spark.tables.run.batches import BatchDriver, acquire_tables
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.run.dataframe_stage import Transform
from penstock.spark.tables.run.forgetting import absorb_backfill
from penstock.spark.tables.run.jobs import run_ranges
from penstock.spark.tables.run.preparing import Prepared, Reading, open_reading, prepare
from penstock.spark.tables.run.writing import BatchWriter, stage_for

PORTION_OFFSETS: Final = 2_000_000
"""The number of offsets in one commit, of all partitions together."""


class BackfillRefusedError(SparkQueryError):
    """There are no records for this backfill."""


@dataclass(frozen=True, slots=True)
class BackfillDone:
    """The result of a backfill."""

    pipeline: str
    """The backfill's name in the table's notes."""
    commits: int = 0
    records: int = 0
    rows: int = 0
    rejects: int = 0
    portions: int = 0
    """The total number of its commits."""
    is_absorbed: bool = False
    """Whether it ends at its pipeline's start, so that the pipeline now has its offsets."""


OnCommit = Callable[[BackfillDone], None]
"""A function that is called after each commit with the result so far."""


def backfill(
    definition: PipelineDefinition,
    spark: SparkSession,
    *,
    start: str,
    end: str,
    transform: Transform | None = None,
    portion_offsets: int = PORTION_OFFSETS,
    on_commit: OnCommit = lambda _done: None,
) -> BackfillDone:
    """Write the records in a range: `earliest`, `latest`, a time in ms, or offsets as JSON."""
    require_possible(definition, start, end)
    reading = open_reading(definition)
    try:
        prepared = prepare(spark, definition, transform, reading)
        try:
            return _run(
                spark,
                definition,
                transform,
                reading,
                prepared,
                (start, end),
                portion_offsets,
                on_commit,
            )
        finally:
            prepared.rows.close()
            prepared.rejects.close()
    finally:
        reading.cluster.close()


def require_possible(definition: PipelineDefinition, start: str, end: str) -> None:
    """Raise errors that need no Spark and no brokers; `OptionError` for a position."""
    if definition.state is not None:
        raise BackfillRefusedError(
            f"'{definition.table.name}' is written by a stateful function (the section `state`), "
            "and older records would change results that are final. Create a new table with a "
            "pipeline that begins at the earliest offsets."
        )
    if definition.table.mode is WriteMode.UPSERT:
        raise BackfillRefusedError(
            f"'{definition.table.name}' is written by upserts, and the records of a backfill are "
            "older than its rows. Create a new table with a pipeline that begins at the earliest "
            "offsets."
        )
    options = _batch_options(definition.source_options(), start, end)
    read_source_options(checkable(options), Mode.BATCH)


def backfill_name(pipeline: str, start: str, end: str) -> str:
    """Return the name of a backfill with these arguments in notes."""
    digest = hashlib.sha256(f"{start}\n{end}".encode()).hexdigest()[:12]
    return f"{pipeline}.backfill-{digest}"


def portions(
    wanted: Mapping[TopicPartition, tuple[int, int]],
    held: Mapping[TopicPartition, int],
    portion_offsets: int,
) -> list[dict[TopicPartition, tuple[int, int]]]:
    """Split the offsets into commits; all partitions progress in parallel."""
    left = {
        at: (max(begin, held.get(at, begin)), end)
        for at, (begin, end) in wanted.items()
        if max(begin, held.get(at, begin)) < end
    }
    cut = []
    while left:
        share = max(1, portion_offsets // len(left))
        cut.append({at: (begin, min(begin + share, end)) for at, (begin, end) in left.items()})
        left = {
            at: (begin + share, end) for at, (begin, end) in left.items() if begin + share < end
        }
    return cut


def _run(
    spark: SparkSession,
    definition: PipelineDefinition,
    transform: Transform | None,
    reading: Reading,
    prepared: Prepared,
    words: tuple[str, str],
    portion_offsets: int,
    on_commit: OnCommit,
) -> BackfillDone:
    pipeline = definition.pipeline.name
    name, run = backfill_name(pipeline, *words), uuid4().hex
    rows = TableCommitter(prepared.rows, name, run)
    rejects = TableCommitter(prepared.rejects, name, run)
    try:
        wanted, latest = _wanted(definition, reading, prepared, words)
    except BackfillRefusedError:
        state = prepared.rows.load()
        if pipeline in state.live and name in state.notes.keys() - state.live.keys():
            return BackfillDone(name, is_absorbed=True)  # finished and absorbed before
        raise
    _require_nobodys(prepared.rows.load(), name, wanted, latest)
    acquire_tables(rejects, rows)
    settings = TaskSettings.of(reading.options)
    writer = BatchWriter(
        prepared.plans,
        definition.expectations,
        partial(
            run_ranges,
            spark,
            settings,
            reading.options.splitting,
            sealed=segments_of(reading.options),
        ),
        stage_for(spark, prepared, definition, transform),
    )
    driver = BatchDriver(
        rows,
        rejects,
        writer.write,
        renew=prepared.plans.renew,
        rejects_of=pipeline,
        allows_gaps=True,
    )
    cut = portions(wanted, rows.state.positions_of(name), portion_offsets)
    done = BackfillDone(name, portions=len(cut))
    for portion in cut:
        committed = driver.commit(writer.write(_ranges(portion, latest)))
        if committed is not None:
            done = replace(
                done,
                commits=done.commits + 1,
                records=done.records + committed.records,
                rows=done.rows + committed.counts.rows,
                rejects=done.rejects + committed.counts.rejects,
            )
            on_commit(done)
    if absorb_backfill(prepared.rows, prepared.rejects, pipeline, name):
        done = replace(done, is_absorbed=True)
    return done


def _wanted(
    definition: PipelineDefinition,
    reading: Reading,
    prepared: Prepared,
    words: tuple[str, str],
) -> tuple[dict[TopicPartition, tuple[int, int]], StreamOffset]:
    """Return the range of each partition, up to the pipeline's start."""
    pipeline = definition.pipeline.name
    note = prepared.rows.load().notes.get(pipeline)
    if note is None or not note.held:
        raise BackfillRefusedError(
            f"pipeline '{pipeline}' has committed nothing to '{definition.table.name}' yet, so it "
            "has no first offset. Start it with `penstock table run`; with "
            'source.starting_offsets = "earliest" it reads all records itself.'
        )
    options = read_resolved_options(_batch_options(definition.source_options(), *words), Mode.BATCH)
    lookups = reading.lookups
    assignment = lookups.assignment()
    starts = lookups.positions(options.start, assignment, may_be_latest=True)
    ends = lookups.positions(options.end, assignment, may_be_latest=True)
    latest = lookups.latest()
    earliest = lookups.earliest(starts)
    wanted = {
        at: (max(one.offset, earliest[at]), min(ends[at].offset, note.held[at].begin_offset))
        for at, one in starts.items()
        if at in note.held
    }
    found = {at: (begin, end) for at, (begin, end) in wanted.items() if begin < end}
    if not found:
        raise BackfillRefusedError(
            f"there are no records between {words[0]} and {words[1]} before the first offsets of "
            f"pipeline '{pipeline}': the table has them all, or the topic no longer has them. "
            "`penstock table status` shows the offsets in the table."
        )
    return found, latest


def _require_nobodys(
    state: TableState,
    name: str,
    wanted: Mapping[TopicPartition, tuple[int, int]],
    latest: StreamOffset,
) -> None:
    """Raise if another pipeline has these offsets, before the table is acquired or written."""
    for whole in portions(wanted, state.positions_of(name), sys.maxsize):
        stop = held_by_others(state, name, _ranges(whole, latest))
        if stop is not None:
            raise stop.error()


def _batch_options(options: Mapping[str, str], start: str, end: str) -> dict[str, str]:
    """Return the arguments as options of the source, without options of streams."""
    streams = {"maxoffsetspertrigger", "maxbytespertrigger", "minoffsetspertrigger"}
    found = {name: text for name, text in options.items() if name.lower() not in streams}
    for name, word in (("starting", start), ("ending", end)):
        if word.isdecimal():
            found[f"{name}Timestamp"] = word
        else:
            found[f"{name}Offsets"] = word
    return {**found, "startingOffsetsByTimestampStrategy": "latest"}


def _ranges(portion: Mapping[TopicPartition, tuple[int, int]], latest: StreamOffset) -> BatchRanges:
    return BatchRanges(
        tuple(
            PartitionRange(*at, begin, end, latest.positions[at].leader_epoch)
            for at, (begin, end) in sorted(portion.items())
        ),
        latest.topic_ids,
        latest.cluster_id,
    )
