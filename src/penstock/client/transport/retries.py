"""Whether a failed call may be retried, and after what pause (pure).

    failure                                  repeatable call   other call
    nothing was sent                         retried           retried
    sent, no answer (outcome unknown)        retried           raised: the caller must check
    code: certainly not executed             retried           retried
    code: retriable, perhaps executed        retried           raised
    any other code                           raised            raised

A call is repeatable when executing it twice has the same effect as once: every read, and a produce
whose batches carry a producer's sequence numbers. Creating and deleting topics is not repeatable:
the second attempt fails, and the user would get an error although the first one succeeded.
"""

from dataclasses import dataclass
from typing import Final

from penstock.core.errors import (
    AnswerLostError,
    BrokerAnswerError,
    BrokerUnreachableError,
    ClientError,
)
from penstock.protocol.error_codes import ErrorCode

PAUSE_SECONDS_FIRST: Final = 0.05
PAUSE_SECONDS_MAX: Final = 1.0
LOOKS_MAX: Final = 7
"""Attempts before a doubtful answer is accepted: 2.55 s with the pauses between them. This is
longer than a healthy broker needs to receive a change. The attempts use seven brokers if there are
seven."""

NOT_CARRIED_OUT: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.CORRUPT_MESSAGE,
    }
)
"""Codes of a request that the broker did not execute. COORDINATOR_NOT_AVAILABLE is not one of them:
a coordinator also sends it when it wrote and its replicas did not follow in time."""


def may_repeat(error: ClientError, *, repeatable: bool) -> bool:
    """Whether the call that failed with `error` may be retried."""
    if isinstance(error, BrokerUnreachableError):
        return True
    if isinstance(error, AnswerLostError):
        return repeatable
    if isinstance(error, BrokerAnswerError):
        code = ErrorCode(error.code)
        return code.retriable and (repeatable or code in NOT_CARRIED_OUT)
    return False


@dataclass(slots=True)
class Pauses:
    """Pauses that double up to a second, within one deadline for the whole call."""

    deadline_seconds: float
    _next_seconds: float = PAUSE_SECONDS_FIRST

    def next_pause(self, now_seconds: float) -> float | None:
        """Return the seconds until the next attempt; None when there is no time for one."""
        pause = self._next_seconds
        if now_seconds + pause > self.deadline_seconds:
            return None
        self._next_seconds = min(2 * pause, PAUSE_SECONDS_MAX)
        return pause
