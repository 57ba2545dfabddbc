"""The states of a transactional id, and which may follow which.

One table, as Apache Kafka 4.3 has it with transaction version 2. `PREPARE_EPOCH_FENCE` and `DEAD`
are never written: the first is the intent to abort another producer's transaction, the second is a
tombstone. The causes of transitions are NOT here: see `decisions`.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final


class TransactionState(IntEnum):
    """The state, with the number that records hold."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


_S = TransactionState

STATE_NAMES: Final[Mapping[TransactionState, str]] = MappingProxyType(
    {state: state.name.title().replace("_", "") for state in TransactionState}
)
"""The names for administrators, as in Kafka: `PrepareCommit`."""
STATES_BY_NAME: Final[Mapping[str, TransactionState]] = MappingProxyType(
    {name: state for state, name in STATE_NAMES.items()}
)

LAWFUL_FROM: Final[Mapping[TransactionState, frozenset[TransactionState]]] = MappingProxyType(
    {
        _S.EMPTY: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
        _S.ONGOING: frozenset({_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
        _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
        _S.PREPARE_ABORT: frozenset(
            {
                _S.ONGOING,
                _S.PREPARE_EPOCH_FENCE,
                # With transaction version 2 a client may abort before the broker knows that the
                # transaction began, to ensure that no batch of it is still in flight.
                _S.EMPTY,
                _S.COMPLETE_COMMIT,
                _S.COMPLETE_ABORT,
            }
        ),
        _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
        _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
        _S.DEAD: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
        _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
    }
)
"""For each state, the states it may be entered from."""

ENDING: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
"""The outcome is decided; markers are being written."""
AT_REST: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""No transaction is open; only these expire."""
