"""The exactly-once protocol of the sink, as decisions (pure).

A micro-batch is written by tasks, each inside a transaction of its own that it flushes and leaves
open. The driver then decides for the whole batch: it writes one record to the decision topic, and
only then commits the transactions. The rules:

1. A batch is decided at most once: the deciding driver owns the log of decisions (its producer
   fences every earlier owner), has read it, and found no decision for the batch that can still be
   kept.
2. The sink never aborts a decided transaction, and never commits an undecided one.
3. After a crash the next run completes the decided batch and does not write it again: it skips the
   batch or aborts its own transactions. An undecided batch is aborted and written again.
4. If the cluster aborted all transactions of a decision, the decision is void, and the batch may be
   decided again. If only some of them could be committed, the driver raises an error.
5. A replaced run stops, and aborts no transaction of its successor.
6. A batch is over when it is recorded as done. The sweep afterwards may fail: the failure is
   logged, and the sweep is retried with a later batch.

`commit_batch` and `abort_batch` are generators that yield steps and receive their results, so that
a test can stop, crash or interleave them anywhere. `sink.transactions` carries out the steps;
`sink.records` has the record format. No Spark, no Arrow, no IO.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.client.transactions.transaction_outcomes import CommitOutcome, OpenTransaction
from penstock.core.errors import PenstockError
from penstock.spark.sink.errors import (
    CheckpointSetBackError,
    DecisionMissingError,
    OutcomeUnknownError,
    PartialCommitError,
    PrefixChangedError,
    ReplayDiffersError,
    SupersededError,
    TransactionsLostError,
    TransactionsTooOldError,
    named,
)
from penstock.spark.sink.steps import (
    AbortAll,
    CommitAll,
    Committed,
    Decision,
    Fence,
    Ledger,
    ListOpen,
    LookAt,
    ReadLedger,
    Sight,
    Step,
    Sweep,
    TakeOwnership,
    Warn,
    WriteDecision,
    WriteDone,
    WrittenBatch,
)

RUNS_REMEMBERED_MAX: Final = 32
"""Runs in a decision; a driver that returns after this number of successors is a new run."""
MARGIN_MS_MIN: Final = 5_000
"""The remaining transaction timeout that a decision needs: a tenth of the timeout, and at least
this value; but never more than half of the timeout, so that a short timeout is usable."""
FENCED_AT_ONCE_MAX: Final = 1_000
"""The maximum number of leftover transactions aborted after one batch; the next batch continues."""


# --- The driver ---


def commit_batch(
    batch: WrittenBatch, known: Ledger | None, sweep: Sweep
) -> Generator[Step, Any, Committed]:
    """Make the batch visible exactly once.

    `known` is the ledger after this run's last batch, while the run still owns the log.
    """
    ledger = known
    if ledger is None:
        ledger = yield from _take_over(batch)
    decision = ledger.decision
    if decision is not None and decision.batch_id > batch.batch_id:
        raise CheckpointSetBackError(batch.batch_id, decision.batch_id)
    if decision is not None and not ledger.is_done:
        ledger = yield from _finish(decision, batch)
    if ledger.decision is not None and ledger.decision.batch_id == batch.batch_id:
        ledger = yield from _skip(ledger.decision, batch)
    else:
        ledger = yield from _decide(decision, batch)
    is_swept = yield from _sweep(ledger, batch.run, batch.run_prefix, sweep)
    return Committed(ledger, is_swept)


def abort_batch(
    run: str, transactions: tuple[OpenTransaction, ...], run_prefix: str
) -> Generator[Step, Any, None]:
    """Abort a batch that failed. Spark also calls this after `commit_batch` raised an error.

    So the batch may be decided: then the next run handles its transactions.
    """
    ledger: Ledger = yield ReadLedger()
    is_ours = not _is_superseded(ledger, run)
    if is_ours:
        yield TakeOwnership()  # a decision whose response was lost is now stored or void
        ledger = yield ReadLedger()
    kept = unfinished(ledger)
    yield AbortAll(tuple(one for one in transactions if one not in kept))
    if is_ours:
        yield from _sweep(ledger, run, run_prefix, Sweep.OWN_RUN)


def _take_over(batch: WrittenBatch) -> Generator[Step, Any, Ledger]:
    """Become the owner of the log and read it; a replaced run stops instead."""
    ledger: Ledger = yield ReadLedger()
    _refuse_stranger(ledger, batch)
    yield TakeOwnership()
    ledger = yield ReadLedger()
    _refuse_stranger(ledger, batch)
    if ledger.decision is None and batch.batch_id > 0:
        yield Warn(_undecided(batch.batch_id))
    return ledger


def _undecided(batch_id: int) -> str:
    return (
        f"Spark is at batch {batch_id}, and the topic of decisions has no decision of this query. "
        "This is as it should be if the query wrote without exactly-once until now, or with "
        "another sink. If it did not, the option decisionTopic was changed, or the cluster, or the "
        f"topic was deleted: then batch {batch_id} may be in the output already and is now written "
        "a second time. Stop the query, set the option back, and compare the output."
    )


def _finish(decision: Decision, batch: WrittenBatch) -> Generator[Step, Any, Ledger]:
    """Complete an earlier run's decision; return an empty ledger if the decision is void."""
    outcomes: Mapping[str, CommitOutcome] = yield CommitAll(decision.transactions)
    committed = [name for name, what in outcomes.items() if what is CommitOutcome.COMMITTED]
    lost = sorted(name for name, what in outcomes.items() if what is not CommitOutcome.COMMITTED)
    if not lost:
        yield WriteDone(decision)
        return Ledger(decision, is_done=True)
    if decision.batch_id < batch.batch_id:
        # Spark has continued since. This is the remedy for a batch that was lost in part, but
        # neither the log nor the cluster proves that the user applied it. So log a warning and
        # raise no error.
        yield Warn(_overtaken(decision, batch, len(committed), lost))
        return Ledger(decision, is_done=True)
    unknown = sorted(name for name, what in outcomes.items() if what is CommitOutcome.UNKNOWN)
    if unknown:
        raise OutcomeUnknownError(decision.batch_id, unknown)
    if committed:
        raise PartialCommitError(decision.batch_id, len(committed), lost)
    return Ledger()


