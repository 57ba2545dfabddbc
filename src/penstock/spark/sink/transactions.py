"""`SinkTransactions`: carries out the sink's protocol with brokers.

The driver's side is `SinkDriver`, one for each run of a query in a process: it keeps the ledger
between micro-batches, and drops it after any failure. Spark may use another process for the next
batch; then the log is read again. The tasks' side is `look_first` and `TaskWriting`. Only
`sink.decisions` decides the steps.
"""

import logging
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from penstock.client.cluster import Cluster
from penstock.client.transactions.producer_transactions import ProducerTransactions
from penstock.client.transactions.transaction_outcomes import OpenTransaction, is_open
from penstock.core.errors import BrokerAnswerError, PenstockError
from penstock.protocol.error_codes import ErrorCode
from penstock.spark.errors import OptionError
from penstock.spark.sink import decisions as protocol
from penstock.spark.sink import steps as sink_steps
from penstock.spark.sink.decision_log import DecisionLog
from penstock.spark.sink.decision_topic import ensure_topic
from penstock.spark.sink.options import SinkOptions
from penstock.spark.sink.steps import Ledger, Step, Sweep, WrittenBatch, added_digests

LOGGER: Final = logging.getLogger("penstock.spark")

NUMBERS: Final = 16_384
"""Spark numbers the attempts of all tasks of an application; an id has the number modulo this. So
an id is reused only after this number of task starts, and brokers need not keep more ids."""
IDS_PER_NUMBER_MAX: Final = 32
"""The maximum number of ids that an attempt tries to find one without an open transaction: half a
million transactions, more than a decision can list."""
SWEEP_SECONDS: Final = 30.0
"""How often the driver searches for transactions of dead attempts."""

Result = TypeVar("Result")


class RunIdentity(NamedTuple):
    """The identity of a query and of one start of it."""

    query: str
    run: str


@dataclass(frozen=True, slots=True)
class TaskResult:
    """A task's result for the driver."""

    identity: RunIdentity
    row_count: int
    digest: int
    """The digest of its rows, in any order."""
    transaction: OpenTransaction | None
    """None: the task had no rows, or wrote nothing because the batch is already committed."""
    is_skipped: bool = False
    is_repeated: bool = False
    """Whether an earlier attempt of this task failed."""


def query_prefix(options: SinkOptions, query: str) -> str:
    """Return the prefix of all transactional ids of a query."""
    return f"{options.id_prefix}.{query}."


def run_prefix(options: SinkOptions, identity: RunIdentity) -> str:
    """Return the prefix of the transactional ids of one run."""
    return f"{query_prefix(options, identity.query)}{identity.run}."


def task_ids(options: SinkOptions, identity: RunIdentity, attempt_id: int) -> list[str]:
    """Return the transactional ids of a task attempt, in the order in which it tries them."""
    stem = f"{run_prefix(options, identity)}{attempt_id % NUMBERS}"
    return [f"{stem}.{index}" for index in range(IDS_PER_NUMBER_MAX)]


def check_start(cluster: Cluster, options: SinkOptions) -> None:
    """Check the cluster and the options before the first row is written."""
    ensure_topic(cluster, options.decision_topic)
    try:
        ProducerTransactions(cluster).begin(
            f"{options.id_prefix}.start", options.transaction_timeout_ms
        )
    except BrokerAnswerError as error:
        if error.code != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise
        raise OptionError(
            "kafka.transaction.timeout.ms",
            f"{options.transaction_timeout_ms} is more than the brokers allow.",
            "Set at most their transaction.max.timeout.ms, or raise that. A transaction must live "
            "as long as a micro-batch takes, and after a crash until the query runs again.",
        ) from error


