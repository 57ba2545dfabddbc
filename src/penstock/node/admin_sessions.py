"""`NodeSessions`: implements `admin.ports.SessionBook` on this node.

The access rules of the broker decide who may list and end sessions; without an authorizer each
caller may. Each end and each denial is a line of the audit log. All methods belong to the event
loop.
"""

from collections.abc import Callable, Sequence
from typing import Final, cast

from penstock.admin.ports import (
    Caller,
    PushSessionFacts,
    PushSubscriptionFacts,
    SessionFacts,
)
from penstock.broker.connections.open_sessions import end_sessions, listed_sessions
from penstock.broker.peer import Peer
from penstock.core.clock import Clock
from penstock.core.errors import BrokerUnreachableError
from penstock.node.admin_parts import Served
from penstock.node.administration.edge_sessions import ID_BASE
from penstock.node.security.certificates_in_use import ADMIN
from penstock.security import audit
from penstock.security.acls.values import CLUSTER_NAME, Operation, ResourceType
from penstock.security.audit import AuditEvent
from penstock.security.principal import Principal

END: Final = "END_SESSIONS"
LIST: Final = "LIST_SESSIONS"
"""The names of both operations in the audit log."""


class NodeSessions:
    """`admin.ports.SessionBook`."""

    def __init__(self, served: Callable[[], Served | None], clock: Clock) -> None:
        """`served` returns None until the broker is started."""
        self._served = served
        self._clock = clock

    def allows(self, caller: Caller, operation: Operation) -> bool:
        """Whether access rules allow the operation on the cluster to the caller."""
        security = self._running().security
        authorizer = security.authorizer
        if authorizer is None or authorizer.allows(
            caller.principal, caller.address, operation, ResourceType.CLUSTER, CLUSTER_NAME
        ):
            return True
        peer = Peer(caller.address, caller.principal, ADMIN, caller.mechanism)
        api = LIST if operation is Operation.DESCRIBE else END
        security.audit.denied_over_http(peer, api, operation)
        return False

    def sessions(
        self, principal: Principal | None, after: int, limit: int
    ) -> Sequence[SessionFacts]:
        """Return the sessions with ids above `after`, the oldest first."""
        connections = self._running().listener.connections
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()

        def time_ms(moment: float) -> int:
            return round(now_ms + (moment - now) * 1000)

        return [
            SessionFacts(
                id=one.number,
                principal=one.peer.principal,
                address=one.peer.address,
                listener=one.peer.listener,
                mechanism=one.peer.mechanism,
                client_id=one.client_id,
                since_ms=time_ms(one.opened_at),
                expires_at_ms=None if one.expires_at is None else time_ms(one.expires_at),
            )
            for one in listed_sessions(connections, principal, after, limit)
        ]

    def push_sessions(
        self, principal: Principal | None, after: int, limit: int
    ) -> Sequence[PushSessionFacts]:
        """Return the push sessions with ids above `after`, the oldest first."""
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        return [
            PushSessionFacts(
                id=ID_BASE + one.number,
                principal=cast("Peer", one.client).principal,
                address=one.address,
                state=one.state,
                since_ms=round(now_ms + (one.opened_at - now) * 1000),
                delivered_records=one.delivered_records,
                unsent_bytes=one.unsent_bytes,
                subscriptions=[PushSubscriptionFacts(*each) for each in one.subscriptions],
            )
            for one in self._running().edge_sessions.listed(principal, after, limit)
        ]

    def end(
        self,
        caller: Caller,
        *,
        principal: Principal | None = None,
        session: int | None = None,
    ) -> tuple[int, bool]:
        """End the sessions of a principal, or one; return how many, and whether some are left."""
        assert (principal is None) != (session is None), "never all sessions"
        served = self._running()
        ended, has_more = end_sessions(served.listener.connections, principal, session)
        edge_ended, edge_has_more = served.edge_sessions.end(principal, session)
        ended, has_more = ended + edge_ended, has_more or edge_has_more
        if ended:
            served.security.audit.write(
                AuditEvent(
                    event=audit.ALLOWED,
                    principal=str(caller.principal),
                    mechanism=caller.mechanism,
                    listener=ADMIN,
                    address=caller.address,
                    api=END,
                    resource=f"SESSION:{session}" if principal is None else str(principal),
                    operation=Operation.ALTER.name,
                    count=ended,
                )
            )
        return ended, has_more

    def _running(self) -> Served:
        served = self._served()
        if served is None:
            raise BrokerUnreachableError("the broker is starting and has no clients yet.")
        return served
