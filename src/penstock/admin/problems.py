"""Errors in the format of RFC 9457: `application/problem+json` (pure).

Every answer that is not a success has this form: a title for the kind of problem, a status, the
details of this case, and a remedy. Kafka's error, where there is one, is named, so that a program
can act on it.

    400  the request is not what the description says
    404  the resource does not exist
    408  the body did not arrive in time
    409  the state of the resource does not allow this
    413, 415, 421, 403  the request is too large, not JSON, for another host, from another site
    422  the request is understood, but Kafka's rules refuse it
    429, 503  not now, and nothing was done; `Retry-After` says when
    504  the outcome is unknown: check before you repeat the request
"""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from penstock.core.errors import PenstockError

CONTENT_TYPE: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = 1
DETAIL_CHARACTERS_MAX: Final = 2_000
"""Messages repeat parts of the request; this bound keeps the answer small."""


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
        list[FieldProblem] | None, Field(description="The errors in the request.")
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
    """Return the error to raise."""
    problem = Problem(
        title=title,
        status=status,
        detail=detail[:DETAIL_CHARACTERS_MAX],
        remedy=remedy,
        fields=fields,
    )
    return RefusedError(problem, retry_after_seconds=retry_after_seconds)


def stopping() -> RefusedError:
    """Return the error for a request that was not begun because the broker stops."""
    return refused(
        503,
        "Stopping",
        "Stopping: nothing was done.",
        "Repeat it when the broker is up again.",
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )
