"""Maps Penstock's and Kafka's errors to problems: one table for each (no IO)."""

from typing import Final

from penstock.admin.problems import (
    DETAIL_CHARACTERS_MAX,
    RETRY_AFTER_SECONDS,
    Problem,
    RefusedError,
    refused,
)
from penstock.client.groups.groups import GroupNotEmptyError, UnknownGroupError
from penstock.client.transactions.transactions import UnknownTransactionError
from penstock.core.errors import (
    AnswerLostError,
    BrokerAnswerError,
    BrokerUnreachableError,
    InvalidRequestError,
    PeerError,
    PenstockError,
    UnknownTopicOrPartitionError,
)
from penstock.protocol.error_codes import ErrorCode

_CODES: Final[dict[int, tuple[int, str]]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (404, "Not found"),
    ErrorCode.UNKNOWN_TOPIC_ID: (404, "Not found"),
    ErrorCode.GROUP_ID_NOT_FOUND: (404, "Not found"),
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: (404, "Not found"),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (403, "Not allowed"),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (403, "Not allowed"),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (403, "Not allowed"),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (403, "Not allowed"),
    ErrorCode.TOPIC_ALREADY_EXISTS: (409, "Exists already"),
    ErrorCode.NON_EMPTY_GROUP: (409, "In use"),
    ErrorCode.CONCURRENT_TRANSACTIONS: (409, "In use"),
    ErrorCode.INVALID_TXN_STATE: (409, "In another state"),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: (429, "Too many requests"),
    ErrorCode.REQUEST_TIMED_OUT: (504, "Outcome unknown"),
    ErrorCode.UNKNOWN_SERVER_ERROR: (500, "The broker failed"),
}
"""Kafka's errors with a problem other than a plain rejection."""

_KINDS: Final[tuple[tuple[type[PenstockError], int, str, str | None], ...]] = (
    (UnknownTopicOrPartitionError, 404, "Not found", "GET /api/v1/topics lists the topics."),
    (UnknownGroupError, 404, "Not found", "GET /api/v1/groups lists the groups."),
    (UnknownTransactionError, 404, "Not found", "GET /api/v1/transactions lists them."),
    (GroupNotEmptyError, 409, "In use", "Stop the members of the group and try again."),
    (InvalidRequestError, 422, "Refused", None),
    (
        BrokerUnreachableError,
        503,
        "Broker not reachable",
        "Nothing was done: repeat it. GET /api/v1/status shows limits that are reached.",
    ),
    (
        AnswerLostError,
        504,
        "Outcome unknown",
        "It may or may not have been carried out: look before you repeat it.",
    ),
    (PeerError, 502, "Not understood", "The broker's answer could not be read: see its log."),
)


def problem_of(error: PenstockError) -> RefusedError:
    """Return the problem for a Penstock error."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, BrokerAnswerError):
        return _of_answer(error)
    for kind, status, title, remedy in _KINDS:
        if isinstance(error, kind):
            retry = RETRY_AFTER_SECONDS if status == 503 else None
            return refused(status, title, str(error), remedy, retry_after_seconds=retry)
    return refused(500, "The broker failed", str(error), "See the broker's log.")


def _of_answer(error: BrokerAnswerError) -> RefusedError:
    code = ErrorCode(error.code)
    status, title = _CODES.get(error.code, (422, "Refused"))
    if error.code not in _CODES and code.retriable:
        status, title = 503, "Not now"
    remedy = {
        503: "Repeat it in a moment.",
        429: "Repeat it in a moment.",
        504: "It may or may not have been carried out: look before you repeat it.",
    }.get(status)
    problem = Problem(
        title=title,
        status=status,
        detail=str(error)[:DETAIL_CHARACTERS_MAX],
        remedy=remedy,
        kafka_error=error.name,
    )
    retry = RETRY_AFTER_SECONDS if status in (429, 503) else None
    return RefusedError(problem, retry_after_seconds=retry)
