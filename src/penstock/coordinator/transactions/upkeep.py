"""Which transactions are late and which transactional ids have rested too long; a portion of them.

Pure look-ups over the state of one shard; what is done about it is NOT decided here.
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
    """At rest and not touched since."""
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
    """The first of them, as many as are aborted in one event: records and batch are bounded."""
    portion, taken = Portion(count_max), []
    for transactional_id, now in late:
        topics = {partition.topic for partition in now.partitions}
        more_bytes = 8 * len(topics) + 4 * len(now.partitions)
        if not portion.take(transactional_id, *topics, more_bytes=more_bytes):
            break
        taken.append((transactional_id, now))
    return taken


def portion_of_expired(expired: list[str]) -> list[str]:
    """The first of them, as many as are forgotten in one event."""
    portion, taken = Portion(), []
    for transactional_id in expired:
        if not portion.take(transactional_id):
            break
        taken.append(transactional_id)
    return taken