def _overtaken(
    decision: Decision, batch: WrittenBatch, committed_count: int, lost: Sequence[str]
) -> str:
    return (
        f"batch {decision.batch_id} was decided, {committed_count} of its transactions are "
        f"committed, and {named(lost)} never were; and Spark is at batch {batch.batch_id}. This is "
        f"as it should be if the query ran with deliveryGuarantee=at-least-once in between, which "
        f"wrote batch {decision.batch_id} again. If it did not, rows of that batch are missing in "
        "the output: compare them with the input, whose offsets are in "
        f"offsets/{decision.batch_id} of the checkpoint."
    )


def _skip(decision: Decision, batch: WrittenBatch) -> Generator[Step, Any, Ledger]:
    """Abort the rows that were written now: the batch is already committed."""
    is_same = batch.row_count == decision.row_count and decision.digest in (None, batch.digest)
    if batch.fails_on_difference and not is_same:
        raise ReplayDiffersError(batch.batch_id, batch.row_count, decision.row_count)
    if decision.runs[-1] != batch.run:
        decision = replace(decision, runs=_with_run(decision, batch.run))
        yield WriteDecision(decision)
    yield AbortAll(batch.transactions)
    return Ledger(decision, is_done=True)


def _decide(before: Decision | None, batch: WrittenBatch) -> Generator[Step, Any, Ledger]:
    if batch.has_skipped:
        yield from _refuse_skipped(batch)
    yield from _look(batch)
    decision = Decision(
        batch.batch_id,
        batch.run,
        batch.row_count,
        batch.transactions,
        _with_run(before, batch.run),
        batch.digest,
        batch.id_prefix,
    )
    yield WriteDecision(decision)
    outcomes: Mapping[str, CommitOutcome] = yield CommitAll(decision.transactions)
    lost = sorted(name for name, what in outcomes.items() if what is not CommitOutcome.COMMITTED)
    if lost and len(lost) == len(outcomes):
        raise TransactionsLostError(batch.batch_id, lost, batch.timeout_ms)
    if lost:
        raise PartialCommitError(batch.batch_id, len(outcomes) - len(lost), lost)
    yield WriteDone(decision)
    return Ledger(decision, is_done=True)


