"""The sessions of connected clients, for an operator who lists and ends them.

A session is a connection whose client may send requests: without a login, or with a complete one,
also while it renews that. Connections in their TLS handshake, held ones and those within the
process are not among them. Guarantees: a number belongs to one connection of
the broker's life, so that an old list never ends another client; both calls take bounded time. It
does NOT decide who may ask.
"""

from collections.abc import Iterable, Iterator
from heapq import nsmallest
from typing import Final, NamedTuple

from penstock.broker.connections.listener_state import Served
from penstock.broker.peer import Peer
from penstock.security.principal import Principal

ENDED_MAX: Final = 1_000
"""Sessions that one call ends: about 20 ms of the event loop."""


class OpenSession(NamedTuple):
    """One session."""

    number: int
    peer: Peer
    client_id: str | None
    """Of the last request."""
    opened_at: float
    expires_at: float | None
    """Both on the monotonic clock. None: it does not expire."""


def listed_sessions(
    connections: Iterable[Served], principal: Principal | None, after: int, limit: int
) -> list[OpenSession]:
    """Return the sessions with numbers above `after`, the oldest first; None: of each principal."""
    found = _sessions(connections, principal)
    wanted = (one for one in found if one.session.number > after)
    return [_row(one) for one in nsmallest(limit, wanted, key=lambda one: one.session.number)]


def end_sessions(
    connections: Iterable[Served], principal: Principal | None, number: int | None = None
) -> tuple[int, bool]:
    """End the sessions of a principal, or one by number; return how many, and if some are left.

    Their clients may connect again: take away the credential first.
    """
    wanted = [
        one
        for one in _sessions(connections, principal)
        if number is None or one.session.number == number
    ]
    for one in wanted[:ENDED_MAX]:
        one.abort()
    return min(len(wanted), ENDED_MAX), len(wanted) > ENDED_MAX


def _sessions(connections: Iterable[Served], principal: Principal | None) -> Iterator[Served]:
    for one in connections:
        session = one.session
        is_inside = bool(session.peer.door)
        is_proven = session.is_open and (session.login is None or session.login.has_session)
        if session.is_closed or is_inside or not is_proven:
            continue
        if principal is None or session.peer.principal == principal:
            yield one


def _row(connection: Served) -> OpenSession:
    session = connection.session
    login = session.login
    expires_at = None if login is None else login.expires_at_seconds
    return OpenSession(
        session.number, session.peer, session.client_id, session.opened_at, expires_at
    )
