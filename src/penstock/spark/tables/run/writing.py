"""`BatchWriter`: writes files of the offsets of a batch, in both execution modes.

Guarantees of the result of `written`: every record of the ranges is in a file of rows or of
rejects, or was dropped by a rule; the files have the columns that the table has or will have with
their commit. New columns of values are added to the plan, and the batch is written again. A broken
rule whose action is `fail` is an error, and nothing is committed.
"""

from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import SparkSession

from penstock.spark.errors import SparkQueryError
from penstock.spark.tables.commit.note import BatchRanges
from penstock.spark.tables.definition.model import Expectation, PipelineDefinition, RunMode
from penstock.spark.tables.rules.expectations import Outcome
from penstock.spark.tables.run.dataframe_stage import DataFrameStage, Transform
from penstock.spark.tables.run.plans import Plans
from penstock.spark.tables.run.preparing import Prepared
from penstock.spark.tables.tasks.report import BatchReport, TaskReport, together
from penstock.spark.tables.tasks.task_plan import TaskPlan

STALLS_MAX: Final = 5
"""How often one batch may be read again although no further column was found."""

RunRanges = Callable[[BatchRanges, TaskPlan], list[TaskReport]]


def stage_for(
    spark: SparkSession,
    prepared: Prepared,
    definition: PipelineDefinition,
    transform: Transform | None,
) -> DataFrameStage | None:
    """Return the stage for rows; None if tasks do all the work."""
    if prepared.mode.mode is not RunMode.DATAFRAME:
        return None
    return DataFrameStage(spark, prepared.plans, definition, transform)


class EndlessGrowthError(SparkQueryError):
    """The values of a batch have other columns each time that they are read."""


class BatchWriter:
    """Writes batches with the newest plan."""

    def __init__(
        self,
        plans: Plans,
        expectations: Sequence[Expectation],
        run_ranges: RunRanges,
        stage: DataFrameStage | None,
    ) -> None:
        """Create the writer; `stage` processes rows before they are written to the table."""
        self._plans = plans
        self._expectations = expectations
        self._run_ranges = run_ranges
        self._stage = stage

    def write(self, ranges: BatchRanges) -> BatchReport:
        """Read these offsets, and write files of them."""
        return self.written(ranges, self._run_ranges(ranges, self._plans.task))

    def written(self, ranges: BatchRanges, reports: Sequence[TaskReport]) -> BatchReport:
        """Return the files that tasks wrote for these offsets; write them again if needed."""
        stalls = 0
        while stalls < STALLS_MAX:
            plan = self._plans.task
            # Use an order that does not depend on the speed of the tasks.
            ordered = sorted(reports, key=lambda one: one.range)
            needs = [one.needs for one in ordered if one.needs is not None]
            if not needs and all(one.plan_number == plan.number for one in reports):
                return self._finished(together(reports))
            if not needs or not self._plans.grow(needs):
                stalls += 1
            reports = self._run_ranges(ranges, self._plans.task)
        raise EndlessGrowthError(
            f"the values of one batch asked for further columns {STALLS_MAX} times that the plan "
            "could not be given. This is an error of Penstock: please report it."
        )

    def _finished(self, report: BatchReport) -> BatchReport:
        if self._stage is not None:
            report = self._stage.write(report)
        else:
            report = self._plans.for_commit(report, self._plans.task.rows.schema)
        Outcome(report.counts.expectations, None, (), report.failed).require(self._expectations)
        return report
