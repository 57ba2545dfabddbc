"""Sessions of connected Kafka clients over HTTP: list them, end one, end those of a principal.

They belong to one broker and not to Kafka's protocol, so they are carried out on the broker itself
(`admin.ports.SessionBook`). Listing asks for DESCRIBE on the cluster, ending for ALTER, as changes
of users and access rules do.

An ended client may connect again with the same credential: remove the user or the certificate
first.
"""

from typing import Annotated, Final, NoReturn

from pydantic import Field

from penstock.admin.model import INT64_MAX, PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX, Answer, Input
from penstock.admin.operation import Asked, Operation
from penstock.admin.ports import Caller, SessionBook
from penstock.admin.problems import refused
from penstock.client.cluster import Cluster
from penstock.core.errors import ConfigError
from penstock.security.acls import values
from penstock.security.principal import Principal, read_principal

TAG: Final = "sessions"
PRINCIPAL_CHARACTERS_MAX: Final = 4_096
SHOWN_CHARACTERS_MAX: Final = 1_000
"""Characters of a principal in a list: a certificate may have thirty times as many."""

SessionId = Annotated[int, Field(ge=1, le=INT64_MAX, description="Id of a session.", examples=[42])]
PrincipalText = Annotated[
    str,
    Field(
        min_length=1,
        max_length=PRINCIPAL_CHARACTERS_MAX,
        description="Principal of the sessions.",
        examples=["User:alice"],
    ),
]


class SessionPath(Input):
    """A session in the path."""

    session: SessionId


class SessionQuery(Input):
    """Which sessions are wanted."""

    principal: PrincipalText | None = None
    limit: Annotated[
        int, Field(ge=1, le=PAGE_SIZE_MAX, description="Entries of this page, at most.")
    ] = PAGE_SIZE_DEFAULT
    after: Annotated[
        int, Field(ge=0, le=INT64_MAX, description="Sessions with a greater id: `next`.")
    ] = 0


class PrincipalQuery(Input):
    """The principal whose sessions end."""

    principal: PrincipalText


class SessionEntry(Answer):
    """One connected client."""

    id: int
    principal: str
    address: str
    listener: str
    mechanism: Annotated[str | None, Field(description="Of its login with SASL; null without.")]
    client_id: Annotated[str | None, Field(description="Of its last request.")]
    since_ms: int
    expires_at_ms: Annotated[
        int | None, Field(description="When it ends without a new login; null: never.")
    ]


class SessionPage(Answer):
    """One page of the sessions, the oldest first."""

    sessions: list[SessionEntry]
    next: Annotated[int | None, Field(description="`after` of the next page; null at the end.")]


class EndedSessions(Answer):
    """The result of ending sessions."""

    ended: int
    has_more: Annotated[bool, Field(description="Whether to repeat the request for the rest.")]


def _list(book: SessionBook, caller: Caller, asked: Asked) -> SessionPage:
    check_access(book, caller, values.Operation.DESCRIBE)
    query = asked.query_as(SessionQuery)
    wanted = None if query.principal is None else wanted_principal(query.principal)
    found = book.sessions(wanted, query.after, query.limit + 1)
    shown = found[: query.limit]
    return SessionPage(
        sessions=[
            SessionEntry(
                id=one.id,
                principal=str(one.principal)[:SHOWN_CHARACTERS_MAX],
                address=one.address,
                listener=one.listener,
                mechanism=one.mechanism or None,
                client_id=one.client_id,
                since_ms=one.since_ms,
                expires_at_ms=one.expires_at_ms,
            )
            for one in shown
        ],
        next=shown[-1].id if len(found) > len(shown) else None,
    )


def _end_one(book: SessionBook, caller: Caller, asked: Asked) -> None:
    check_access(book, caller, values.Operation.ALTER)
    session = asked.path_as(SessionPath).session
    ended, _ = book.end(caller, session=session)
    if not ended:
        raise refused(
            404,
            "Not found",
            f"There is no session {session}.",
            "GET /api/v1/sessions lists the sessions; it may have ended by itself.",
        )


def _end_all(book: SessionBook, caller: Caller, asked: Asked) -> EndedSessions:
    check_access(book, caller, values.Operation.ALTER)
    wanted = wanted_principal(asked.query_as(PrincipalQuery).principal)
    ended, has_more = book.end(caller, principal=wanted)
    return EndedSessions(ended=ended, has_more=has_more)


def wanted_principal(text: str) -> Principal:
    """Return the principal in a query."""
    try:
        return read_principal(text)
    except ConfigError as error:
        raise refused(422, "Refused", f"query: principal: {error}", error.hint) from error


def check_access(book: SessionBook, caller: Caller, operation: values.Operation) -> None:
    """Raise a refusal if the caller may not do this to the cluster."""
    if book.allows(caller, operation):
        return
    name = operation.name.lower()
    raise refused(
        403,
        "Not allowed",
        f"{caller.principal} may not {name} the cluster.",
        f"Allow it: `penstock acl add --principal {caller.principal} --operation {name} "
        "--cluster`.",
    )


def by_wire(cluster: Cluster, asked: Asked) -> NoReturn:
    """Never called: the broker itself carries out these operations."""
    raise AssertionError(f"Kafka's protocol has no sessions: {cluster}, {asked}")


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/sessions",
        name="list_sessions",
        summary="List connected clients",
        description="Sessions of this broker's listeners; needs DESCRIBE on the cluster.",
        tag=TAG,
        call=by_wire,
        on_broker=_list,
        answer=SessionPage,
        query_model=SessionQuery,
    ),
    Operation(
        method="DELETE",
        path="/sessions",
        name="end_sessions",
        summary="Disconnect the clients of a principal",
        description="At most 1,000 at once; needs ALTER on the cluster. They may connect again.",
        tag=TAG,
        call=by_wire,
        on_broker=_end_all,
        answer=EndedSessions,
        query_model=PrincipalQuery,
    ),
    Operation(
        method="DELETE",
        path="/sessions/{session}",
        name="end_session",
        summary="Disconnect a client",
        description="Needs ALTER on the cluster. The client may connect again.",
        tag=TAG,
        call=by_wire,
        on_broker=_end_one,
        status=204,
        path_model=SessionPath,
    ),
)
