"""`BatchDriver`: commits the records of a batch to both tables, each record once.

The content of the tables decides the steps. If they have all rows, nothing is done. If they have a
part, the rest is written again and committed. If the rows must not be committed, an error is raised
before any commit. Otherwise the rejects are committed, by `commit.rejects`, and then the rows, by
`commit`.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from penstock.core.clock import Clock, SystemClock
from penstock.spark.errors import SparkQueryError
from penstock.spark.offsets import StreamOffset
from penstock.spark.tables.commit.decisions import Commit, Offer, Skip, Trim, decide
from penstock.spark.tables.commit.note import BatchRanges
from penstock.spark.tables.commit.steps import Committed
from penstock.spark.tables.commit.stops import CommitStoppedError, Stop, StopReason
from penstock.spark.tables.formats.port import LayoutChangedError
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.run.reject_commits import commit_rejects, withdraw_rejects
from penstock.spark.tables.tasks.report import BatchReport
from penstock.spark.tables.values.empty_columns import newly_emptied

LOGGER: Final = logging.getLogger(__name__)
ATTEMPTS_MAX: Final = 10
"""How often a batch is written again because the table has changed in the meantime."""

TAKES_MAX: Final = 5
"""How often both tables are acquired if another driver acquires them at the same time."""

OnOffer = Callable[[BatchRanges, int, int], None]
"""Gets the ranges, records and rejects of each attempt to commit, whose response may be lost."""
Write = Callable[[BatchRanges], BatchReport]


def acquire_tables(
    rejects: TableCommitter, rows: TableCommitter, starting: BatchRanges | None = None
) -> StreamOffset | None:
    """Become the owner of both tables; return the start of a query without a checkpoint.

    The rejects' table is acquired first and checked again at the end: its last owner must be the
    last owner of the rows' table too. Two drivers that start at the same time may own one each;
    then both tables are acquired again.
    """
    for _ in range(TAKES_MAX):
        rejects.take(starting)
        found = rows.take(starting)
        rejects.reload()
        if rejects.is_owner:
            return found
    raise rejects.fenced()


class CommitConflictError(SparkQueryError):
    """The table changed each time that a batch was written for it."""


class BatchDriver:
    """One driver's ownership of both tables of a pipeline."""

    def __init__(
        self,
        rows: TableCommitter,
        rejects: TableCommitter,
        write: Write,
        *,
        renew: Callable[[], None] | None = None,
        rejects_of: str | None = None,
        allows_gaps: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """Create the driver; `write` writes files again if those of a batch cannot be used.

        `renew` is called first if the files have other columns than the table. `rejects_of` is the
        pipeline in the rejects, if it is not the one that commits.
        """
        self.rows = rows
        self.rejects = rejects
        self._write = write
        self._renew = renew
        self._rejects_of = rejects_of
        self._allows_gaps = allows_gaps
        self._clock = clock or SystemClock()

    def commit(
        self, report: BatchReport, on_offer: OnOffer = lambda _ranges, _records, _rejects: None
    ) -> BatchReport | None:
        """Commit the batch; return the committed part, None if the table had all of it."""
        for _ in range(ATTEMPTS_MAX):
            left = self._open_part(report)
            if left is None:
                return None
            if left != report.ranges:
                report = self._write(left)
                continue
            on_offer(report.ranges, report.records, report.counts.rejects)
            offer = self._offer(self.rejects, report)
            pipeline = self._rejects_of or offer.driver.pipeline
            commit_rejects(self.rejects, offer, report, pipeline)
            before = self._empty_columns()
            match self._commit_rows(report):
                case Committed():
                    self._log_emptied(before)
                    return report
                case Trim(left):
                    report = self._write(left)
                case Skip():
                    return None
                case LayoutChangedError() as error:
                    if self._renew is None:
                        raise error
                    self.rows.reload()
                    self._renew()
                    report = self._write(report.ranges)
        raise CommitConflictError(
            f"the table changed each of the {ATTEMPTS_MAX} times that a batch was written for it: "
            "another writer commits to it all the time. Stop it, then start the pipeline again."
        )

    def _empty_columns(self) -> Mapping[str, int] | None:
        note = self.rows.state.notes.get(self.rows.driver.pipeline)
        return None if note is None else note.empty_columns

    def _log_emptied(self, before: Mapping[str, int] | None) -> None:
        for name, rows in newly_emptied(before, self._empty_columns()):
            LOGGER.warning(
                "Column '%s' had values, and the last %d rows have none. A producer may have "
                "renamed or dropped the field. See `penstock table status`.",
                name,
                rows,
            )

    def _commit_rows(self, report: BatchReport) -> Committed | Trim | Skip | LayoutChangedError:
        try:
            return self.rows.commit(
                self._offer(self.rows, report), report.files, report.schema, changes=report.changes
            )
        except LayoutChangedError as error:
            return error
        except CommitStoppedError as error:
            if error.reason is StopReason.OTHER_PIPELINE and self._rejects_of is None:
                withdraw_rejects(self.rejects, self._offer(self.rejects, report))
            raise

    def _open_part(self, report: BatchReport) -> BatchRanges | None:
        """Return the part of the batch that is not in the table; None if all is.

        A reason to stop is raised here, before rejects are committed. The state may be an old one,
        so the table is read first.
        """
        offer = self._offer(self.rows, report)
        decision = decide(self.rows.state, offer)
        if isinstance(decision, Stop):
            self.rows.reload()
            decision = decide(self.rows.state, offer)
        match decision:
            case Skip():
                return None
            case Trim(left):
                return left
            case Commit():
                return report.ranges
            case Stop():
                raise decision.error()

    def _offer(self, committer: TableCommitter, report: BatchReport) -> Offer:
        counts = report.counts
        if committer is self.rejects:  # which has other columns
            counts = replace(counts, empty_columns=None)
        return Offer(
            committer.driver,
            report.ranges,
            counts,
            self._allows_gaps,
            report.lost,
            self._clock.now_ms(),
        )
