"""Replays rejects into the table, once each: after a schema has grown or a rule was corrected.

Guarantees: a reject is in the table or among the rejects, never permanently in both and never in
neither, after any crash; the order is that of `replay_steps`. Rejects that fail again stay, with
the new reason and one more attempt. Only rejects whose batch is in the table are replayed, so that
a running pipeline and a replay never use the same rejects.

An upsert is replayed only with `sequence_by`, which leaves out changes that are older than their
row. Without it a replay would undo later changes of the same key.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from penstock.core.types import TopicPartition
from penstock.spark.errors import SparkQueryError
from penstock.spark.tables.commit.decisions import Offer
from penstock.spark.tables.commit.note import (
    BatchRanges,
    CommitCounts,
    HeldPartition,
    PartitionRange,
)
from penstock.spark.tables.commit.replay_steps import (
    ReplayStep,
    amend,
    count_of,
    count_on,
    counted,
    misfit,
    next_step,
    replay_name,
    settled,
)
from penstock.spark.tables.definition.model import PipelineDefinition, WriteMode
from penstock.spark.tables.files.data_files import remove_files
from penstock.spark.tables.formats.port import LayoutChangedError
from penstock.spark.tables.formats.rejects import REJECTS
from penstock.spark.tables.run.batches import acquire_tables
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.run.dataframe_stage import Transform
from penstock.spark.tables.run.preparing import Prepared, open_reading, prepare
from penstock.spark.tables.run.reject_commits import PLACE, change_rejects, written_rejects
from penstock.spark.tables.run.writing import BatchWriter, stage_for
from penstock.spark.tables.tasks.judging import Judge
from penstock.spark.tables.tasks.report import TaskReport
from penstock.spark.tables.tasks.task import write_records
from penstock.spark.tables.tasks.task_plan import TaskPlan

CLAIM_MAX: Final = 100_000
"""The maximum number of rejects in one claim; they are in memory, with their values."""
CLAIM_BYTES_MAX: Final = 256 * 2**20
"""The maximum bytes of a claim; the piece that exceeds it ends the claim."""
PIECE_ROWS: Final = 256
"""The number of rejects whose bytes are counted together. A table returns parts of any size."""
Place = tuple[str, int, int]
"""Topic, partition and offset."""
_VIRTUAL: Final = PartitionRange("replay", 0, 0, 0)


class ReplayRefusedError(SparkQueryError):
    """This table's rejects are not replayed."""


@dataclass(frozen=True, slots=True)
class RejectFilter:
    """The filter for the rejects to replay; None matches any."""

    error_class: str | None = None
    topic: str | None = None
    partition: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    """The end of the offsets, not included."""

    def chosen(self, rejects: pa.Table) -> pa.Table:
        """Return the rejects that match."""
        for name in ("error_class", "topic", "partition"):
            wanted = getattr(self, name)
            if wanted is not None:
                rejects = rejects.filter(pc.equal(rejects[name], wanted))
        if self.from_offset is not None:
            rejects = rejects.filter(pc.greater_equal(rejects["offset"], self.from_offset))
        if self.to_offset is not None:
            rejects = rejects.filter(pc.less(rejects["offset"], self.to_offset))
        return rejects


@dataclass(frozen=True, slots=True)
class ReplayDone:
    """The result of a replay."""

    records: int = 0
    rows: int = 0
    rejects: int = 0
    """The number of rejects that failed again."""


def replay(
    definition: PipelineDefinition,
    spark: SparkSession,
    *,
    where: RejectFilter | None = None,
    transform: Transform | None = None,
    anew: bool = False,
) -> ReplayDone:
    """Replay the matching rejects, after completing an unfinished earlier replay.

    Raise `ReplayRefusedError` if one of both tables was dropped or rolled back since, because their
    contents are then unknown. With `anew` they are accepted unchanged, and claimed rejects are open
    again.
    """
    require_possible(definition)
    reading = open_reading(definition)
    try:
        prepared = prepare(spark, definition, transform, reading)
        try:
            chosen = where or RejectFilter()
            return _Replay(definition, prepared, spark, transform, chosen, anew=anew).run()
        finally:
            prepared.rows.close()
            prepared.rejects.close()
    finally:
        reading.cluster.close()