class SinkDriver:
    """The driver's part for one run of one query."""

    def __init__(self, cluster: Cluster, options: SinkOptions, identity: RunIdentity) -> None:
        self._cluster = cluster
        self._options = options
        self._identity = identity
        self._transactions = ProducerTransactions(cluster)
        self._log = DecisionLog(
            cluster,
            self._transactions,
            options.decision_topic,
            query=identity.query,
            id_prefix=options.id_prefix,
        )
        self._known: Ledger | None = None
        self._swept_at_seconds: float | None = None
        """None: no complete sweep in this process yet."""
        self._committed_at_seconds: float | None = None
        """The end time of the last batch; None: no batch in this process."""

    def commit(self, results: Sequence[TaskResult], batch_id: int) -> None:
        """Make the tasks' rows visible, exactly once."""
        batch = WrittenBatch(
            run=self._identity.run,
            batch_id=batch_id,
            row_count=sum(one.row_count for one in results),
            digest=added_digests(one.digest for one in results),
            transactions=tuple(one.transaction for one in results if one.transaction),
            run_prefix=run_prefix(self._options, self._identity),
            id_prefix=self._options.id_prefix,
            has_skipped=any(one.is_skipped for one in results),
            timeout_ms=self._options.transaction_timeout_ms,
            fails_on_difference=self._options.fails_on_difference,
        )
        now = self._cluster.clock.monotonic()
        sweep = self._sweep_due(now, is_repeated=any(one.is_repeated for one in results))
        known, self._known = self._known, None
        done = self._carry_out(protocol.commit_batch(batch, known, sweep))
        self._known = done.ledger
        if sweep is not Sweep.NONE:
            self._swept_at_seconds = now if done.is_swept else None
        self._committed_at_seconds = self._cluster.clock.monotonic()

    def _sweep_due(self, now_seconds: float, *, is_repeated: bool) -> Sweep:
        if self._swept_at_seconds is None:
            return Sweep.ALL_RUNS
        is_due = is_repeated or now_seconds - self._swept_at_seconds > SWEEP_SECONDS
        return Sweep.OWN_RUN if is_due else Sweep.NONE

    def abort(self, results: Sequence[TaskResult]) -> None:
        """Abort the tasks' transactions, unless they are decided."""
        self._known = None
        self._carry_out(
            protocol.abort_batch(
                self._identity.run,
                tuple(one.transaction for one in results if one.transaction),
                run_prefix(self._options, self._identity),
            )
        )

    def _carry_out(self, steps: Generator[Step, Any, Result]) -> Result:
        answer: Any = None
        failure: PenstockError | None = None
        while True:
            try:
                step = steps.send(answer) if failure is None else steps.throw(failure)
            except StopIteration as ended:
                result: Result = ended.value
                return result
            answer, failure = None, None
            try:
                answer = self.carry_out(step)
            except PenstockError as error:
                failure = error  # the protocol interprets the error

    def carry_out(self, step: Step) -> Any:  # noqa: ANN401 - each step has its own answer
        """Carry out one step, and return its result."""
        match step:
            case sink_steps.ReadLedger():
                return self._log.read()
            case sink_steps.TakeOwnership():
                return self._log.take_ownership()
            case sink_steps.WriteDecision(decision):
                return self._log.write(decision)
            case sink_steps.WriteDone(decision):
                return self._log.write_done(decision)
            case sink_steps.LookAt(transactions, age_ms_max):
                return self._look_at(transactions, age_ms_max)
            case sink_steps.Warn(warning):
                return LOGGER.warning("%s", warning)
            case _:
                return self._end(step)

    def _look_at(
        self, transactions: Sequence[OpenTransaction], age_ms_max: int
    ) -> sink_steps.Sight:
        sights = self._transactions.look_at(one.transactional_id for one in transactions)
        names = ((one, one.transactional_id) for one in transactions)
        open_ids = frozenset(name for one, name in names if is_open(one, sights.get(name)))
        return sink_steps.Sight(open_ids, self._older_than(age_ms_max))

    def _older_than(self, age_ms: int) -> frozenset[str]:
        """Return transactions of this run that are older; requests to brokers are rare.

        All transactions of a batch begin after the previous batch was committed. If this process
        committed the previous batch less than `age_ms` ago, no transaction is older.
        """
        after, now = self._committed_at_seconds, self._cluster.clock.monotonic()
        if after is not None and now - after < age_ms / 1000:
            return frozenset()
        prefix = run_prefix(self._options, self._identity)
        try:
            return frozenset(self._transactions.list_open(prefix, longer_than_ms=age_ms))
        except BrokerAnswerError as error:
            if error.code != ErrorCode.UNSUPPORTED_VERSION:
                raise
            return frozenset()  # brokers before Kafka 3.8 do not support the request

    def _end(
        self,
        step: sink_steps.CommitAll | sink_steps.AbortAll | sink_steps.ListOpen | sink_steps.Fence,
    ) -> Any:  # noqa: ANN401 - see above
        match step:
            case sink_steps.CommitAll(transactions):
                return self._transactions.commit_all(transactions)
            case sink_steps.AbortAll(transactions):
                return self._transactions.abort_all(transactions)
            case sink_steps.ListOpen():
                prefix = query_prefix(self._options, self._identity.query)
                found = self._transactions.find_open(prefix)
                # The log's writer ends the log's own transaction, or its short timeout does.
                return [one for one in found if one.transactional_id != self._log.owner_id]
            case sink_steps.Fence(transactions):
                timeout_ms = self._options.transaction_timeout_ms
                return self._transactions.fence_all(transactions, timeout_ms)


def look_first(
    cluster: Cluster, options: SinkOptions, identity: RunIdentity, *, finishes: bool
) -> Ledger:
    """Return the query's decisions, for a task that is about to write.

    With `finishes` it also commits the open transactions of an earlier run's decision: an early
    commit lets fewer of them time out. The driver commits them again, and judges the outcome.
    """
    transactions = ProducerTransactions(cluster)
    log = DecisionLog(
        cluster,
        transactions,
        options.decision_topic,
        query=identity.query,
        id_prefix=options.id_prefix,
    )
    ledger = log.read()
    if finishes:
        transactions.commit_all(protocol.unfinished(ledger))
    return ledger
