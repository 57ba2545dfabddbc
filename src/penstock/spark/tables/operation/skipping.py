"""Skips offsets of a pipeline: acquires its tables, and commits the loss as a batch without rows.

Guarantees: the position moves and the loss is recorded in one commit, by the committer of all other
batches, so a crash leaves the table as it was or with the whole skip. A driver that still runs is
fenced: it cannot commit afterwards. A pipeline that has committed since the plan was shown runs,
and the skip is refused. It needs no Spark session, and no rows are read.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Final
from uuid import uuid4

from penstock.core.clock import Clock, SystemClock
from penstock.core.types import TopicPartition
from penstock.spark.tables.commit.decisions import Trim
from penstock.spark.tables.commit.note import CommitNote
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.formats.opening import TableMissingError, open_table
from penstock.spark.tables.formats.port import Table
from penstock.spark.tables.inspection.topics import TopicsLook
from penstock.spark.tables.operation.skips import (
    Bounds,
    SkipPlan,
    SkipRefusedError,
    plan_skip,
    require_forward,
)
from penstock.spark.tables.run.batches import acquire_tables
from penstock.spark.tables.run.committer import TableCommitter

TRIMS_MAX: Final = 5
"""A driver that is not fenced yet may commit a part first; each commit trims once."""

Targets = Callable[[TopicsLook, Mapping[TopicPartition, Bounds]], Mapping[TopicPartition, int]]


def to_offset(at: TopicPartition, offset: int) -> Targets:
    """Return the target of one partition."""
    return lambda _look, _bounds: {at: offset}


def to_time(at_ms: int | None) -> Targets:
    """Return the targets of all partitions: the first record of this time, None for the end."""

    def targets(
        look: TopicsLook, bounds: Mapping[TopicPartition, Bounds]
    ) -> Mapping[TopicPartition, int]:
        if at_ms is None:
            return {at: one.end for at, one in bounds.items()}
        found = look.offsets_at(tuple(bounds), at_ms)
        return {at: min(found.get(at, one.end), one.end) for at, one in bounds.items()}

    return targets


def skip_offsets(
    definition: PipelineDefinition,
    targets: Targets,
    *,
    confirm: Callable[[SkipPlan], None],
    one: tuple[TopicPartition, int] | None = None,
    clock: Clock | None = None,
) -> SkipPlan:
    """Skip up to the targets after `confirm` returns; return what was skipped.

    `one` is the only partition and its target: a target that is reached already is an error.
    """
    settings, name = definition.table, definition.pipeline.name
    if definition.state is not None:
        raise SkipRefusedError(
            f"pipeline '{name}' has a stateful function (the section `state`), and its position is "
            "in its checkpoint with the state. To leave records out, let the function or an "
            "expectation drop them."
        )
    with ExitStack() as opened:
        rows = open_table(settings, settings.name)
        opened.callback(rows.close)
        note = _note_of(rows, settings.name, name)
        if one is not None:
            require_forward(note, *one)
        plan = _plan(definition, note, targets)
        confirm(plan)
        if not plan.ranges:
            return plan
        if _note_of(rows, settings.name, name).sequence != plan.sequence:
            raise SkipRefusedError(
                f"pipeline '{name}' committed while the question was open: it runs. Nothing was "
                "changed. Stop it, then repeat the command."
            )
        run = f"skip-{uuid4().hex}"
        committer = TableCommitter(rows, name, run)
        rejects = None
        with suppress(TableMissingError):
            rejects = open_table(settings, settings.dlq_name)
            opened.callback(rejects.close)
        if rejects is None:
            committer.take()
        else:
            acquire_tables(TableCommitter(rejects, name, run), committer)
        _commit(committer, plan, clock or SystemClock())
        return plan


def _commit(committer: TableCommitter, plan: SkipPlan, clock: Clock) -> None:
    """Commit the loss; a part that a driver committed in the meantime is not lost."""
    for _ in range(TRIMS_MAX):
        result = committer.commit(plan.offer(committer.driver, clock.now_ms()), ())
        if not isinstance(result, Trim):
            return
        plan = replace(plan, ranges=result.left.ranges)


def _plan(definition: PipelineDefinition, note: CommitNote, targets: Targets) -> SkipPlan:
    look = TopicsLook(definition)
    try:
        seen = look.seen()
        bounds = {one.at: Bounds(one.begin_offset, one.end_offset) for one in seen.partitions}
        return plan_skip(note, targets(look, bounds), bounds, seen.topic_ids, seen.cluster_id)
    finally:
        look.close()


def _note_of(table: Table, table_name: str, pipeline: str) -> CommitNote:
    note = table.load().live.get(pipeline)
    if note is None:
        raise SkipRefusedError(
            f"table '{table_name}' records no pipeline '{pipeline}', so it has no position to "
            "move. Set source.starting_offsets for its first start."
        )
    return note
