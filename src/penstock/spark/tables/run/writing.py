"""`BatchWriter`: makes files of the offsets of a batch, whatever way their rows take.

Guarantees of what `written` gives: every record of the ranges is in a file of rows or of rejects,
or was dropped by a rule; the files have the columns that the table has or will have with their
commit. Values with columns that the table has not yet are planned for, and the batch is written
again. A rule whose action is `fail` and that is broken is an error, and nothing is committed.
"""

from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import SparkSession

from penstock.spark.errors import SparkQueryError
from penstock.spark.tables.commit_note import BatchRanges
from penstock.spark.tables.definition import Expectation, PipelineDefinition, RunMode
from penstock.spark.tables.expectations import Outcome
from penstock.spark.tables.run.dataframe_stage import DataFrameStage, Transform
from penstock.spark.tables.run.plans import Plans
from penstock.spark.tables.run.preparing import Prepared
from penstock.spark.tables.run.report import BatchReport, TaskReport, together
from penstock.spark.tables.run.task_plan import TaskPlan

GROWTHS_MAX: Final = 20
"""How often one batch may find further columns."""

RunRanges = Callable[[BatchRanges, TaskPlan], list[TaskReport]]


def stage_for(
    spark: SparkSession,
    prepared: Prepared,
    definition: PipelineDefinition,
    transform: Transform | None,
) -> DataFrameStage | None:
    """What rows pass through; None when tasks do everything."""
    if prepared.mode.mode is not RunMode.DATAFRAME:
        return None
    return DataFrameStage(spark, prepared.plans, definition, transform)


class EndlessGrowthError(SparkQueryError):
    """The values of a batch have other columns each time that they are read."""


class BatchWriter:
    """Writes batches after the newest plan."""

    def __init__(
        self,
        plans: Plans,
        expectations: Sequence[Expectation],
        run_ranges: RunRanges,
        stage: DataFrameStage | None,
    ) -> None:
        """`stage`: what rows pass through before they are the table's."""
        self._plans = plans
        self._expectations = expectations
        self._run_ranges = run_ranges
        self._stage = stage

    def write(self, ranges: BatchRanges) -> BatchReport:
        """Read these offsets, and write files of them."""
        return self.written(ranges, self._run_ranges(ranges, self._plans.task))

    def written(self, ranges: BatchRanges, reports: Sequence[TaskReport]) -> BatchReport:
        """What tasks have written of these offsets; written again when it has to be."""
        for _ in range(GROWTHS_MAX):
            plan = self._plans.task
            needs = [one.needs for one in reports if one.needs is not None]
            if needs:
                self._plans.grow(needs)
            elif all(one.plan_number == plan.number for one in reports):
                return self._finished(together(reports))
            reports = self._run_ranges(ranges, self._plans.task)
        raise EndlessGrowthError(
            f"the values of one batch had further columns each of the {GROWTHS_MAX} times that "
            "they were read. Look at the schemas in the registry; keys that are data make "
            "columns without end."
        )

    def _finished(self, report: BatchReport) -> BatchReport:
        if self._stage is not None:
            report = self._stage.write(report)
        else:
            report = self._plans.as_brought(report, self._plans.task.rows.schema)
        Outcome(report.counts.expectations, None, (), report.failed).require(self._expectations)
        return report
