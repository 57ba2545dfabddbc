"""What the answers about a transaction mean to somebody who wants it committed (pure).

EndTxn may be asked again and again with the producer id and epoch that wrote the transaction; what
Apache Kafka 4.3 and Penstock answer to a commit:

    the transaction                          with version 2          with version 0
    is open                                  NONE, epoch + 1         NONE
    was committed (markers written)          NONE                    NONE
    was committed, markers under way         CONCURRENT_TRANSACTIONS CONCURRENT_TRANSACTIONS
    was aborted by its own producer          INVALID_TXN_STATE       INVALID_TXN_STATE
    was aborted by its timeout               PRODUCER_FENCED or      PRODUCER_FENCED
                                             INVALID_TXN_STATE
    was aborted by an InitProducerId         PRODUCER_FENCED         PRODUCER_FENCED
    is forgotten (the id expired)            INVALID_PRODUCER_ID_MAPPING, both

CONCURRENT_TRANSACTIONS is asked again. After any other refusal the coordinator's description
decides: an abort is known by its state, until the id is used again; of everything else nobody can
say what became of it. With version 2 an abort of a later transaction under the same id is told
from ours by the epoch: a commit and another begin each took one before it. With version 0 it is
not, so who ends transactions of others must not let their ids be used again before.
"""

from enum import Enum, auto
from typing import Final, NamedTuple

from penstock.protocol.error_codes import ErrorCode

_ABORTED_STATES: Final = frozenset({"PrepareAbort", "CompleteAbort", "PrepareEpochFence"})
OPEN_STATE: Final = "Ongoing"
_ABORT_EPOCHS_MAX: Final = 2
"""By how much an abort raises the epoch with version 2: by one, and by one more if it was a
timeout. A commit, a begin and an abort raise it by three at least."""

REFUSALS: Final = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""Answers to EndTxn that leave the question what became of the transaction."""


class CommitOutcome(Enum):
    """What came of committing a transaction."""

    COMMITTED = auto()
    """Now, or before."""
    ABORTED = auto()
    UNKNOWN = auto()
    """The cluster does not know it any more."""


class OpenTransaction(NamedTuple):
    """A transaction that somebody writes or has written, as anybody needs it to end it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    version: int
    """The transaction version that was spoken to write it: whoever ends it must speak it too."""


class TransactionSight(NamedTuple):
    """What a coordinator says of a transactional id."""

    state: str
    producer_id: int
    producer_epoch: int


def outcome_of_sight(wanted: OpenTransaction, sight: TransactionSight | None) -> CommitOutcome:
    """What became of a transaction whose commit was refused; None: the id is not known."""
    if sight is None or sight.producer_id != wanted.producer_id:
        return CommitOutcome.UNKNOWN
    raised = sight.producer_epoch - wanted.producer_epoch
    is_ours = 0 < raised <= _ABORT_EPOCHS_MAX or wanted.version == 0
    if sight.state in _ABORTED_STATES and is_ours:
        return CommitOutcome.ABORTED
    return CommitOutcome.UNKNOWN


def is_open(wanted: OpenTransaction, sight: TransactionSight | None) -> bool:
    """Whether a transaction is as its writer left it."""
    return sight == (OPEN_STATE, wanted.producer_id, wanted.producer_epoch)
