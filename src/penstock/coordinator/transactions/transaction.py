"""`Transaction`: the stored state of one transactional id, and its valid transitions.

A frozen value. Each function here takes the present one and returns the one that a record will
hold; the checks before that are in `decisions`. As in Kafka, a record does NOT hold the epoch
before the last bump: the shard remembers it in memory.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from penstock.coordinator.shard import StoredRecord
from penstock.coordinator.transactions.states import (
    AT_REST,
    ENDING,
    LAWFUL_FROM,
    TransactionState,
)
from penstock.core.types import TopicPartition
from penstock.protocol.stored.transaction_records import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionLogValuePartitionsSchema,
)

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
PRODUCER_EPOCH_MAX: Final = 32_767
"""The largest int16. No client ever gets it, so that the coordinator can always fence."""
TRANSACTION_VERSION_2: Final = 2
"""Starting at this version, every end of a transaction bumps the epoch (KIP-890)."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transactional id."""

    producer_id: int
    previous_producer_id: int
    """The id in the previous record; differs from `producer_id` after a rotation."""
    next_producer_id: int
    """Used once the markers are written, because the epochs of `producer_id` ran out."""
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    started_ms: int
    updated_ms: int
    client_version: int
    """The transaction version that the client used for its last transition."""

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the next bump needs a new producer id."""
        return is_epoch_exhausted(self.producer_epoch)

    @property
    def is_ending(self) -> bool:
        """Whether the outcome is decided and markers are due."""
        return self.state in ENDING


def is_epoch_exhausted(epoch: int) -> bool:
    """Whether this is the last epoch that a client may have."""
    return epoch >= PRODUCER_EPOCH_MAX - 1


def created(producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """An id that was never seen; its first epoch will be 0."""
    return Transaction(
        producer_id=producer_id,
        previous_producer_id=NO_PRODUCER_ID,
        next_producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        started_ms=-1,
        updated_ms=now_ms,
        client_version=0,
    )


def initialized(
    now: Transaction, producer_id: int, producer_epoch: int, timeout_ms: int, now_ms: int
) -> Transaction:
    """After InitProducerId: no transaction is open, and this producer may open one."""
    return _moved(
        now,
        TransactionState.EMPTY,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        started_ms=-1,
        updated_ms=now_ms,
    )


def with_partitions(
    now: Transaction, added: Iterable[TopicPartition], client_version: int, now_ms: int
) -> Transaction:
    """After AddPartitionsToTxn: the transaction is open."""
    return _moved(
        now,
        TransactionState.ONGOING,
        partitions=now.partitions.union(added),
        started_ms=now_ms if now.state in AT_REST else now.started_ms,
        updated_ms=now_ms,
        client_version=client_version,
    )


def ending(
    now: Transaction, *, commits: bool, client_version: int, next_producer_id: int, now_ms: int
) -> Transaction:
    """After EndTxn: decided. With transaction version 2 the epoch grows, which fences late writes.

    Only a defect can leave an epoch of 32767; its transaction is aborted with it, so that the id
    can be used again.
    """
    epoch = now.producer_epoch
    if client_version >= TRANSACTION_VERSION_2:
        epoch = min(epoch + 1, PRODUCER_EPOCH_MAX)
    return _moved(
        now,
        TransactionState.PREPARE_COMMIT if commits else TransactionState.PREPARE_ABORT,
        producer_epoch=epoch,
        next_producer_id=next_producer_id,
        # An abort of a transaction that never began also needs a start.
        started_ms=now_ms if now.state in AT_REST else now.started_ms,
        updated_ms=now_ms,
        client_version=client_version,
    )


def completed(now: Transaction, now_ms: int) -> Transaction:
    """After the markers: at rest, and the new producer id replaces the old if there is one."""
    rotates = now.client_version >= TRANSACTION_VERSION_2 and now.next_producer_id != NO_PRODUCER_ID
    return _moved(
        now,
        TransactionState.COMPLETE_COMMIT
        if now.state is TransactionState.PREPARE_COMMIT
        else TransactionState.COMPLETE_ABORT,
        producer_id=now.next_producer_id if rotates else now.producer_id,
        producer_epoch=0 if rotates else now.producer_epoch,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        updated_ms=now_ms,
    )


def _moved(now: Transaction, state: TransactionState, **changes: object) -> Transaction:
    assert now.state in LAWFUL_FROM[state], f"{now.state.name} may not become {state.name}"
    moved = replace(now, state=state, previous_producer_id=now.producer_id, **changes)  # type: ignore[arg-type]
    validate(moved)
    return moved


def validate(transaction: Transaction) -> None:
    """Assert the invariants of every stored value."""
    assert transaction.producer_id >= 0, transaction
    assert 0 <= transaction.producer_epoch <= PRODUCER_EPOCH_MAX, transaction
    assert transaction.timeout_ms > 0, transaction
    if transaction.state in AT_REST:
        assert not transaction.partitions, transaction
    if transaction.state is not TransactionState.EMPTY:
        assert transaction.started_ms >= 0, transaction
    if transaction.next_producer_id != NO_PRODUCER_ID:
        assert transaction.is_ending, transaction
    assert transaction.state not in (
        TransactionState.DEAD,
        TransactionState.PREPARE_EPOCH_FENCE,
    ), transaction


def record_of(transactional_id: str, transaction: Transaction) -> StoredRecord:
    """The record that stores this value."""
    by_topic: dict[str, list[int]] = {}
    for partition in sorted(transaction.partitions):
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    is_empty = transaction.state is TransactionState.EMPTY
    return StoredRecord(
        TransactionLogKey(transactional_id=transactional_id),
        TransactionLogValue(
            producer_id=transaction.producer_id,
            previous_producer_id=transaction.previous_producer_id,
            next_producer_id=transaction.next_producer_id,
            producer_epoch=transaction.producer_epoch,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_status=transaction.state,
            # Kafka writes null, not an empty list, for an id without a transaction.
            transaction_partitions=None
            if is_empty
            else tuple(
                TransactionLogValuePartitionsSchema(topic=topic, partition_ids=tuple(ids))
                for topic, ids in by_topic.items()
            ),
            transaction_last_update_timestamp_ms=transaction.updated_ms,
            transaction_start_timestamp_ms=transaction.started_ms,
            client_transaction_version=transaction.client_version,
        ),
    )


def of_record(value: TransactionLogValue) -> Transaction:
    """The value that a record holds."""
    return Transaction(
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        started_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )
