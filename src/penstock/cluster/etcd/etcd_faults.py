"""The meaning of a failed attempt: applied, not applied, or unknown (pure).

Guarantees: `NOT_APPLIED` is said only if the member certainly did not apply the request: it was
never sent, or etcd rejected it before it was proposed. A fault that is not in the tables is
`AMBIGUOUS`. So a fault that a newer etcd invents costs a read, never a lost or doubled write.

It decides nothing about the next attempt: `etcd_calls` does.
"""

from enum import Enum, IntEnum
from typing import Final, NamedTuple


class StatusCode(IntEnum):
    """gRPC's status codes, without gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Fault(NamedTuple):
    """How an attempt failed."""

    code: StatusCode | None
    """None: the request was not sent, because there was no connection."""
    details: str

    def __str__(self) -> str:
        name = "not connected" if self.code is None else self.code.name
        return f"{name}: {self.details or 'no details'}"


class Verdict(Enum):
    """What a fault means."""

    NOT_APPLIED = "not applied"
    """Another member may accept it."""
    AMBIGUOUS = "ambiguous"
    """It may have been applied, or may yet be."""
    STALE = "stale"
    """It was answered by a member that is behind the others."""
    UNAUTHENTICATED = "unauthenticated"
    """Not applied; a new token is needed."""
    AUTHENTICATION_IS_OFF = "authentication is off"
    """Not applied; etcd wants no token."""
    DENIED = "denied"
    SESSION_LOST = "session lost"
    COMPACTED = "compacted"
    FUTURE_REVISION = "future revision"
    ANSWER_TOO_LARGE = "answer too large"
    """It was applied or read, and the answer is above our limit."""
    FULL = "full"
    REFUSED = "refused"
    """Not applied, and no member will accept it."""


_BY_TEXT: Final = (
    ("no leader", Verdict.NOT_APPLIED),
    ("too many requests", Verdict.NOT_APPLIED),
    ("not supported for learner", Verdict.NOT_APPLIED),
    ("invalid auth token", Verdict.UNAUTHENTICATED),
    ("user name is empty", Verdict.UNAUTHENTICATED),
    ("revision of auth store is old", Verdict.UNAUTHENTICATED),
    ("authentication is not enabled", Verdict.AUTHENTICATION_IS_OFF),
    ("permission denied", Verdict.DENIED),
    ("authentication failed", Verdict.DENIED),
    ("user name not found", Verdict.DENIED),
    ("requested lease not found", Verdict.SESSION_LOST),
    ("required revision has been compacted", Verdict.COMPACTED),
    ("required revision is a future revision", Verdict.FUTURE_REVISION),
    ("database space exceeded", Verdict.FULL),
)
"""Texts of etcd 3.4 to 3.6 that are more exact than their codes."""

_ETCD_TEXT: Final = "etcdserver: "
_NOT_SENT_TEXT: Final = "failed to connect to all addresses"
"""gRPC's text for a request that found no connection, and so was not sent: the connection that
stood when the call began had just ended. If gRPC changes the text, the fault is ambiguous."""

_BY_CODE: Final = {
    StatusCode.INVALID_ARGUMENT: Verdict.REFUSED,
    StatusCode.NOT_FOUND: Verdict.REFUSED,
    StatusCode.FAILED_PRECONDITION: Verdict.REFUSED,
    StatusCode.OUT_OF_RANGE: Verdict.REFUSED,
    StatusCode.UNIMPLEMENTED: Verdict.REFUSED,
    StatusCode.PERMISSION_DENIED: Verdict.DENIED,
    StatusCode.UNAUTHENTICATED: Verdict.UNAUTHENTICATED,
}


def classify(fault: Fault) -> Verdict:
    """Return the meaning of a fault."""
    if fault.code is None:
        return Verdict.NOT_APPLIED
    is_unsent = fault.details.startswith(_NOT_SENT_TEXT)
    if fault.code is StatusCode.UNAVAILABLE and is_unsent:
        return Verdict.NOT_APPLIED
    is_etcds = fault.details.startswith(_ETCD_TEXT)
    if is_etcds:
        verdict = classify_text(fault.details)
        if verdict is not None:
            return verdict
    if fault.code is StatusCode.RESOURCE_EXHAUSTED:
        # gRPC's own limit says so too, and then the answer was on its way.
        return Verdict.REFUSED if is_etcds else Verdict.ANSWER_TOO_LARGE
    return _BY_CODE.get(fault.code, Verdict.AMBIGUOUS)


def classify_text(text: str) -> Verdict | None:
    """Return the meaning of a text of etcd's, such as the reason of a refused watch."""
    for part, verdict in _BY_TEXT:
        if part in text:
            return verdict
    return None
