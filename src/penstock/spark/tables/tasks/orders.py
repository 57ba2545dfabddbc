"""Orders: the input of a pipeline's tasks, and their execution.

The driver itself carries out a batch with few records (`small_batches`), from the same orders and
with the same code: the start of a Spark job costs several times as much as reading them.

The source's process imports this module for each query; tasks import the modules that only they
need.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from penstock.client.cluster import Cluster
from penstock.client.opening import open_cluster
from penstock.spark.planning import OffsetRange, ReadTask
from penstock.spark.source.task_reader import TaskSettings, read_range
from penstock.spark.worker_process import settle

if TYPE_CHECKING:
    from penstock.spark.tables.tasks.report import TaskReport

Limit = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

SMALL_OFFSETS_MAX: Final = 1_000
"""The maximum number of offsets in a task with several ranges, and in a batch without a task."""


class TaskOrder(NamedTuple):
    """The input of one task."""

    task: ReadTask
    plan: bytes | None
    """A packed `TaskPlan`. None: only report the offsets to read."""
    cluster_id: str | None


def is_small(orders: Sequence[TaskOrder]) -> bool:
    """Return whether these orders write so few records that no task is needed."""
    count = sum(order.task.range.size for order in orders)
    return count <= SMALL_OFFSETS_MAX and all(order.plan is not None for order in orders)


def small_together(orders: Sequence[TaskOrder]) -> list[tuple[TaskOrder, ...]]:
    """Return the orders by task: one each, or several that have few offsets together."""
    groups: list[tuple[TaskOrder, ...]] = []
    held_count = 0
    for order in orders:
        size = order.task.range.size
        if groups and held_count + size <= SMALL_OFFSETS_MAX:
            groups[-1] = (*groups[-1], order)
            held_count += size
        else:
            groups.append((order,))
            held_count = size
    return groups


def carry_out(
    orders: Sequence[TaskOrder],
    settings: TaskSettings,
    cluster: Cluster | None = None,
    limited: Limit | None = None,
) -> Iterator["TaskReport"]:
    """Carry out the orders; return a report for each, in turn.

    An order that reads opens a cluster if none is passed; `limited` checks the records that are
    read.
    """
    from penstock.spark.tables.commit.note import LostRange
    from penstock.spark.tables.tasks.judging import Judge
    from penstock.spark.tables.tasks.task import planned_report, write_records
    from penstock.spark.tables.tasks.task_plan import unpack_plan

    whole = settings._replace(include_headers=True)
    judges: dict[bytes, Judge] = {}
    with ExitStack() as stack:
        for task, plan, cluster_id in orders:
            about = planned_report(task, cluster_id)
            if plan is None:
                yield about
                continue
            if cluster is None:
                settle()
                cluster = stack.enter_context(open_cluster(settings.client))
            if plan not in judges:
                judges[plan] = Judge(unpack_plan(plan))
            lost: list[OffsetRange] = []
            records: Iterator[pa.RecordBatch] = read_range(cluster, task, whole, lost.append)
            if limited is not None:
                records = limited(records)
            report = write_records(records, judges[plan], about)
            yield replace(report, lost=tuple(LostRange(*one.at, *one[1:]) for one in lost))