def require_possible(definition: PipelineDefinition) -> None:
    """Raise errors that need no Spark and no brokers."""
    if definition.state is not None:
        raise ReplayRefusedError(
            f"'{definition.table.name}' is written by a stateful function (the section `state`), "
            "and a reject cannot enter results that are final. Send the corrected records to the "
            "topic instead, with a new event time."
        )
    is_ordered = bool(definition.value.changes.sequence_by)
    if definition.table.mode is WriteMode.UPSERT and not is_ordered:
        raise ReplayRefusedError(
            f"'{definition.table.name}' is written by upserts, and a reject is older than what "
            "came after it for the same key. Send the corrected records to the topic instead, or "
            "set value.sequence_by."
        )
    if definition.table.partial_updates:
        raise ReplayRefusedError(
            f"'{definition.table.name}' takes partial updates, and a reject that is older than the "
            "row would be left out with all its columns. Send the corrected columns to the topic "
            "instead."
        )


class _Replay:
    def __init__(
        self,
        definition: PipelineDefinition,
        prepared: Prepared,
        spark: SparkSession,
        transform: Transform | None,
        where: RejectFilter,
        *,
        anew: bool,
    ) -> None:
        self._table = definition.table
        self._pipeline = definition.pipeline.name
        self._name = replay_name(self._pipeline)
        self._where = where
        self._anew = anew
        self._plans = prepared.plans
        run = uuid4().hex
        self._rejects = TableCommitter(prepared.rejects, self._name, run)
        self._rows = TableCommitter(prepared.rows, self._name, run)
        self._expectations = definition.expectations
        self._stage = stage_for(spark, prepared, definition, transform)
        self._tried: set[Place] = set()
        self._done = ReplayDone()

    def run(self) -> ReplayDone:
        """Run until no matching reject is left."""
        acquire_tables(self._rejects, self._rows)
        while True:
            rejects, rows = self._counts()
            match next_step(rejects, rows):
                case ReplayStep.CLAIM:
                    if not self._claim(rejects):
                        return self._done
                case ReplayStep.INSERT:
                    self._insert(rejects, rows)
                case ReplayStep.RELEASE:
                    self._release(rejects)
                case ReplayStep.ASK:
                    self._settle(rejects, rows)

    def _counts(self) -> tuple[int, int]:
        return count_of(self._rejects.state, self._name), count_of(self._rows.state, self._name)

    def _claim(self, count: int) -> bool:
        # Read the rows' table first: rejects of its committed offsets are final. In the opposite
        # order a batch could be judged again and committed in between.
        self._rows.reload()
        self._rejects.reload()
        chosen = self._open_ones()
        if not chosen.num_rows:
            return False
        self._tried.update(_places(chosen))
        attempts = pc.add(chosen["attempt"], pa.scalar(1, pa.int32()))
        claimed = _with(_with(chosen, "attempt", attempts), "pipeline", self._name)
        self._change_rejects(_first_of_each(claimed), gone=chosen, offered=counted(count))
        return True

    def _insert(self, rejects: int, count: int) -> None:
        claimed = self._claimed()
        if not all(map(self._committed_places(), _places(claimed))):
            self._settle(rejects, count)  # the rows' table was dropped or rolled back
            return
        # The offsets are those of the claimed rejects; the range only marks one batch.
        written = partial(_written, claimed)
        writer = BatchWriter(self._plans, self._expectations, written, self._stage)
        report = writer.write(BatchRanges((_VIRTUAL,)))
        bad = written_rejects(self._rejects.table, report).select(REJECTS.names)
        if bad.num_rows:
            attempts = dict(zip(_places(claimed), claimed["attempt"].to_pylist(), strict=True))
            tried = pa.array([attempts[one] for one in _places(bad)], pa.int32())
            come = _with(bad, "attempt", pa.chunked_array([tried]))
            self._change_rejects(come, gone=_with(bad, "pipeline", self._name), offered=None)
            remove_files(self._plans.task.rejects.directory, report.reject_files)
        counts = CommitCounts(report.counts.rows, bad.num_rows, report.counts.expectations)
        offer = Offer(self._rows.driver, counted(count), counts)
        try:
            self._rows.commit(
                offer, report.files, report.schema, changes=report.changes, rule=count_on
            )
        except LayoutChangedError:
            self._rows.reload()
            self._plans.renew()
            return  # claimed rejects are written again, for the current table
        self._done = ReplayDone(
            self._done.records + claimed.num_rows,
            self._done.rows + report.counts.rows,
            self._done.rejects + bad.num_rows,
        )

    def _release(self, count: int) -> None:
        self._change_rejects(REJECTS.empty_table(), gone=self._claimed(), offered=counted(count))

    def _settle(self, rejects: int, rows: int) -> None:
        """Set matching counts, with nothing claimed. After a crash in between they still differ."""
        if not self._anew:
            names = self._table.dlq_name, self._table.name
            raise ReplayRefusedError(misfit(rejects, rows, *names))
        rejects_end, rows_end = settled(rejects, rows)
        claimed = self._claimed()
        if claimed.num_rows or rejects < rejects_end:
            offered = counted(rejects, rejects_end) if rejects < rejects_end else None
            opened = _with(claimed, "pipeline", self._pipeline)
            self._change_rejects(opened, gone=claimed, offered=offered)
        if rows < rows_end:
            offer = Offer(self._rows.driver, counted(rows, rows_end))
            self._rows.commit(offer, (), rule=count_on)

    def _change_rejects(
        self, come: pa.Table, *, gone: pa.Table, offered: BatchRanges | None
    ) -> None:
        offer = Offer(self._rejects.driver, offered or BatchRanges(()))
        rule = amend if offered is None else count_on
        change_rejects(self._rejects, offer, come, gone, rule=rule)

    # --- Rejects ---

    def _claimed(self) -> pa.Table:
        """Return all claimed rejects, in any parts and order.

        No other process changes claimed rejects, so exactly the inserted ones are released. They
        fit into memory because their choice was bounded; a limit here would insert some and release
        others.
        """
        self._rejects.reload()
        return pa.concat_tables([REJECTS.empty_table(), *self._of(self._name)])

    def _open_ones(self) -> pa.Table:
        """Return the next batch of unresolved rejects that match the filter."""
        return _as_many_as_fit(
            self._committed(self._where.chosen(one)) for one in self._of(self._pipeline)
        )

    def _of(self, pipeline: str) -> Iterator[pa.Table]:
        for one in self._rejects.table.scan(REJECTS.names):
            found = one.filter(pc.equal(one.column("pipeline"), pipeline))
            if found.num_rows:
                yield pa.Table.from_batches([found], REJECTS)

    def _committed(self, rejects: pa.Table) -> pa.Table:
        """Return rejects whose batch is in the table and that this run has not tried.

        Records that are not in the table are judged again anyway, with their batch.
        """
        is_committed = self._committed_places()
        is_meant = [one not in self._tried and is_committed(one) for one in _places(rejects)]
        return rejects.filter(pa.array(is_meant, pa.bool_()))

    def _committed_places(self) -> Callable[[Place], bool]:
        """Return a function that returns whether the batch of a record is in the table."""
        held = [
            note.held
            for name, note in self._rows.state.notes.items()
            if name == self._pipeline or name.startswith(f"{self._pipeline}.backfill")
        ]
        return lambda place: any(_is_in(place, ranges) for ranges in held)


