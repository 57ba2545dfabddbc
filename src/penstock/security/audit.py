"""The audit log: its events as lines of JSON, and bounds on the lines about denials (pure).

One JSON object a line. Names come from clients: each is cut at `TEXT_MAX` characters, and JSON
escapes line ends and control characters, so that no name can begin a line of its own. An event
holds no password, token, salt or key, and names `NAMED_MAX` resources or changes at most.

A denial is written when it first happens; the same denial (principal, address, API, resources,
operation) within `REPEAT_SECONDS` is counted, and the count is written afterwards. Denials of one
principal at one address, and failed logins of one address, get `LINES_MAX` lines in each second;
the number of others is written as one line. IPv6 addresses share these lines by their first 64
bits. Changes and logins are never dropped. The caller passes the time and writes the lines.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from penstock.core.client_host import host_of
from penstock.security.acls.values import AclBinding, Operation, ResourceType

LOGGER_NAME: Final = "penstock.audit"
TEXT_MAX: Final = 249
REPEAT_SECONDS: Final = 10.0
DENIALS_MAX: Final = 5_000
"""Denials that are counted at one time, of 3 KB at most; above, the oldest counts are written
early."""
NAMED_MAX: Final = 20
"""Resources or changes that a line names."""
LISTED_TEXT_MAX: Final = 100
"""Characters of a resource in a list of several."""
LINES_MAX: Final = 50
"""Lines about denials of one principal at one address in `LIMIT_SECONDS`."""
LIMIT_SECONDS: Final = 1.0
WINDOWS_MAX: Final = 10_000
"""Principals and addresses with recent denials; above, the others share one limit."""

DUE_AT_ONCE: Final = 200
"""Counts that are written at once: the event loop has other work."""

LOGIN: Final = "login"
LOGIN_FAILED: Final = "login_failed"
REAUTHENTICATED: Final = "reauth"
DENIED: Final = "denied"
ALLOWED: Final = "allowed"
CHANGED: Final = "changed"
SUPPRESSED: Final = "suppressed"
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
    resources: tuple[str, ...] = ()
    """The first ones, if it happened to several."""
    changes: tuple[Mapping[str, str], ...] = ()
    """The first rules or users that were changed."""
    others: int = 0
    """How many more were changed."""


def line_of(event: AuditEvent, time_text: str) -> str:
    """Return the line of an event without its end; `time_text` is its time in ISO 8601."""
    values: dict[str, object] = {"time": time_text, "event": event.event}
    for name in ("principal", "mechanism", "listener", "address", "api", "resource", "operation"):
        if text := getattr(event, name):
            values[name] = _cut(text)
    if event.resources:
        values["resources"] = [_cut(one) for one in event.resources[:NAMED_MAX]]
    if event.changes:
        values["changes"] = [
            {name: _cut(text) for name, text in one.items()} for one in event.changes[:NAMED_MAX]
        ]
    if event.others:
        values["others"] = event.others
    if event.count > 1:
        values["count"] = event.count
    if event.reason:
        values["reason"] = _cut(event.reason)
    return json.dumps(values)


def resource_text(resource_type: ResourceType, name: str) -> str:
    """Return type and name of a resource, such as `TOPIC:orders`."""
    return f"{resource_type.name}:{name}"


def rule_values(rule: AclBinding) -> dict[str, str]:
    """Return an access rule as the values of a change."""
    return {
        "permission": rule.permission.name,
        "principal": rule.principal,
        "host": rule.host,
        "operation": rule.operation.name,
        "resource": resource_text(rule.resource_type, rule.name),
        "pattern": rule.pattern_type.name,
    }


def user_values(user: str, mechanism: str, *, is_deleted: bool) -> dict[str, str]:
    """Return the change of a user's credential; its salt and its keys are never a part of it."""
    return {"user": user, "mechanism": mechanism, "change": "deleted" if is_deleted else "set"}


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"


@dataclass(slots=True)
class _Repeats:
    first: AuditEvent
    since: float
    count: int = 0


_Key = tuple[str, str, str, str, str, str, tuple[str, ...]]


class RepeatedDenials:
    """Counts denials that happen again, and those above the limit of lines."""

    __slots__ = ("_known", "_limit")

    def __init__(self) -> None:
        self._known: dict[_Key, _Repeats] = {}
        self._limit = LineLimit()

    def take(self, event: AuditEvent, now: float) -> Iterator[AuditEvent]:
        """Yield the events to write now."""
        key = (
            event.event,
            event.principal,
            event.address,
            event.api,
            event.operation,
            event.resource,
            event.resources,
        )
        known = self._known.get(key)
        if known is not None and now - known.since < REPEAT_SECONDS:
            known.count += event.count
            return
        if known is not None:
            yield from self._forget(key)
        yield from self.due(now)
        if not self._limit.allows(event, now):
            return
        if len(self._known) >= DENIALS_MAX:
            yield from self._forget(next(iter(self._known)))
        self._known[key] = _Repeats(event, now)
        yield event

    def due(self, now: float) -> Iterator[AuditEvent]:
        """Yield the counts whose time is over, and forget them; the oldest come first."""
        yield from self._limit.due(now)
        for _ in range(DUE_AT_ONCE):
            if not self._known:
                return
            key, oldest = next(iter(self._known.items()))
            if now - oldest.since < REPEAT_SECONDS:
                return
            yield from self._forget(key)

    def all(self) -> Iterator[AuditEvent]:
        """Yield all counts and forget them, at the end of the log."""
        yield from self._limit.due(NEVER)
        while self._known:
            yield from self._forget(next(iter(self._known)))

    def _forget(self, key: _Key) -> Iterator[AuditEvent]:
        repeats = self._known.pop(key)
        if repeats.count:
            yield replace(repeats.first, count=repeats.count, reason="repeated")


NEVER: Final = float("inf")


@dataclass(slots=True)
class _Window:
    """The lines of one principal at one address."""

    since: float
    lines: int = 0
    suppressed: int = 0
    address: str = ""
    """Of the first event that was not written; empty if clients share this window."""


class LineLimit:
    """Bounds the lines that one client can cause."""

    __slots__ = ("_windows",)

    def __init__(self) -> None:
        self._windows: dict[tuple[str, str], _Window] = {}
        """By principal and `host_of` the address, the oldest first."""

    def allows(self, event: AuditEvent, now: float) -> bool:
        """Whether to write this event; call `due` first."""
        # A client that has not logged in chooses the name that it gives.
        principal = "" if event.event == LOGIN_FAILED else event.principal
        key = (principal, host_of(event.address))
        if key not in self._windows and len(self._windows) >= WINDOWS_MAX:
            key = ("", "")
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window(now)
        if window.lines < LINES_MAX:
            window.lines += 1
            return True
        if not window.suppressed and any(key):
            window.address = event.address
        window.suppressed += event.count
        return False

    def due(self, now: float) -> Iterator[AuditEvent]:
        """Yield the numbers of events that were not written, when their second is over."""
        for _ in range(DUE_AT_ONCE):
            if not self._windows:
                return
            key, oldest = next(iter(self._windows.items()))
            if now - oldest.since < LIMIT_SECONDS:
                return
            del self._windows[key]
            if oldest.suppressed:
                yield AuditEvent(
                    event=SUPPRESSED,
                    principal=key[0],
                    address=oldest.address,
                    count=oldest.suppressed,
                    reason=f"more than {LINES_MAX} lines in {LIMIT_SECONDS:.0f} s",
                )
