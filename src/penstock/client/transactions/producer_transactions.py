"""`ProducerTransactions`: begin, write, describe and end transactions, also of other processes.

One process begins and writes a transaction, and another may end it. An `OpenTransaction` contains
everything for that; it is a value that can be stored and sent. Two versions of the protocol are
supported. In version 2 (KIP-890, Kafka 4.0 and later) Produce itself adds a partition, and every
end raises the epoch. In version 0 partitions are added before. The cluster's finalized feature
`transaction.version` decides.

The end of a transaction is retried until it is answered: the coordinator recognizes a repeated end
by its epoch. For any number of transactions, each coordinator gets its calls at once. It belongs to
one thread. It writes no records: see `batch_sender`.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from penstock.client.calls import INIT_PRODUCER_ID_VERSION_MAX, by_topic
from penstock.client.cluster import Cluster
from penstock.client.coordinators import CoordinatorKind, Coordinators
from penstock.client.transactions.transaction_outcomes import (
    OPEN_STATE,
    REFUSALS,
    CommitOutcome,
    OpenTransaction,
    TransactionSight,
    outcome_of_sight,
)
from penstock.client.transactions.transactions import NO_TIME, OPEN_STATES, Transactions
from penstock.client.transport.call import Call, raise_error
from penstock.client.transport.versions import ASK_VERSIONS, ask_versions
from penstock.core.errors import AnswerLostError, BrokerAnswerError, ClientError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
)

VERSION_FEATURE: Final = "transaction.version"
VERSION_0: Final = 0
VERSION_2: Final = 2
ADD_VERSION_MAX: Final = 3
"""Later versions are for brokers."""
END_VERSION_MAX_0: Final = 4
"""EndTxn 5 is version 2 of the protocol."""
DESCRIBED_AT_ONCE_MAX: Final = 1_000
LOOK_SECONDS_MAX: Final = 5.0
"""The largest age of a description of a free id at the time of InitProducerId."""


class ProducerTransactions:
    """Transactions of one cluster, for their producers and for the processes that end them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators = Coordinators(cluster, CoordinatorKind.TRANSACTION)
        self._version: int | None = None

    def version(self) -> int:
        """Return the transaction version of the cluster: 0 or 2."""
        if self._version is None:
            question = ask_versions(ASK_VERSIONS[1])
            answer = self._cluster.repeat(lambda: self._cluster.anywhere(question), repeatable=True)
            levels = {one.name: one.max_version_level for one in answer.finalized_features}
            is_second = levels.get(VERSION_FEATURE, 0) >= VERSION_2
            self._version = VERSION_2 if is_second else VERSION_0
        return self._version

    def begin(self, transactional_id: str, timeout_ms: int) -> OpenTransaction:
        """Initialize the transactional id; fence its previous producer, abort its transaction."""
        identity = self._coordinators.ask(
            transactional_id, start_call(transactional_id, timeout_ms), repeatable=True
        )
        return OpenTransaction(transactional_id, *identity, self.version())

    def begin_unused(
        self, transactional_ids: Iterable[str], timeout_ms: int
    ) -> OpenTransaction | None:
        """Initialize the first id without an open transaction; None when all have one.

        Open transactions of other producers are not aborted, with one exception: a transaction that
        is begun and written between our description and our InitProducerId, which follow one
        another. Brokers cannot do both at once: with an expected epoch, InitProducerId treats a
        second producer as a repetition of the first.
        """
        for name in transactional_ids:
            begun = self._cluster.repeat(
                partial(self._begin_if_unused, name, timeout_ms), repeatable=True
            )
            if begun is not None:
                return begun
        return None

    def _begin_if_unused(self, name: str, timeout_ms: int) -> OpenTransaction | None:
        """Describe and initialize once; a retry describes again."""
        version, looked_at_seconds = self.version(), self._cluster.clock.monotonic()
        sight = self.look_at([name]).get(name)
        if sight is not None and sight.state in OPEN_STATES:
            return None
        coordinator = self._coordinators.find(name)
        if self._cluster.clock.monotonic() - looked_at_seconds > LOOK_SECONDS_MAX:
            raise AnswerLostError(
                f"the state of the transactional id {name} arrived too late to act on it"
            )
        try:
            identity = self._cluster.at(coordinator.address, start_call(name, timeout_ms))
        except ClientError:
            self._coordinators.forget(name)
            raise
        return OpenTransaction(name, *identity, version)

    def add_partitions(
        self, transaction: OpenTransaction, partitions: Iterable[TopicPartition]
    ) -> None:
        """Add partitions to the transaction before writing; with version 2 Produce does it."""
        if transaction.version == VERSION_0:
            self._coordinators.ask(
                transaction.transactional_id,
                add_call(transaction, list(partitions)),
                repeatable=True,
            )

    def end(self, transaction: OpenTransaction, *, commits: bool) -> OpenTransaction:
        """End the transaction; return the identity of the producer's next transaction."""
        return self._coordinators.ask(
            transaction.transactional_id, end_call(transaction, commits=commits), repeatable=True
        )

    def commit_all(self, transactions: Sequence[OpenTransaction]) -> dict[str, CommitOutcome]:
        """Commit all transactions; return the outcome of each by transactional id."""
        answers = self._end_all(transactions, commits=True)
        refused = [one for one in transactions if answers[one.transactional_id] is not None]
        outcomes = {one.transactional_id: CommitOutcome.COMMITTED for one in transactions}
        if refused:
            sights = self.look_at(one.transactional_id for one in refused)
            for one in refused:
                name = one.transactional_id
                outcomes[name] = outcome_of_sight(one, sights.get(name))
        return outcomes

    def abort_all(self, transactions: Sequence[OpenTransaction]) -> None:
        """Abort all open transactions of the list; ended transactions stay unchanged."""
        self._end_all(transactions, commits=False)

    def look_at(self, transactional_ids: Iterable[str]) -> dict[str, TransactionSight]:
        """Return the coordinators' descriptions of these ids; unknown ids are absent."""
        sights: dict[str, TransactionSight] = {}
        unknown: set[str] = set()
        wanted = list(transactional_ids)

        def attempt() -> None:
            asked: dict[str, list[str]] = {}
            missing = [name for name in wanted if name not in sights and name not in unknown]
            for name, coordinator in self._coordinators.find_all(missing).items():
                asked.setdefault(str(coordinator.address), []).append(name)
            for names in asked.values():
                for position in range(0, len(names), DESCRIBED_AT_ONCE_MAX):
                    self._look_at(names[position:][:DESCRIBED_AT_ONCE_MAX], sights, unknown)

        self._cluster.repeat(attempt, repeatable=True)
        return sights

    def list_open(self, prefix: str, *, longer_than_ms: int = NO_TIME) -> list[str]:
        """Return the transactional ids with this prefix and an open transaction, on all brokers.

        With a duration, return only ids that are open for longer. Brokers before Kafka 3.8 do not
        support it and raise UNSUPPORTED_VERSION.
        """
        listed = Transactions(self._cluster).list_all([OPEN_STATE], longer_than_ms=longer_than_ms)
        names = (one.transactional_id for one in listed)
        return [name for name in names if name.startswith(prefix)]

    def find_open(self, prefix: str) -> list[OpenTransaction]:
        """Return the open transactions under ids with this prefix; any process can end them."""
        sights = self.look_at(self.list_open(prefix))
        version = self.version()
        return [
            OpenTransaction(name, sight.producer_id, sight.producer_epoch, version)
            for name, sight in sights.items()
            if sight.state == OPEN_STATE
        ]

    def fence_all(self, transactions: Iterable[OpenTransaction], timeout_ms: int) -> None:
        """Abort the open transactions of the list, and fence their producers.

        With version 2 the end of a transaction raises the epoch. So its producer is fenced, and
        later transactions under the same id are not affected. With version 0 only InitProducerId
        fences.
        """
        wanted = list(transactions)
        self._end_all([one for one in wanted if one.version == VERSION_2], commits=False)
        names = [one.transactional_id for one in wanted if one.version == VERSION_0]
        calls = {name: start_call(name, timeout_ms) for name in names}
        for answer in self._coordinators.ask_each(calls, repeatable=True).values():
            if isinstance(answer, BrokerAnswerError):
                raise answer

    def _end_all(
        self, transactions: Sequence[OpenTransaction], *, commits: bool
    ) -> dict[str, BrokerAnswerError | None]:
        calls = {one.transactional_id: end_call(one, commits=commits) for one in transactions}
        answers: dict[str, BrokerAnswerError | None] = {}
        for name, answer in self._coordinators.ask_each(calls, repeatable=True).items():
            if isinstance(answer, BrokerAnswerError):
                if ErrorCode(answer.code) not in REFUSALS:
                    raise answer
                answers[name] = answer
            else:
                answers[name] = None
        return answers

    def _look_at(
        self, names: list[str], sights: dict[str, TransactionSight], unknown: set[str]
    ) -> None:
        described = self._coordinators.ask(names[0], _describe(names), repeatable=True)
        for one in described:
            if one.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                unknown.add(one.transactional_id)
                continue
            if one.error_code != ErrorCode.NONE:
                self._coordinators.forget(one.transactional_id)
                raise_error(one.error_code, None, one.transactional_id)
            sights[one.transactional_id] = TransactionSight(
                one.transaction_state, one.producer_id, one.producer_epoch
            )


