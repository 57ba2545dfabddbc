"""Kafka's errors as statuses of gRPC. Pure.

A status says what a client can do without knowing Kafka: UNAVAILABLE and ABORTED are worth a retry,
the others are not. The name of Kafka's error goes with it in the metadata.
"""

from typing import Final

from penstock.core.errors import PenstockError
from penstock.edge.push.ports import PushRefusedError
from penstock.protocol.push.payloads import Refusal

INVALID_ARGUMENT: Final = "INVALID_ARGUMENT"
INTERNAL: Final = "INTERNAL"
UNAVAILABLE: Final = "UNAVAILABLE"
RESOURCE_EXHAUSTED: Final = "RESOURCE_EXHAUSTED"
UNAUTHENTICATED: Final = "UNAUTHENTICATED"
DEADLINE_EXCEEDED: Final = "DEADLINE_EXCEEDED"

_STATUSES: Final = {
    "UNKNOWN_SERVER_ERROR": INTERNAL,
    "OFFSET_OUT_OF_RANGE": "OUT_OF_RANGE",
    "UNKNOWN_TOPIC_OR_PARTITION": "NOT_FOUND",
    "UNKNOWN_TOPIC_ID": "NOT_FOUND",
    "GROUP_ID_NOT_FOUND": "NOT_FOUND",
    "REQUEST_TIMED_OUT": DEADLINE_EXCEEDED,
    "MESSAGE_TOO_LARGE": INVALID_ARGUMENT,
    "RECORD_LIST_TOO_LARGE": INVALID_ARGUMENT,
    "CORRUPT_MESSAGE": INVALID_ARGUMENT,
    "INVALID_RECORD": INVALID_ARGUMENT,
    "INVALID_REQUEST": INVALID_ARGUMENT,
    "INVALID_TIMESTAMP": INVALID_ARGUMENT,
    "INVALID_TOPIC_EXCEPTION": INVALID_ARGUMENT,
    "INVALID_GROUP_ID": INVALID_ARGUMENT,
    "INVALID_COMMIT_OFFSET_SIZE": INVALID_ARGUMENT,
    "UNSUPPORTED_COMPRESSION_TYPE": INVALID_ARGUMENT,
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": INVALID_ARGUMENT,
    "UNSUPPORTED_VERSION": "UNIMPLEMENTED",
    "TOPIC_AUTHORIZATION_FAILED": "PERMISSION_DENIED",
    "GROUP_AUTHORIZATION_FAILED": "PERMISSION_DENIED",
    "CLUSTER_AUTHORIZATION_FAILED": "PERMISSION_DENIED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "PERMISSION_DENIED",
    "SASL_AUTHENTICATION_FAILED": UNAUTHENTICATED,
    "POLICY_VIOLATION": "FAILED_PRECONDITION",
    "UNKNOWN_MEMBER_ID": "FAILED_PRECONDITION",
    "ILLEGAL_GENERATION": "FAILED_PRECONDITION",
    "NON_EMPTY_GROUP": "FAILED_PRECONDITION",
    "REBALANCE_IN_PROGRESS": "ABORTED",
    "OUT_OF_ORDER_SEQUENCE_NUMBER": "FAILED_PRECONDITION",
    "INVALID_PRODUCER_EPOCH": "FAILED_PRECONDITION",
    "THROTTLING_QUOTA_EXCEEDED": RESOURCE_EXHAUSTED,
}


class GatewayRefusalError(PenstockError):
    """A call that the gateway itself refuses."""

    def __init__(self, status: str, message: str, *, retriable: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.retriable = retriable


def status_of(refusal: Refusal) -> str:
    """Return the name of the status for an error of Kafka."""
    found = _STATUSES.get(refusal.code)
    if found is not None:
        return UNAVAILABLE if refusal.retriable and found == UNAUTHENTICATED else found
    return UNAVAILABLE if refusal.retriable else "FAILED_PRECONDITION"


def refusal_error(refusal: Refusal) -> PushRefusedError:
    """Return the error that ends a call with the status of a refusal."""
    return PushRefusedError(refusal)
