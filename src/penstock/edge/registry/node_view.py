"""A node as operators see it: its state, with the reason (pure).

NEW        created by an operator, never registered
UNHEALTHY  silent for longer than `SILENCE_SECONDS`, or its pipes report it
DEGRADED   its pipes report it, or a second process with the same id was refused
HEALTHY    otherwise
"""

from dataclasses import dataclass
from typing import Final, Literal

from penstock.edge.registry.documents import (
    ConflictDocument,
    NodeDocument,
    Registration,
)
from penstock.edge.registry.instances import SILENCE_SECONDS
from penstock.edge.registry.node_entry import NO_INSTANCE, NodeEntry

CONFLICT_SECONDS: Final = 600.0
"""A conflict of instances is part of the state for this long after its last attempt."""

State = Literal["HEALTHY", "DEGRADED", "UNHEALTHY", "NEW"]


@dataclass(frozen=True, slots=True)
class Conflict:
    """The last process that was refused because of its instance number."""

    is_certain: bool
    """False: it may be a restart, whose process before has just ended."""
    address: str
    instance: int
    reason: str
    at_seconds: float
    times: int

    def document(self, now_seconds: float) -> ConflictDocument:
        """Return it for operators."""
        return ConflictDocument(
            address=self.address,
            instance=self.instance,
            reason=self.reason,
            seconds_ago=round(now_seconds - self.at_seconds, 1),
            times=self.times,
        )


def node_document(
    entry: NodeEntry,
    *,
    children: int,
    revision: int,
    silent_seconds: float,
    was_seen: bool,
    report: Registration | None,
    conflict: ConflictDocument | None,
) -> NodeDocument:
    """Return a node with its state; `report` is the last one since the start of the registry."""
    health = None if report is None else report.health
    state, reason = _state(entry, silent_seconds, report, conflict)
    return NodeDocument(
        id=entry.id,
        role=entry.role,
        chosen_role=entry.chosen_role,
        parent=entry.parent,
        pinned_parent=entry.pinned_parent,
        children=children,
        addresses=dict(entry.addresses),
        labels=dict(entry.labels),
        version=entry.version,
        instance=entry.instance,
        revision=revision,
        state=state,
        reason=reason,
        seen_seconds_ago=round(silent_seconds, 1) if was_seen else None,
        disk=None if report is None else report.disk,
        lag_records=None if health is None else health.lag_records,
        lag_seconds=None if health is None else health.lag_seconds,
        conflict=conflict,
    )


def _state(
    entry: NodeEntry,
    silent_seconds: float,
    report: Registration | None,
    conflict: ConflictDocument | None,
) -> tuple[State, str]:
    if entry.instance == NO_INSTANCE and not entry.addresses:
        return "NEW", "has not registered itself yet"
    if silent_seconds >= SILENCE_SECONDS:
        return "UNHEALTHY", f"not seen for {silent_seconds:.0f} s"
    health = None if report is None else report.health
    if health is not None and health.state != "HEALTHY":
        return health.state, health.reason
    if conflict is not None and conflict.seconds_ago < CONFLICT_SECONDS:
        return "DEGRADED", f"two processes have this id: {conflict.reason}"
    return "HEALTHY", ""
