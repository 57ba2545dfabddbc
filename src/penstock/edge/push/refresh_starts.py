"""Begins refreshes of the subscriptions of a connection: finds the bounds of their partitions.

The end of a partition is its last stable offset at this moment: V of the refresh. It decides
nothing: `refreshing` does.
"""

import asyncio
from typing import Protocol

from penstock.core.errors import PenstockError
from penstock.edge.push.ports import PushBroker
from penstock.edge.push.reactions import FindBounds, Reaction
from penstock.edge.push.refreshing import SessionRefreshes


class Refreshed(Protocol):
    """A connection of a push client."""

    @property
    def session(self) -> SessionRefreshes:
        """Its session."""
        ...

    def carry_out(self, reactions: list[Reaction]) -> None:
        """Do what the session decided."""
        ...


class Shared(Protocol):
    """The parts that all sessions share."""

    @property
    def broker(self) -> PushBroker:
        """The broker."""
        ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""
        ...


def begin_refresh(connection: Refreshed, server: Shared, asked: FindBounds) -> None:
    """Begin the refresh of one subscription, or refuse it."""
    session, number = connection.session, asked.number
    subscription = session.subscriptions.get(number)
    places = () if subscription is None else tuple(subscription.positions)
    try:
        views = {at: server.broker.view(asked.topic, at) for at in places}
    except PenstockError as error:
        connection.carry_out(session.refresh_refused(asked.message_id, str(error)))
        return
    bounds = {at: (one.start_offset, one.end_offset) for at, one in views.items()}
    now = server.loop.time()
    connection.carry_out(session.begin_refresh(number, bounds, now, asked.message_id))


def refresh_connection(connection: Refreshed, server: Shared, topic: str, group: str | None) -> int:
    """Refresh the subscriptions of a topic, or those of a group; return their number."""
    found = connection.session.refreshable(topic, group)
    for number in found:
        begin_refresh(connection, server, FindBounds(number, topic, None))
    return len(found)
