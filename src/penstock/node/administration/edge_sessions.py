"""`EdgeSessions`: connects the admin port with the push sessions of a broker.

A broker without push has none. Ids of push sessions start above those of Kafka clients, so that an
id names one session of the broker.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.security.principal import Principal

if TYPE_CHECKING:
    from penstock.edge.push.overview import SessionOverview

ID_BASE: Final = 1_000_000_000_000
"""A broker has fewer connections of Kafka clients in its life."""

ListSessions = Callable[[Principal | None, int, int], "list[SessionOverview]"]
EndSessions = Callable[[Principal | None, int | None], tuple[int, bool]]


class EdgeSessions:
    """The push sessions of a broker, once it has push."""

    __slots__ = ("_end", "_list")

    def __init__(self) -> None:
        self._list: ListSessions | None = None
        self._end: EndSessions | None = None

    def serve(self, list_sessions: ListSessions, end_sessions: EndSessions) -> None:
        """Use the sessions of the push server, which the broker has from now."""
        self._list, self._end = list_sessions, end_sessions

    def listed(
        self, principal: Principal | None, after: int, limit: int
    ) -> "list[SessionOverview]":
        """Return the sessions with ids above `after`, the oldest first."""
        return [] if self._list is None else self._list(principal, max(0, after - ID_BASE), limit)

    def end(self, principal: Principal | None, session: int | None) -> tuple[int, bool]:
        """End the sessions of a principal, or one; return how many, and whether some are left."""
        if self._end is None or (session is not None and session <= ID_BASE):
            return 0, False
        return self._end(principal, None if session is None else session - ID_BASE)
