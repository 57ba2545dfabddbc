"""DescribeTransactions and ListTransactions, for administrators.

Reads the state, never changes it. Which shard holds an id is NOT known here.
"""

from collections.abc import Collection, Mapping

from penstock.coordinator.groups import regular_expressions
from penstock.coordinator.groups.refused import RefusedError
from penstock.coordinator.transactions.states import STATE_NAMES, STATES_BY_NAME
from penstock.coordinator.transactions.transaction import Transaction
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import describe_transactions, list_transactions
from penstock.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from penstock.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)


def described(
    request: DescribeTransactionsRequest, transactions: Mapping[str, Transaction]
) -> DescribeTransactionsResponse:
    """One entry for each id asked for, in that order."""
    return DescribeTransactionsResponse(
        transaction_states=tuple(
            _described_one(transactional_id, transactions.get(transactional_id))
            for transactional_id in request.transactional_ids
        )
    )


def undescribed(transactional_id: str, code: ErrorCode) -> describe_transactions.TransactionState:
    """The entry of an id that cannot be described."""
    return describe_transactions.TransactionState(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=(),
    )


def _described_one(
    transactional_id: str, transaction: Transaction | None
) -> describe_transactions.TransactionState:
    if not transactional_id:
        return undescribed(transactional_id, ErrorCode.INVALID_REQUEST)
    if transaction is None:
        return undescribed(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        by_topic.setdefault(topic, []).append(partition)
    return describe_transactions.TransactionState(
        transactional_id=transactional_id,
        transaction_state=STATE_NAMES[transaction.state],
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=tuple(
            TopicData(topic=topic, partitions=tuple(ids)) for topic, ids in by_topic.items()
        ),
    )


def listed(
    request: ListTransactionsRequest, transactions: Mapping[str, Transaction], now_ms: int
) -> ListTransactionsResponse:
    """Every id that passes all filters; a filter that is empty lets everything pass."""
    pattern = request.transactional_id_pattern
    matched: Collection[str] = transactions
    if pattern:
        try:
            regular_expressions.check(pattern)
            matched = regular_expressions.matching(pattern, transactions)
        except RefusedError as error:
            return ListTransactionsResponse(error_code=error.error_code, transaction_states=())
    producer_ids = frozenset(request.producer_id_filters)
    states = {STATES_BY_NAME[name] for name in request.state_filters if name in STATES_BY_NAME}

    def is_wanted(transactional_id: str, transaction: Transaction) -> bool:
        if producer_ids and transaction.producer_id not in producer_ids:
            return False
        if request.state_filters and transaction.state not in states:
            return False
        duration_ms = now_ms - transaction.started_ms
        if request.duration_filter >= 0 and duration_ms <= request.duration_filter:
            return False
        return transactional_id in matched

    return ListTransactionsResponse(
        unknown_state_filters=tuple(
            name for name in request.state_filters if name not in STATES_BY_NAME
        ),
        transaction_states=tuple(
            list_transactions.TransactionState(
                transactional_id=transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=STATE_NAMES[transaction.state],
            )
            for transactional_id, transaction in transactions.items()
            if is_wanted(transactional_id, transaction)
        ),
    )
