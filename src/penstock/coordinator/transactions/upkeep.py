"""Finds transactions past their timeout and expired transactional ids, a portion at a time.

Lookups over the state of one shard, without IO; what happens to them is NOT decided here.
"""

from collections.abc import Collection, Mapping

from penstock.coordinator.portions import Portion
from penstock.coordinator.transactions.states import AT_REST, TransactionState
from penstock.coordinator.transactions.transaction import Transaction


class LateTransactions:
    """Finds transactions that are open for longer than their timeout.

    A start in the future was written by a coordinator whose clock was ahead, or before the clock
    of this one went back. Such a transaction is as old as the time since it was seen here: it would
    keep readers of committed records waiting until the clock reaches its start.
    """

    def __init__(self) -> None:
        self._seen_ms: dict[tuple[str, int], int] = {}
        """When a start in the future was first seen, by transactional id and start."""

    def find(
        self, transactions: Mapping[str, Transaction], awaited: Collection[str], now_ms: int
    ) -> list[tuple[str, Transaction]]:
        """Return the late transactions that have no transition under way."""
        found, seen_ms = [], {}
        for transactional_id, transaction in transactions.items():
            if transaction.state is not TransactionState.ONGOING:
                continue
            begun_ms = transaction.started_ms
            if begun_ms > now_ms:
                key = transactional_id, begun_ms
                begun_ms = seen_ms[key] = min(self._seen_ms.get(key, now_ms), now_ms)
            if begun_ms + transaction.timeout_ms < now_ms and transactional_id not in awaited:
                found.append((transactional_id, transaction))
        self._seen_ms = seen_ms
        return found


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
