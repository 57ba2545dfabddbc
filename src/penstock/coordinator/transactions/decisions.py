"""Checks of requests against the state of a transaction, as in Apache Kafka 4.3 and in its order.

Pure functions of the present value and of the client's request. Each returns an error code or the
next step; the record of it is NOT created here.
"""

from collections.abc import Collection
from enum import Enum, auto
from typing import Final, NamedTuple

from penstock.coordinator.shard import Producer
from penstock.coordinator.transactions.states import TransactionState
from penstock.coordinator.transactions.transaction import (
    NO_PRODUCER_EPOCH,
    PRODUCER_EPOCH_MAX,
    TRANSACTION_VERSION_2,
    Transaction,
    is_epoch_exhausted,
)
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode

_S = TransactionState


class NewEpoch(NamedTuple):
    """Let the producer go on with this epoch of its id."""

    producer_epoch: int
    last_epoch: int
    """The epoch before it, by which a retry is recognized; -1 for a new producer."""


class Step(Enum):
    """The next step when it is neither an error nor a new epoch."""

    ROTATE = auto()
    """The epochs ran out: allocate a new producer id."""
    FENCE = auto()
    """A transaction of the previous producer is open: abort it first."""
    ADD = auto()
    END = auto()
    NOTHING = auto()
    """A retry: answer with the present state."""


INVALID_STATE: Final = ErrorCode.INVALID_TXN_STATE


def on_init(
    now: Transaction, last_epoch: int, expected: Producer | None
) -> ErrorCode | NewEpoch | Step:
    """InitProducerId of a transactional id that is known or was just created, and not ending."""
    assert not now.is_ending, now
    if expected is not None and not _may_be_the_same(now, expected):
        return ErrorCode.PRODUCER_FENCED
    if now.state is _S.ONGOING:
        return Step.FENCE
    epoch = now.producer_epoch
    if now.is_epoch_exhausted and (expected is None or expected.producer_epoch == epoch):
        return Step.ROTATE
    if expected is None:
        return NewEpoch(epoch + 1, NO_PRODUCER_EPOCH)
    if epoch in (NO_PRODUCER_EPOCH, expected.producer_epoch):
        # A producer that goes on after an error (KIP-360): no other one came in between.
        return NewEpoch(epoch + 1, epoch)
    if expected.producer_epoch == last_epoch:
        # It did not get our answer and asks again. A new producer would have reset `last_epoch`.
        return NewEpoch(epoch, last_epoch)
    return ErrorCode.PRODUCER_FENCED


def _may_be_the_same(now: Transaction, expected: Producer) -> bool:
    return (
        now.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == now.producer_id
        or (
            # Its id was rotated and it did not get the answer.
            expected.producer_id == now.previous_producer_id
            and is_epoch_exhausted(expected.producer_epoch)
        )
    )


def on_add(
    now: Transaction, claimed: Producer, partitions: Collection[TopicPartition]
) -> ErrorCode | Step:
    """AddPartitionsToTxn, AddOffsetsToTxn, implicit adds; to a transaction that is not ending."""
    assert not now.is_ending, now
    error = _stranger(now, claimed)
    if error is not None:
        return error
    if now.state is _S.ONGOING and now.partitions.issuperset(partitions):
        return Step.NOTHING
    return Step.ADD


def on_verify(now: Transaction, claimed: Producer) -> ErrorCode | None:
    """AddPartitionsToTxn that only verifies; None when each partition may be looked up."""
    error = _stranger(now, claimed)
    if error is not None:
        return error
    return ErrorCode.CONCURRENT_TRANSACTIONS if now.is_ending else None


def _stranger(now: Transaction, claimed: Producer) -> ErrorCode | None:
    if now.producer_id != claimed.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if now.producer_epoch != claimed.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return None


def on_end(
    now: Transaction, claimed: Producer, *, commits: bool, client_version: int
) -> ErrorCode | Step:
    """EndTxn."""
    if client_version < TRANSACTION_VERSION_2:
        return _on_end_version_0(now, claimed, commits=commits)
    return _on_end_version_2(now, claimed, commits=commits)


def _on_end_version_0(now: Transaction, claimed: Producer, *, commits: bool) -> ErrorCode | Step:
    error = _stranger(now, claimed)
    if error is not None:
        return error
    if now.is_ending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if now.state is _S.ONGOING:
        return Step.END
    done = _S.COMPLETE_COMMIT if commits else _S.COMPLETE_ABORT
    return Step.NOTHING if now.state is done else INVALID_STATE


def _on_end_version_2(now: Transaction, claimed: Producer, *, commits: bool) -> ErrorCode | Step:
    """Every end bumps the epoch, which distinguishes a retry from the next transaction's end."""
    if now.is_ending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    epoch = claimed.producer_epoch
    is_rotated = (
        now.previous_producer_id == claimed.producer_id
        and epoch == PRODUCER_EPOCH_MAX - 1
        and now.producer_epoch == 0
    )
    is_retry = now.producer_epoch == epoch + 1 or is_rotated
    if now.producer_id != claimed.producer_id and not is_rotated:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    is_complete = now.state in (_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)
    if now.producer_epoch != epoch and not (is_complete and is_retry):
        return ErrorCode.PRODUCER_FENCED
    if now.state is _S.ONGOING:
        return Step.END
    if is_complete and is_retry:
        done = _S.COMPLETE_COMMIT if commits else _S.COMPLETE_ABORT
        return Step.NOTHING if now.state is done else INVALID_STATE
    # No transaction is open. An abort is allowed anyway: its markers and its bump ensure that no
    # batch still in flight can be accepted.
    return INVALID_STATE if commits else Step.END
