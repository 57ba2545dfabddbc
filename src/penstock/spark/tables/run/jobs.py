"""Runs a pipeline's tasks on Spark for chosen offsets, outside of the stream.

The stream's own tasks write a stream's batch. This module is for all other batches: repeated
batches with more columns or fewer offsets, rows that pass through Spark SQL, and records before a
pipeline's first offset.
"""

from collections.abc import Sequence
from functools import partial

from pyspark.sql import SparkSession

from penstock.spark.planning import (
    TASKS_MAX,
    OffsetRange,
    ReadTask,
    SealedSplit,
    Splitting,
    split_ranges,
)
from penstock.spark.sealed.sealed_segments import Known, SealedSegments
from penstock.spark.source.task_reader import TaskSettings
from penstock.spark.tables.commit.note import BatchRanges
from penstock.spark.tables.tasks.orders import TaskOrder, carry_out
from penstock.spark.tables.tasks.report import TaskReport, pack, unpack
from penstock.spark.tables.tasks.task_plan import TaskPlan, pack_plan
from penstock.spark.task_jobs import run_tasks


def run_ranges(
    spark: SparkSession,
    settings: TaskSettings,
    splitting: Splitting,
    ranges: BatchRanges,
    plan: TaskPlan,
    sealed: SealedSegments | None = None,
) -> list[TaskReport]:
    """Write files of these offsets; return a report for each task.

    With `sealed`, tasks read leased segments as files, and the leases end with them.
    """
    known = {
        one.at: Known(ranges.topic_ids.get(one.at.topic), one.leader_epoch) for one in ranges.ranges
    }
    whole = [OffsetRange(one.at, one.start_offset, one.end_offset) for one in ranges.ranges]
    packed = pack_plan(plan)
    try:
        pieces: list[tuple[OffsetRange, SealedSplit | None]]
        if sealed is None:
            pieces = [(piece, None) for piece in split_ranges(whole, splitting, {})]
        else:
            pieces = sealed.plan(whole, known, ranges.cluster_id, {})
        orders = [
            TaskOrder(ReadTask(piece, *known[piece.at], sealed=split), packed, ranges.cluster_id)
            for piece, split in pieces
        ]
        return run_orders(spark, settings, orders)
    finally:
        if sealed is not None:
            sealed.release()


def run_orders(
    spark: SparkSession, settings: TaskSettings, orders: Sequence[TaskOrder]
) -> list[TaskReport]:
    """Run these tasks; return a report for each."""
    assert len(orders) <= TASKS_MAX, "the caller splits larger requests into portions"
    return [unpack(data) for data in run_tasks(spark, partial(_report, settings), orders)]


def _report(settings: TaskSettings, order: TaskOrder) -> bytes:
    (report,) = carry_out((order,), settings)
    return pack(report)
