"""The audit log: its events as lines of JSON, and denials counted instead of repeated (pure).

One JSON object a line. Names come from clients: each is cut at `TEXT_MAX` characters, and JSON
escapes line ends and control characters, so that no name can begin a line of its own. An event
holds no password, token or key.

A denial is written when it first happens; the same denial (principal, resource, operation) within
`REPEAT_SECONDS` is counted, and the count is written afterwards. Other events are never dropped.
The caller passes the time and writes the lines.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock.security.acls.values import Operation, ResourceType

LOGGER_NAME: Final = "penstock.audit"
TEXT_MAX: Final = 249
REPEAT_SECONDS: Final = 10.0
DENIALS_MAX: Final = 20_000
"""Denials that are counted at one time; above, the oldest counts are written early."""

DUE_AT_ONCE: Final = 200
"""Counts that are written at once: the event loop has other work."""

LOGIN: Final = "login"
LOGIN_FAILED: Final = "login_failed"
REAUTHENTICATED: Final = "reauth"
DENIED: Final = "denied"
ALLOWED: Final = "allowed"
CERTIFICATE_RELOADED: Final = "certificate_reloaded"
RULES_RELOADED: Final = "rules_reloaded"
SESSION_EXPIRED: Final = "session_expired"

CHANGES: Final = (
    1 << Operation.CREATE
    | 1 << Operation.DELETE
    | 1 << Operation.ALTER
    | 1 << Operation.ALTER_CONFIGS
)
"""Operations, as a bit set, that are written when they are allowed too."""


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One event; empty fields are left out of its line."""

    event: str
    principal: str = ""
    mechanism: str = ""
    listener: str = ""
    address: str = ""
    api: str = ""
    resource: str = ""
    operation: str = ""
    count: int = 1
    """How often it happened since the last line about it."""
    reason: str = ""


def line_of(event: AuditEvent, time_text: str) -> str:
    """Return the line of an event without its end; `time_text` is its time in ISO 8601."""
    values: dict[str, str | int] = {"time": time_text, "event": event.event}
    for name in ("principal", "mechanism", "listener", "address", "api", "resource", "operation"):
        if text := getattr(event, name):
            values[name] = _cut(text)
    if event.count > 1:
        values["count"] = event.count
    if event.reason:
        values["reason"] = _cut(event.reason)
    return json.dumps(values)


def resource_text(resource_type: ResourceType, name: str) -> str:
    """Return type and name of a resource, such as `TOPIC:orders`."""
    return f"{resource_type.name}:{name}"


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"


@dataclass(slots=True)
class _Repeats:
    first: AuditEvent
    since: float
    count: int = 0


class RepeatedDenials:
    """Counts denials that happen again."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], _Repeats] = {}

    def take(self, event: AuditEvent, now: float) -> Iterator[AuditEvent]:
        """Yield the events to write now."""
        key = (event.principal, event.resource, event.operation)
        known = self._known.get(key)
        if known is not None and now - known.since < REPEAT_SECONDS:
            known.count += 1
            return
        yield from self.due(now)
        if len(self._known) >= DENIALS_MAX:
            yield from self._forget(next(iter(self._known)))
        self._known[key] = _Repeats(event, now)
        yield event

    def due(self, now: float) -> Iterator[AuditEvent]:
        """Yield the counts whose time is over, and forget them; the oldest come first."""
        for _ in range(DUE_AT_ONCE):
            if not self._known:
                return
            key, oldest = next(iter(self._known.items()))
            if now - oldest.since < REPEAT_SECONDS:
                return
            yield from self._forget(key)

    def all(self) -> Iterator[AuditEvent]:
        """Yield all counts and forget them, at the end of the log."""
        while self._known:
            yield from self._forget(next(iter(self._known)))

    def _forget(self, key: tuple[str, str, str]) -> Iterator[AuditEvent]:
        repeats = self._known.pop(key)
        if repeats.count:
            first = repeats.first
            yield AuditEvent(
                event=first.event,
                principal=first.principal,
                mechanism=first.mechanism,
                listener=first.listener,
                address=first.address,
                api=first.api,
                resource=first.resource,
                operation=first.operation,
                count=repeats.count,
                reason="repeated",
            )