def _written(rejects: pa.Table, _ranges: BatchRanges, plan: TaskPlan) -> list[TaskReport]:
    """Do a task's work, with rejects instead of a range."""
    about = TaskReport(plan.number, _VIRTUAL, None, None)
    return [write_records(_records(rejects), Judge(plan), about)]


def _records(rejects: pa.Table) -> Iterator[pa.RecordBatch]:
    """Return the rejects as their original records."""
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "headers"]
    yield from rejects.select(names).combine_chunks().to_batches(max_chunksize=32_768)


def _is_in(key: Place, held: Mapping[TopicPartition, HeldPartition]) -> bool:
    topic, partition, offset = key
    found = held.get(TopicPartition(topic, partition))
    return found is not None and found.begin_offset <= offset < found.end_offset


def _as_many_as_fit(parts: Iterable[pa.Table]) -> pa.Table:
    """Return the first rejects that fit into memory: only to choose those to claim."""
    found, rows, held_bytes = [REJECTS.empty_table()], 0, 0
    for part in parts:
        for first in range(0, part.num_rows, PIECE_ROWS):
            piece = part.slice(first, min(PIECE_ROWS, CLAIM_MAX - rows))
            found.append(piece)
            rows += piece.num_rows
            held_bytes += piece.nbytes
            if rows >= CLAIM_MAX or held_bytes >= CLAIM_BYTES_MAX:
                return pa.concat_tables(found)
    return pa.concat_tables(found)


def _first_of_each(rejects: pa.Table) -> pa.Table:
    """Return one reject for each record: a function may have returned several bad rows for one."""
    seen: dict[Place, int] = {}
    for number, place in enumerate(_places(rejects)):
        seen.setdefault(place, number)
    return rejects.take(pa.array(list(seen.values()), pa.int64()))


def _places(rejects: pa.Table) -> list[Place]:
    return list(zip(*(rejects[name].to_pylist() for name in PLACE), strict=True))


def _with(table: pa.Table, name: str, values: pa.ChunkedArray | str) -> pa.Table:
    if isinstance(values, str):
        values = pa.chunked_array([pa.repeat(pa.scalar(values), table.num_rows)])
    number = table.schema.get_field_index(name)
    return table.set_column(number, table.schema.field(number), values)
