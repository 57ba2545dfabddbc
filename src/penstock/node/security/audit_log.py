"""`AuditLog`: writes audit events to the logger `penstock.audit`, and counts them as metrics.

Its lines are JSON (`security.audit`). The logger is one of Python's: a handler that an operator
configures sends it elsewhere; without one it goes where the broker's log goes. It holds no line
back except counts of repeated denials, which are written within `REPEAT_SECONDS` or at the stop.
"""

import asyncio
import logging
from datetime import UTC, datetime

from penstock.broker.peer import Peer
from penstock.core.clock import Clock
from penstock.core.metrics import Family, Registry, Row
from penstock.protocol.api_keys import ApiKey
from penstock.security import audit
from penstock.security.acls.values import Operation, ResourceType
from penstock.security.audit import AuditEvent, RepeatedDenials

logger = logging.getLogger(audit.LOGGER_NAME)

MORE_SECONDS = 0.05
"""Until the next counts are written, while some are due."""


class AuditLog:
    """The audit log of one broker; also `broker.access.DecisionLog`."""

    def __init__(self, clock: Clock, metrics: Registry) -> None:
        # Whatever the level of the broker's log is: an audit log with holes is none.
        logger.setLevel(logging.INFO)
        self._clock = clock
        self._denials = RepeatedDenials()
        self._denied: dict[str, int] = {}
        self._logins: dict[tuple[str, str, str], int] = {}
        self.expired = metrics.counter(
            "expired_connections_killed_total",
            "Connections that were used after the end of their session.",
        )
        labels = ("listener", "mechanism", "result")
        metrics.family(
            "authentication_total",
            Family("Logins by listener, mechanism and result.", labels, self._login_rows),
        )
        metrics.family(
            "authorization_denied_total",
            Family("Requests that access rules denied, by API.", ("api",), self._denied_rows),
        )

    # --- Access ---

    def denied(
        self,
        peer: Peer,
        api_key: int,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> None:
        """A request was not allowed."""
        event = _event(audit.DENIED, peer, api_key, operation, resource_type, name)
        self._denied[event.api] = self._denied.get(event.api, 0) + 1
        for one in self._denials.take(event, self._clock.monotonic()):
            self.write(one)

    def allowed(
        self,
        peer: Peer,
        api_key: int,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> None:
        """A change was allowed."""
        self.write(_event(audit.ALLOWED, peer, api_key, operation, resource_type, name))

    # --- Logins ---

    def logged_in(self, peer: Peer, *, is_again: bool) -> None:
        """A client proved its identity, at the begin of its session or again."""
        self._count(peer.listener, peer.mechanism, "success")
        self.write(
            AuditEvent(
                event=audit.REAUTHENTICATED if is_again else audit.LOGIN,
                principal=str(peer.principal),
                mechanism=peer.mechanism,
                listener=peer.listener,
                address=peer.address,
            )
        )

    def login_failed(self, peer: Peer, mechanism: str, user: str, reason: str) -> None:
        """A client did not prove its identity; `user` is the name that it gave."""
        self._count(peer.listener, mechanism, "failure")
        event = AuditEvent(
            event=audit.LOGIN_FAILED,
            principal=f"User:{user[: audit.TEXT_MAX]}" if user else "",
            mechanism=mechanism,
            listener=peer.listener,
            address=peer.address,
            resource=peer.address,
            reason=reason,
        )
        for one in self._denials.take(event, self._clock.monotonic()):
            self.write(one)

    def session_expired(self, peer: Peer) -> None:
        """A client used its connection after the end of its session."""
        self.expired.value += 1
        self.write(
            AuditEvent(
                event=audit.SESSION_EXPIRED,
                principal=str(peer.principal),
                mechanism=peer.mechanism,
                listener=peer.listener,
                address=peer.address,
            )
        )

    # --- Writing ---

    def write(self, event: AuditEvent) -> None:
        """Write one event."""
        now = datetime.fromtimestamp(self._clock.now_ms() / 1_000, UTC)
        logger.info("%s", audit.line_of(event, now.isoformat(timespec="milliseconds")))

    async def run(self) -> None:
        """Write the counts of repeated denials in time, until cancelled."""
        try:
            while True:
                written = list(self._denials.due(self._clock.monotonic()))
                for one in written:
                    self.write(one)
                await asyncio.sleep(MORE_SECONDS if written else audit.REPEAT_SECONDS / 2)
        finally:
            for one in self._denials.all():
                self.write(one)

    def _count(self, listener: str, mechanism: str, result: str) -> None:
        key = (listener, mechanism, result)
        self._logins[key] = self._logins.get(key, 0) + 1

    def _login_rows(self) -> list[Row]:
        return [Row(key, count) for key, count in self._logins.items()]

    def _denied_rows(self) -> list[Row]:
        return [Row((api,), count) for api, count in self._denied.items()]


def _event(
    kind: str,
    peer: Peer,
    api_key: int,
    operation: Operation,
    resource_type: ResourceType,
    name: str,
) -> AuditEvent:
    return AuditEvent(
        event=kind,
        principal=str(peer.principal),
        mechanism=peer.mechanism,
        listener=peer.listener,
        address=peer.address,
        api=ApiKey(api_key).name,
        # Cut here: a denial is kept for a while, and a client may send names of 32 KB.
        resource=audit.resource_text(resource_type, name[: audit.TEXT_MAX]),
        operation=operation.name,
    )
