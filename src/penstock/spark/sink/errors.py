"""The errors of the exactly-once sink: each has the cause and the remedy.

Most of them stop the query before any row of the micro-batch is visible. `PartialCommitError` is
raised after part of a batch became visible.
"""

from collections.abc import Sequence

from penstock.spark.errors import SparkQueryError, first_of

_NAMED_MAX = 5
"""The number of transactions named in a text; further ones are counted."""


class SinkError(SparkQueryError):
    """Base of the errors of the exactly-once sink."""


class SupersededError(SinkError):
    """Another run of the same query has taken over."""

    def __init__(self, run: str, successor: str) -> None:
        super().__init__(
            f"run {run} of this query was replaced by run {successor}, which writes to the same "
            "topics with the same checkpoint. No row of this micro-batch became visible through "
            "this run. Stop the driver that should not run; the other one continues."
        )


class OwnershipLostError(SinkError):
    """The driver was fenced from the decision log in the middle of a commit."""

    def __init__(self, batch_id: int, answer: str) -> None:
        super().__init__(
            f"another driver of this query acquired the log of decisions while this one committed "
            f"batch {batch_id}, or the brokers took longer than a minute for it and gave it up "
            f"({answer}). The log records whether the batch is decided, and a restart of the query "
            "continues from there. If a second driver runs this query, stop the one that should "
            "not run."
        )


class OwnershipForgottenError(SinkError):
    """The cluster has dropped the transactional id of the decision log's owner."""

    def __init__(self, batch_id: int, answer: str) -> None:
        super().__init__(
            f"the cluster has forgotten that this driver owns the log of decisions ({answer}), so "
            f"that batch {batch_id} could not be decided. A transactional id is forgotten when it "
            "was unused for the brokers' transactional.id.expiration.ms, or when the brokers lost "
            "their state of transactions. Restart the query: it acquires the log again, and "
            "writes the batch anew if it is not decided. If it happens again soon, check the "
            "brokers' __transaction_state."
        )


class DecisionMissingError(SinkError):
    """Tasks found a batch committed, but the log has lost this decision."""

    def __init__(self, batch_id: int) -> None:
        super().__init__(
            f"tasks found batch {batch_id} committed and wrote nothing, and now the topic of "
            "decisions does not say so: the topic or records of it were deleted meanwhile. "
            "No row of the batch became visible through this run. A restart writes the batch; if "
            "it is in the output already, that is a second time. So compare the output with the "
            f"input first, whose offsets are in offsets/{batch_id} of the checkpoint."
        )


class CheckpointSetBackError(SinkError):
    """The checkpoint is older than the sink's last committed batch."""

    def __init__(self, batch_id: int, decided_batch_id: int) -> None:
        super().__init__(
            f"Spark runs batch {batch_id}, and the sink has committed batch {decided_batch_id} of "
            "this query: the checkpoint was set back further than its last batch, so Spark may cut "
            "the input into other batches than before, and rows would be lost or written twice. "
            f"Restore a checkpoint that has offsets/{decided_batch_id}; or start with a new "
            "checkpoint location and starting offsets that fit what the output has."
        )


class PrefixChangedError(SinkError):
    """The prefix of the query's transactional ids has changed."""

    def __init__(self, decided: str, given: str) -> None:
        super().__init__(
            f"this query has committed batches with transactionalIdPrefix={decided}, and now it is "
            f"{given}. A driver that still runs with the old one would not be fenced, and both "
            "would write. No row of this micro-batch became visible. Set the option back to "
            f"{decided}; to use another one, start with a new checkpoint location and starting "
            "offsets that fit what the output has."
        )


class ReplayDiffersError(SinkError):
    """A committed batch is repeated with different rows."""

    def __init__(self, batch_id: int, row_count: int, decided_row_count: int) -> None:
        is_same = row_count == decided_row_count
        other = "the same number of other rows" if is_same else f"{row_count} rows"
        super().__init__(
            f"batch {batch_id} was committed with {decided_row_count} rows, and is repeated with "
            f"{other}. Its new rows are not written, because a committed batch is not written "
            "again, so rows would be lost or doubled. This happens when "
            f"offsets/{batch_id} of the checkpoint was lost and Spark planned the batch anew: "
            "restore that file. It also happens when the query returns other rows each time it "
            "runs: uuid(), rand(), the time of day, or sums of doubles, which depend on the order. "
            "Then nothing is lost, because the rows of the first time are there: set the option "
            "failOnReplayDifference to false."
        )


