"""Meaning of the answers about a transaction that should be committed (pure).

EndTxn may be repeated with the producer id and epoch of the transaction. Apache Kafka 4.3 and
Penstock answer a commit as follows:

    the transaction                          with version 2          with version 0
    is open                                  NONE, epoch + 1         NONE
    was committed (markers written)          NONE                    NONE
    was committed, markers under way         CONCURRENT_TRANSACTIONS CONCURRENT_TRANSACTIONS
    was aborted by its own producer          INVALID_TXN_STATE       INVALID_TXN_STATE
    was aborted by its timeout               PRODUCER_FENCED or      PRODUCER_FENCED
                                             INVALID_TXN_STATE
    was aborted by an InitProducerId         PRODUCER_FENCED         PRODUCER_FENCED
    is forgotten (the id expired)            INVALID_PRODUCER_ID_MAPPING, both

CONCURRENT_TRANSACTIONS is retried. After any other error the coordinator's description decides. Its
state shows an abort, until the id is used again; any other outcome is unknown. With version 2 the
epoch distinguishes our abort from the abort of a later transaction under the same id: a commit and
another begin each raised the epoch by one before it. With version 0 it does not. So a process that
ends transactions of others must prevent the reuse of their ids before that.
"""

from enum import Enum, auto
from typing import Final, NamedTuple

from penstock.protocol.error_codes import ErrorCode

_ABORTED_STATES: Final = frozenset({"PrepareAbort", "CompleteAbort", "PrepareEpochFence"})
OPEN_STATE: Final = "Ongoing"
_ABORT_EPOCHS_MAX: Final = 2
"""The largest increase of the epoch by an abort with version 2: by one, and by one more after a
timeout. A commit, a begin and an abort raise it by three at least."""

REFUSALS: Final = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""Errors of EndTxn that leave the outcome of the transaction open."""


class CommitOutcome(Enum):
    """The outcome of a commit."""

    COMMITTED = auto()
    """Committed by this call, or before."""
    ABORTED = auto()
    UNKNOWN = auto()
    """The cluster does not know the transaction any more."""


class OpenTransaction(NamedTuple):
    """A transaction that is being or was written, with all that a process needs to end it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    version: int
    """The transaction version that wrote it; the end must use the same version."""


class TransactionSight(NamedTuple):
    """A coordinator's description of a transactional id."""

    state: str
    producer_id: int
    producer_epoch: int


def outcome_of_sight(wanted: OpenTransaction, sight: TransactionSight | None) -> CommitOutcome:
    """Return the outcome of a transaction after a rejected commit; sight None: id unknown."""
    if sight is None or sight.producer_id != wanted.producer_id:
        return CommitOutcome.UNKNOWN
    raised = sight.producer_epoch - wanted.producer_epoch
    is_ours = 0 < raised <= _ABORT_EPOCHS_MAX or wanted.version == 0
    if sight.state in _ABORTED_STATES and is_ours:
        return CommitOutcome.ABORTED
    return CommitOutcome.UNKNOWN


def is_open(wanted: OpenTransaction, sight: TransactionSight | None) -> bool:
    """Whether a transaction is unchanged since its producer's last write."""
    return sight == (OPEN_STATE, wanted.producer_id, wanted.producer_epoch)
