"""`StatefulDriver`: commits the result of a batch to both tables, exactly once.

Guarantees: rejects first, then the rows, as for every batch; `commit.stateful_rules` decides. The
files of a batch that is in the table already are deleted. The files are never written again: that
would evaluate the state of the batch twice. If the table has changed under them, the pipeline
stops, and Spark repeats the batch at its next start.

What forbids a batch, such as too many bad records, is judged before its commit: a definition that
the user corrects afterwards then applies to the whole batch, rows, rejects and state.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from penstock.core.clock import Clock
from penstock.spark.tables.commit.decisions import Commit, Offer, Skip
from penstock.spark.tables.commit.note import StateNote
from penstock.spark.tables.commit.stateful_rules import decide_stateful
from penstock.spark.tables.commit.steps import Committed, Rule
from penstock.spark.tables.commit.stops import CommitStoppedError, Stop, StopReason
from penstock.spark.tables.files.data_files import remove_files
from penstock.spark.tables.formats.port import LayoutChangedError, TableMovedError
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.run.reject_commits import commit_rejects, withdraw_rejects
from penstock.spark.tables.tasks.report import BatchReport

RULE: Final[Rule] = decide_stateful


class ResultsMisplacedError(TableMovedError):
    """The columns or partitions of the table changed while the results were written."""

    def __init__(self, problem: object) -> None:
        super().__init__(
            f"the table was changed while a batch was written: {problem}. Nothing was committed. "
            "Start the pipeline again: Spark repeats the batch."
        )


@dataclass(frozen=True, slots=True)
class ResultBatch:
    """The result of one batch."""

    report: BatchReport
    place: StateNote
    rows_directory: str
    rejects_directory: str


class StatefulDriver:
    """One driver's ownership of both tables of a stateful pipeline."""

    def __init__(
        self, rows: TableCommitter, rejects: TableCommitter, clock: Clock, rule: Rule = RULE
    ) -> None:
        self._rows = rows
        self._rejects = rejects
        self._clock = clock
        self._rule = rule

    def commit(self, batch: ResultBatch, require: Callable[[], None]) -> bool:
        """Commit the batch; return whether it was committed now, and not earlier.

        `require` is called before the commit of a batch that is not in the table yet. If it raises,
        the tables have nothing of the batch.
        """
        report = batch.report
        offer = self._offer(self._rows, batch)
        if self._is_held(offer):
            self._discard(batch)
            return False
        try:
            require()
        except BaseException:
            self._discard(batch)
            raise
        rejects = replace(self._offer(self._rejects, batch), state=None)
        commit_rejects(self._rejects, rejects, report, rejects.driver.pipeline)
        try:
            done = self._rows.commit(offer, report.files, report.schema, rule=self._rule)
        except LayoutChangedError as error:
            raise ResultsMisplacedError(error) from error
        except CommitStoppedError as error:
            if error.reason is StopReason.OTHER_PIPELINE:
                withdraw_rejects(self._rejects, rejects)
            raise
        if not isinstance(done, Committed):
            remove_files(batch.rows_directory, report.files)
        return isinstance(done, Committed)

    def _is_held(self, offer: Offer) -> bool:
        """Return whether the table has the batch; raise a reason to stop, before any commit."""
        decision = self._rule(self._rows.state, offer)
        if not isinstance(decision, Commit):
            # The table checks only commits: read it before any other decision.
            self._rows.reload()
            decision = self._rule(self._rows.state, offer)
        if isinstance(decision, Stop):
            raise decision.error()
        return isinstance(decision, Skip)

    def _discard(self, batch: ResultBatch) -> None:
        remove_files(batch.rows_directory, batch.report.files)
        remove_files(batch.rejects_directory, batch.report.reject_files)

    def _offer(self, committer: TableCommitter, batch: ResultBatch) -> Offer:
        return Offer(
            committer.driver,
            batch.report.ranges,
            batch.report.counts,
            at_ms=self._clock.now_ms(),
            state=batch.place,
        )
