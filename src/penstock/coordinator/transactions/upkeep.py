"""Finds transactions past their timeout and expired transactional ids, a portion at a time.

Pure lookups over the state of one shard; what happens to them is NOT decided here.
"""

from collections.abc import Collection, Mapping

from penstock.coordinator.portions import Portion
from penstock.coordinator.transactions.states import AT_REST, TransactionState
from penstock.coordinator.transactions.transaction import Transaction


def late(
    transactions: Mapping[str, Transaction], awaited: Collection[str], now_ms: int
) -> list[tuple[str, Transaction]]:
    """Transactions that are open for longer than their timeout and have no transition under way."""
    return [
        (transactional_id, transaction)
        for transactional_id, transaction in transactions.items()
        if transaction.state is TransactionState.ONGOING
        and transaction.started_ms + transaction.timeout_ms < now_ms
        and transactional_id not in awaited
    ]


def expired(
    transactions: Mapping[str, Transaction], awaited: Collection[str], updated_ms_max: int
) -> list[str]:
    """Transactional ids at rest that were not updated after `updated_ms_max`."""
    return [
        transactional_id
        for transactional_id, transaction in transactions.items()
        if transaction.state in AT_REST
        and transaction.updated_ms <= updated_ms_max
        and transactional_id not in awaited
    ]


def portion_of_late(
    late: list[tuple[str, Transaction]], count_max: int
) -> list[tuple[str, Transaction]]:
    """The first late transactions, as many as one event aborts: records and batch are bounded."""
    portion, taken = Portion(count_max), []
    for transactional_id, now in late:
        topics = {partition.topic for partition in now.partitions}
        more_bytes = 8 * len(topics) + 4 * len(now.partitions)
        if not portion.take(transactional_id, *topics, more_bytes=more_bytes):
            break
        taken.append((transactional_id, now))
    return taken


def portion_of_expired(expired: list[str]) -> list[str]:
    """The first expired ids, as many as one event deletes."""
    portion, taken = Portion(), []
    for transactional_id in expired:
        if not portion.take(transactional_id):
            break
        taken.append(transactional_id)
    return taken
