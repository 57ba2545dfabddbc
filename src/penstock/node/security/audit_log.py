"""`AuditLog`: writes audit events to the logger `penstock.audit`, and counts them as metrics.

Its lines are JSON (`security.audit`). The logger is one of Python's: a handler that an operator
configures sends it elsewhere; without one it goes where the broker's log goes.

Denials of one client, API and operation within `GATHER_SECONDS` are one line with the first names:
a request for a thousand topics costs one line and below a microsecond for each topic. Counts of
repeated denials are written within `REPEAT_SECONDS` or at the stop. No other line is held back.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from penstock.broker.peer import Peer
from penstock.core.clock import Clock
from penstock.core.metrics import Family, Registry, Row
from penstock.protocol.api_keys import ApiKey
from penstock.security import audit
from penstock.security.acls.values import CLUSTER_NAME, Operation, ResourceType
from penstock.security.audit import AuditEvent, RepeatedDenials

logger = logging.getLogger(audit.LOGGER_NAME)

MORE_SECONDS = 0.05
"""Until the next counts are written, while some are due."""
GATHER_SECONDS: Final = 0.02
"""Denials of one client in this time are one line."""
GATHERED_MAX: Final = 1_000
"""Lines that are being gathered; above, all are written at once."""


class _Denials:
    """Denials of one client, API, operation and type of resource, until their line is written."""

    __slots__ = ("api_key", "count", "names", "operation", "peer", "resource_type")

    def __init__(
        self, peer: Peer, api_key: int, operation: Operation, resource_type: ResourceType
    ) -> None:
        self.peer = peer
        self.api_key = api_key
        self.operation = operation
        self.resource_type = resource_type
        self.count = 0
        self.names: dict[str, None] = {}
        """The first ones, cut: a client may send names of 32 KB."""


class AuditLog:
    """The audit log of one broker; also `broker.access.DecisionLog`."""

    def __init__(self, clock: Clock, metrics: Registry) -> None:
        # Whatever the level of the broker's log is: an audit log with holes is none.
        logger.setLevel(logging.INFO)
        self._clock = clock
        self._denials = RepeatedDenials()
        self._gathered: dict[tuple[Peer, int, int, int], _Denials] = {}
        self._last: _Denials | None = None
        """The denials that were added to last: those of a request follow one another."""
        self._timer: asyncio.TimerHandle | None = None
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
        found = self._last
        if not (
            found is not None
            and found.peer is peer
            and found.api_key == api_key
            and found.operation is operation
            and found.resource_type is resource_type
        ):
            found = self._gather(peer, api_key, operation, resource_type)
        found.count += 1
        if len(found.names) < audit.NAMED_MAX:
            found.names[name[: audit.TEXT_MAX]] = None

    def _gather(
        self, peer: Peer, api_key: int, operation: Operation, resource_type: ResourceType
    ) -> _Denials:
        if len(self._gathered) >= GATHERED_MAX:
            self.write_gathered()
        key = (peer, api_key, int(operation), int(resource_type))
        found = self._gathered.get(key)
        if found is None:
            found = self._gathered[key] = _Denials(peer, api_key, operation, resource_type)
        self._last = found
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(GATHER_SECONDS, self.write_gathered)
        return found

    def denied_over_http(
        self,
        peer: Peer,
        api: str,
        operation: Operation,
        resource_type: ResourceType = ResourceType.CLUSTER,
        name: str = CLUSTER_NAME,
    ) -> None:
        """An operation of the admin port itself was not allowed."""
        self._deny(_event(audit.DENIED, peer, api, operation, resource_type, name))

    def write_gathered(self) -> None:
        """Write the denials that were gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gathered, self._gathered, self._last = self._gathered, {}, None
        for one in gathered.values():
            self._deny(_denied(one))

    def _deny(self, event: AuditEvent) -> None:
        self._denied[event.api] = self._denied.get(event.api, 0) + event.count
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
        api = ApiKey(api_key).name
        self.write(_event(audit.ALLOWED, peer, api, operation, resource_type, name))

    def changed(
        self, peer: Peer, api_key: int, changes: Sequence[Mapping[str, str]], others: int
    ) -> None:
        """Rules or users were changed; `others` is the number of the ones without a name here."""
        self.write(
            AuditEvent(
                event=audit.CHANGED,
                principal=str(peer.principal),
                mechanism=peer.mechanism,
                listener=peer.door or peer.listener,
                address=peer.address,
                api=ApiKey(api_key).name,
                changes=tuple(changes),
                others=others,
            )
        )

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
            self.write_gathered()
            for one in self._denials.all():
                self.write(one)

    def _count(self, listener: str, mechanism: str, result: str) -> None:
        key = (listener, mechanism, result)
        self._logins[key] = self._logins.get(key, 0) + 1

    def _login_rows(self) -> list[Row]:
        return [Row(key, count) for key, count in self._logins.items()]

    def _denied_rows(self) -> list[Row]:
        self.write_gathered()
        return [Row((api,), count) for api, count in self._denied.items()]


def _event(
    kind: str,
    peer: Peer,
    api: str,
    operation: Operation,
    resource_type: ResourceType,
    name: str,
) -> AuditEvent:
    return AuditEvent(
        event=kind,
        # Cut here, as all texts: a denial is kept for a while.
        principal=str(peer.principal)[: audit.TEXT_MAX],
        mechanism=peer.mechanism,
        listener=peer.door or peer.listener,
        address=peer.address,
        api=api,
        resource=audit.resource_text(resource_type, name[: audit.TEXT_MAX]),
        operation=operation.name,
    )


def _denied(found: _Denials) -> AuditEvent:
    """Return the event of denials that were gathered."""
    kind, names = found.resource_type, list(found.names)
    api = ApiKey(found.api_key).name
    event = _event(audit.DENIED, found.peer, api, found.operation, kind, names[0])
    if len(names) == 1:
        return replace(event, count=found.count)
    listed = tuple(audit.resource_text(kind, name[: audit.LISTED_TEXT_MAX]) for name in names)
    return replace(event, resource="", resources=listed, count=found.count)
