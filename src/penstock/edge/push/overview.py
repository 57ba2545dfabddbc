"""Push sessions for an operator: each client with its subscriptions and their lag.

Guarantees: a number belongs to one session of the broker's life; both calls take bounded time: a
page has a limit, and the lag is computed for at most `LAG_PARTITIONS_MAX` partitions of it.
It does NOT decide who may ask.
"""

from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import Final, NamedTuple, Protocol

from penstock.core.errors import PenstockError
from penstock.edge.push.ports import PushBroker
from penstock.edge.push.queue_subscription import QueueSubscription
from penstock.edge.push.session import PushSession
from penstock.edge.push.session_subscription import Subscription

LAG_PARTITIONS_MAX: Final = 10_000
"""Partitions whose lag one answer has: about 20 ms of the event loop."""
ENDED_MAX: Final = 1_000
"""Sessions that one call ends."""
END_CODE: Final = "NONE"


class Shown(Protocol):
    """A connection of a push client."""

    number: int
    client: object

    @property
    def address(self) -> str:
        """The address that the client connects from."""
        ...

    @property
    def session(self) -> PushSession:
        """Its session."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """Bytes that its socket has not accepted."""
        ...

    def drain(self, reason: str, code: str, retry_after_ms: int) -> None:
        """End the session in order."""
        ...


class SubscriptionOverview(NamedTuple):
    """One subscription."""

    topic: str
    group: str | None
    mode: str
    credit: int
    in_flight: int
    unacknowledged_bytes: int
    lag: int | None


class SessionOverview(NamedTuple):
    """One session."""

    number: int
    client: object
    address: str
    state: str
    opened_at: float
    delivered_records: int
    unsent_bytes: int
    subscriptions: list[SubscriptionOverview]


Wanted = Callable[[object], bool]
"""Whether the sessions of a client are wanted."""


def listed(
    connections: Iterable[Shown], broker: PushBroker, wanted: Wanted, after: int, limit: int
) -> list[SessionOverview]:
    """Return the sessions with numbers above `after`, the oldest first."""
    found = (one for one in connections if one.number > after and _is_shown(one, wanted))
    budget = [LAG_PARTITIONS_MAX]
    return [_row(one, broker, budget) for one in nsmallest(limit, found, key=_number)]


def end_all(connections: Iterable[Shown], wanted: Wanted, number: int | None) -> tuple[int, bool]:
    """End the wanted sessions, or one by number; return how many, and whether some are left."""
    found = [
        one
        for one in connections
        if number in (None, one.number) and _is_shown(one, wanted) and not one.session.is_ending
    ]
    for one in found[:ENDED_MAX]:
        one.drain("an operator ended the session", END_CODE, 0)
    return min(len(found), ENDED_MAX), len(found) > ENDED_MAX


def _number(one: Shown) -> int:
    return one.number


def _is_shown(one: Shown, wanted: Wanted) -> bool:
    return one.session.is_authenticated and wanted(one.client)


def _row(one: Shown, broker: PushBroker, budget: list[int]) -> SessionOverview:
    session = one.session
    return SessionOverview(
        one.number,
        one.client,
        one.address,
        session.state.value,
        session.opened_at,
        session.delivered_records,
        one.unsent_bytes,
        [_subscription(each, broker, budget) for each in session.subscriptions.values()],
    )


def _subscription(one: Subscription, broker: PushBroker, budget: list[int]) -> SubscriptionOverview:
    request, group = one.request, one.request.group
    mode = "publish" if request.publish else "fanout"
    if isinstance(one, QueueSubscription):
        mode, group = "queue", one.group
    return SubscriptionOverview(
        request.topic,
        group,
        mode,
        one.credit,
        one.unacknowledged_count,
        one.unacknowledged_bytes,
        _lag(one, broker, budget) if mode == "fanout" else None,
    )


def _lag(one: Subscription, broker: PushBroker, budget: list[int]) -> int | None:
    """Return the records that are not delivered, or delivered and not acknowledged."""
    budget[0] -= len(one.positions)
    if budget[0] < 0:
        return None
    lag = one.credit_used
    for partition, position in one.positions.items():
        try:
            lag += max(0, broker.view(one.request.topic, partition).end_offset - position)
        except PenstockError:
            return None  # The topic is gone, or led elsewhere: the session ends soon.
    return lag
