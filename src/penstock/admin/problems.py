"""What went wrong, as RFC 9457 says it: `application/problem+json` (pure).

Every answer that is not a success has this form: a title for the kind of problem, a status, what
happened in this case, and what to do next. Kafka's error, where there is one, is named, so that a
program can act on it.

    400  the request is not what the description says
    404  there is no such thing
    409  it is there, and in a state that does not allow this
    413, 415, 421, 403  the request is too large, no JSON, for another host, from another site
    422  it is understood, and Kafka's rules refuse it
    429, 503  not now; `Retry-After` says when
    504  nobody knows whether it was done: look before you repeat it
"""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from penstock.client.groups import GroupNotEmptyError, UnknownGroupError
from penstock.client.transactions import UnknownTransactionError
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

CONTENT_TYPE: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = 1
DETAIL_CHARACTERS_MAX: Final = 2_000
"""Messages repeat what was sent; an answer stays small whatever that was."""


class FieldProblem(BaseModel):
    """One field of a request that is wrong."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    where: Annotated[str, Field(description="Body, query or path, and the field's name.")]
    message: str


class Problem(BaseModel):
    """Why a request was not done (RFC 9457)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Annotated[str, Field(description="Always about:blank: the title says the kind.")] = (
        "about:blank"
    )
    title: Annotated[str, Field(description="The kind of problem.")]
    status: Annotated[int, Field(ge=400, le=599, description="The HTTP status.")]
    detail: Annotated[str, Field(description="What happened in this case.")]
    remedy: Annotated[str | None, Field(description="What to do next.")] = None
    kafka_error: Annotated[
        str | None, Field(description="Kafka's name of the error, if a broker answered with one.")
    ] = None
    fields: Annotated[
        list[FieldProblem] | None, Field(description="What is wrong with the request.")
    ] = None


class RefusedError(PenstockError):
    """A request that is answered with a problem."""

    def __init__(self, problem: Problem, *, retry_after_seconds: int | None = None) -> None:
        super().__init__(problem.detail)
        self.problem = problem
        self.retry_after_seconds = retry_after_seconds


def refused(
    status: int,
    title: str,
    detail: str,
    remedy: str | None = None,
    *,
    fields: list[FieldProblem] | None = None,
    retry_after_seconds: int | None = None,
) -> RefusedError:
    """The error to raise."""
    problem = Problem(
        title=title,
        status=status,
        detail=detail[:DETAIL_CHARACTERS_MAX],
        remedy=remedy,
        fields=fields,
    )
    return RefusedError(problem, retry_after_seconds=retry_after_seconds)


_CODES: Final[dict[int, tuple[int, str]]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (404, "Not found"),
    ErrorCode.UNKNOWN_TOPIC_ID: (404, "Not found"),
    ErrorCode.GROUP_ID_NOT_FOUND: (404, "Not found"),
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: (404, "Not found"),
    ErrorCode.TOPIC_ALREADY_EXISTS: (409, "Exists already"),
    ErrorCode.NON_EMPTY_GROUP: (409, "In use"),
    ErrorCode.CONCURRENT_TRANSACTIONS: (409, "In use"),
    ErrorCode.INVALID_TXN_STATE: (409, "In another state"),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: (429, "Too many requests"),
    ErrorCode.REQUEST_TIMED_OUT: (504, "Outcome unknown"),
    ErrorCode.UNKNOWN_SERVER_ERROR: (500, "The broker failed"),
}
"""Kafka's errors that are more than a refusal."""

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
    """The problem that an error of ours is."""
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