def _look(batch: WrittenBatch) -> Generator[Step, Any, None]:
    """Reject a batch that has lost transactions, or may lose some before they are committed."""
    age_ms_max = longest_age_ms(batch.timeout_ms)
    sight: Sight = yield LookAt(batch.transactions, age_ms_max)
    names = [one.transactional_id for one in batch.transactions]
    lost = [name for name in names if name not in sight.open_ids]
    if lost:
        raise TransactionsLostError(batch.batch_id, lost, batch.timeout_ms)
    old = [name for name in names if name in sight.old_ids]
    if old:
        raise TransactionsTooOldError(batch.batch_id, old, age_ms_max, batch.timeout_ms)


def _refuse_skipped(batch: WrittenBatch) -> Generator[Step, Any, None]:
    """Raise the reason why a task found the batch committed and this driver did not."""
    ledger: Ledger = yield ReadLedger()
    decision = ledger.decision
    if decision is not None and is_committed(ledger, batch.batch_id):
        raise SupersededError(batch.run, decision.runs[-1])
    raise DecisionMissingError(batch.batch_id)


def longest_age_ms(timeout_ms: int) -> int:
    """Return the maximum age of an open transaction when its batch is decided."""
    margin_ms = max(timeout_ms // 10, MARGIN_MS_MIN)
    return timeout_ms - min(margin_ms, timeout_ms // 2)


def _sweep(ledger: Ledger, run: str, run_prefix: str, sweep: Sweep) -> Generator[Step, Any, bool]:
    """Abort transactions that no driver will decide: of lost or dead attempts, and of old runs.

    Return whether none is left. The batch has ended, so a failure here does not fail it.
    """
    if sweep is Sweep.NONE:
        return True
    try:
        leftover = yield from _leftover(ledger, run, run_prefix, sweep)
        if leftover:
            yield Fence(tuple(leftover[:FENCED_AT_ONCE_MAX]))
    except PenstockError as error:
        yield Warn(
            f"transactions that died tasks left open could not be aborted: {error}. The "
            "micro-batch is not concerned. A later one tries again; until then, or until "
            "kafka.transaction.timeout.ms is over, readers of committed records may wait for them."
        )
        return False
    return len(leftover) <= FENCED_AT_ONCE_MAX


def _leftover(
    ledger: Ledger, run: str, run_prefix: str, sweep: Sweep
) -> Generator[Step, Any, list[OpenTransaction]]:
    """Return open transactions that can never be decided.

    For this run: only this driver decides its transactions, and the batch has ended. For another
    run: its tasks begin the next batch only after its driver recorded itself in the log, with the
    batch that is committed here or a later one. So list the transactions first and read the log
    afterwards: if this run is still the newest, all listed transactions belong to decided batches.
    """
    listed: Iterable[OpenTransaction] = yield ListOpen()
    kept = unfinished(ledger)
    found = sorted(one for one in listed if one not in kept)
    own = [one for one in found if one.transactional_id.startswith(run_prefix)]
    if sweep is Sweep.OWN_RUN or len(own) == len(found):
        return own
    ledger = yield ReadLedger()
    return found if _is_newest(ledger, run) else own


def _with_run(decision: Decision | None, run: str) -> tuple[str, ...]:
    before = decision.runs if decision is not None else ()
    others = tuple(one for one in before if one != run)
    return (*others, run)[-RUNS_REMEMBERED_MAX:]


def _is_newest(ledger: Ledger, run: str) -> bool:
    return ledger.decision is not None and ledger.decision.runs[-1] == run


def _is_superseded(ledger: Ledger, run: str) -> bool:
    decision = ledger.decision
    return decision is not None and run in decision.runs and decision.runs[-1] != run


def _refuse_stranger(ledger: Ledger, batch: WrittenBatch) -> None:
    """Reject a replaced run, or a run whose new prefix keeps it from fencing earlier runs."""
    decision = ledger.decision
    if decision is None:
        return
    if _is_superseded(ledger, batch.run):
        raise SupersededError(batch.run, decision.runs[-1])
    if decision.id_prefix not in ("", batch.id_prefix):
        raise PrefixChangedError(decision.id_prefix, batch.id_prefix)


# --- The tasks ---


def is_committed(ledger: Ledger, batch_id: int) -> bool:
    """Return whether the whole batch is in the output, so a task has nothing to write."""
    decision = ledger.decision
    return decision is not None and ledger.is_done and decision.batch_id >= batch_id


def unfinished(ledger: Ledger) -> tuple[OpenTransaction, ...]:
    """Return decided transactions that may still be open; any process may commit them."""
    if ledger.decision is None or ledger.is_done:
        return ()
    return ledger.decision.transactions