class TransactionsLostError(SinkError):
    """Transactions of a batch ended before the batch was decided, or all of them after it."""

    def __init__(self, batch_id: int, lost: Sequence[str], timeout_ms: int) -> None:
        super().__init__(
            f"{named(lost)} of batch {batch_id} ended before the batch could be committed. "
            "Nothing of the batch is visible, and a restart of the query writes it anew. The "
            f"cluster aborts a transaction that is open for longer than {timeout_ms} ms: if the "
            "batch takes as long, raise kafka.transaction.timeout.ms (and the brokers' "
            "transaction.max.timeout.ms with it) or make batches smaller (maxOffsetsPerTrigger). "
            "If it does not, see whether a second driver runs this query."
        )


class TransactionsTooOldError(SinkError):
    """Transactions of a batch are too close to their timeout for a safe decision."""

    def __init__(self, batch_id: int, old: Sequence[str], age_ms_max: int, timeout_ms: int) -> None:
        super().__init__(
            f"batch {batch_id} took too long: {named(old)} began more than {age_ms_max} ms ago, "
            f"and the cluster aborts a transaction after {timeout_ms} ms, which could happen in "
            "the middle of the commit. Nothing of the batch is visible, and a restart of the query "
            "writes it anew. Raise kafka.transaction.timeout.ms (and the brokers' "
            "transaction.max.timeout.ms with it) or make batches smaller (maxOffsetsPerTrigger)."
        )


class TransactionsLeftOpenError(SinkError):
    """Too many transactions of a run are open: no transactional id is free."""

    def __init__(self, tried: Sequence[str], timeout_ms: int) -> None:
        super().__init__(
            f"{len(tried)} transactions are open under the ids that this task may use: "
            f"{named(tried)}. Either attempts of tasks die by the thousands, and what they left is "
            f"not aborted yet: look at why, and restart the query; after {timeout_ms} ms the "
            "cluster has aborted it. Or the micro-batch has more tasks than a decision can list: "
            "write with fewer, df.coalesce(n) before writeStream."
        )


class PartialCommitError(SinkError):
    """A decided batch cannot be completed: part of it is visible, and the rest is gone."""

    def __init__(self, batch_id: int, visible_count: int, lost: Sequence[str]) -> None:
        super().__init__(
            f"batch {batch_id} was decided, {visible_count} of its transactions are committed, and "
            f"{named(lost)} cannot be: the cluster aborted or forgot them before the driver came "
            "back (kafka.transaction.timeout.ms counts on while the query is down). Rows of the "
            "batch are missing in the output. To write the whole batch again, with the rows that "
            "are visible twice, start the query once with deliveryGuarantee=at-least-once until "
            f"batch {batch_id} is over, then as before."
        )


class OutcomeUnknownError(SinkError):
    """The cluster has dropped the transactions of a decided batch: it may be visible or not."""

    def __init__(self, batch_id: int, forgotten: Sequence[str]) -> None:
        super().__init__(
            f"batch {batch_id} was decided, and the cluster does not know {named(forgotten)} any "
            "more, so it is unknown whether its rows are in the output. This happens when a "
            "query restarts after longer than the brokers' transactional.id.expiration.ms. Check "
            "the output. To write the batch again, which duplicates it if it is there, start "
            f"the query once with deliveryGuarantee=at-least-once until batch {batch_id} is over, "
            "then as before."
        )


class DecisionTopicError(SinkError):
    """The decision topic is unusable."""


def named(transactional_ids: Sequence[str]) -> str:
    """Return these transactions for a sentence: the first few by name."""
    noun = "transaction" if len(transactional_ids) == 1 else "transactions"
    return f"{noun} {first_of(transactional_ids, _NAMED_MAX)}"