def start_call(transactional_id: str, timeout_ms: int) -> Call[tuple[int, int]]:
    """Initialize a transactional id; return the producer id and its epoch."""
    request = init_producer_id.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )

    def read(answer: init_producer_id.InitProducerIdResponse) -> tuple[int, int]:
        raise_error(answer.error_code, None, transactional_id)
        return answer.producer_id, answer.producer_epoch

    return Call(
        request, init_producer_id.InitProducerIdResponse, read, INIT_PRODUCER_ID_VERSION_MAX
    )


def add_call(transaction: OpenTransaction, partitions: Sequence[TopicPartition]) -> Call[None]:
    """Add partitions to a transaction of version 0."""
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transaction.transactional_id,
        v3_and_below_producer_id=transaction.producer_id,
        v3_and_below_producer_epoch=transaction.producer_epoch,
        v3_and_below_topics=tuple(
            add_partitions_to_txn.AddPartitionsToTxnTopic(
                name=topic, partitions=tuple(at.partition for at in some)
            )
            for topic, some in by_topic(partitions).items()
        ),
    )

    def read(answer: add_partitions_to_txn.AddPartitionsToTxnResponse) -> None:
        for topic in answer.results_by_topic_v3_and_below:
            for one in topic.results_by_partition:
                # The other partitions have OPERATION_NOT_ATTEMPTED; this one has the reason.
                if one.partition_error_code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                    at = TopicPartition(topic.name, one.partition_index)
                    raise_error(one.partition_error_code, None, str(at))

    return Call(request, add_partitions_to_txn.AddPartitionsToTxnResponse, read, ADD_VERSION_MAX)


def end_call(transaction: OpenTransaction, *, commits: bool) -> Call[OpenTransaction]:
    """End a transaction; return the identity of the next one."""
    request = end_txn.EndTxnRequest(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        committed=commits,
    )
    is_second = transaction.version == VERSION_2

    def read(answer: end_txn.EndTxnResponse) -> OpenTransaction:
        raise_error(answer.error_code, None, transaction.transactional_id)
        if not is_second:
            return transaction
        return transaction._replace(
            producer_id=answer.producer_id, producer_epoch=answer.producer_epoch
        )

    version_max = None if is_second else END_VERSION_MAX_0
    return Call(request, end_txn.EndTxnResponse, read, version_max)


def _describe(
    names: Sequence[str],
) -> Call[tuple[describe_transactions.TransactionState, ...]]:
    request = describe_transactions.DescribeTransactionsRequest(transactional_ids=tuple(names))
    return Call(
        request,
        describe_transactions.DescribeTransactionsResponse,
        lambda answer: answer.transaction_states,
    )
