"""Push sessions over HTTP: list them with their subscriptions. `client_sessions` ends them.

They belong to one broker and not to Kafka's protocol, so they are carried out on the broker itself
(`admin.ports.SessionBook`). Listing asks for DESCRIBE on the cluster.
"""

from typing import Annotated, Final

from pydantic import Field

from penstock.admin.client_sessions import (
    SHOWN_CHARACTERS_MAX,
    SessionQuery,
    by_wire,
    check_access,
    wanted_principal,
)
from penstock.admin.model import Answer
from penstock.admin.operation import Asked, Operation
from penstock.admin.ports import Caller, PushSessionFacts, SessionBook
from penstock.security.acls import values

TAG: Final = "edge"


class PushSubscriptionEntry(Answer):
    """One subscription of a push session."""

    topic: str
    group: str | None
    mode: Annotated[str, Field(description="`fanout`, `queue` or `publish`.")]
    credit: Annotated[int, Field(description="Records that may be unacknowledged.")]
    in_flight: Annotated[int, Field(description="Deliveries that are not acknowledged.")]
    unacknowledged_bytes: int
    lag: Annotated[
        int | None,
        Field(
            description="Records that are not acknowledged or not delivered; null for a queue, "
            "whose lag is that of its group, and for a subscription that only publishes."
        ),
    ]


class PushSessionEntry(Answer):
    """One push session."""

    id: int
    principal: str
    address: str
    state: str
    since_ms: int
    delivered_records: int
    in_flight: int
    unacknowledged_bytes: int
    unsent_bytes: Annotated[int, Field(description="Bytes that its socket has not accepted.")]
    subscriptions: list[PushSubscriptionEntry]


class PushSessionPage(Answer):
    """One page of the push sessions, the oldest first."""

    sessions: list[PushSessionEntry]
    next: Annotated[int | None, Field(description="`after` of the next page; null at the end.")]


def _list(book: SessionBook, caller: Caller, asked: Asked) -> PushSessionPage:
    check_access(book, caller, values.Operation.DESCRIBE)
    query = asked.query_as(SessionQuery)
    wanted = None if query.principal is None else wanted_principal(query.principal)
    found = book.push_sessions(wanted, query.after, query.limit + 1)
    shown = found[: query.limit]
    return PushSessionPage(
        sessions=[_entry(one) for one in shown],
        next=shown[-1].id if len(found) > len(shown) else None,
    )


def _entry(one: PushSessionFacts) -> PushSessionEntry:
    subscriptions = [
        PushSubscriptionEntry(
            topic=each.topic,
            group=each.group,
            mode=each.mode,
            credit=each.credit,
            in_flight=each.in_flight,
            unacknowledged_bytes=each.unacknowledged_bytes,
            lag=each.lag,
        )
        for each in one.subscriptions
    ]
    return PushSessionEntry(
        id=one.id,
        principal=str(one.principal)[:SHOWN_CHARACTERS_MAX],
        address=one.address,
        state=one.state,
        since_ms=one.since_ms,
        delivered_records=one.delivered_records,
        in_flight=sum(each.in_flight for each in subscriptions),
        unacknowledged_bytes=sum(each.unacknowledged_bytes for each in subscriptions),
        unsent_bytes=one.unsent_bytes,
        subscriptions=subscriptions,
    )


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/push/sessions",
        name="list_push_sessions",
        summary="List push sessions with their subscriptions",
        description="Needs DESCRIBE on the cluster. DELETE /sessions/{session} ends one.",
        tag=TAG,
        call=by_wire,
        on_broker=_list,
        answer=PushSessionPage,
        query_model=SessionQuery,
    ),
)
