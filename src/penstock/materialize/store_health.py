"""Health of the service, from the state of the store and of each topic (pure).

    HEALTHY     every topic follows its log, and nothing is missing
    DEGRADED    queries are answered, and something is behind or missing: loading, a refresh, a gap,
                a broker that is unreachable for less than a minute
    UNHEALTHY   rows are not updated: no contact for a minute, a full disk, a topic that is missing,
                was created again, has diverged, is denied or is corrupt

Each reason has a remedy. It reads no clock: the caller passes the time.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.materialize.topic_decisions import TopicState

CONTACT_SECONDS_MAX: Final = 60.0
"""Without contact for longer, the service is UNHEALTHY."""
GAPS_SHOWN_MAX: Final = 100

_STOPPED: Final = frozenset(
    {
        TopicState.MISSING,
        TopicState.RECREATED,
        TopicState.DIVERGED,
        TopicState.DENIED,
        TopicState.CORRUPT,
    }
)


class Health(enum.Enum):
    """The state of the service or of a topic."""

    HEALTHY = "HEALTHY"
    DEGRADED = "DEGRADED"
    UNHEALTHY = "UNHEALTHY"


_ORDER: Final = list(Health)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why rows are not updated."""

    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class GapFact:
    """Offsets that were deleted from the log before they were read."""

    partition: int
    from_offset: int
    until_offset: int
    declared_ms: int


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """The state of one topic."""

    state: TopicState = TopicState.STARTING
    positions: Mapping[int, int] = field(default_factory=dict)
    """Of the rows that are served."""
    ends: Mapping[int, int] = field(default_factory=dict)
    generation: int = 0
    gaps: Sequence[GapFact] = ()
    skipped_records: int = 0
    trouble: Trouble | None = None

    @property
    def lag_records(self) -> int | None:
        """Return the offsets between the positions and the ends; None before the first answer."""
        if not self.ends:
            return None
        return sum(
            max(0, end - self.positions.get(partition, 0)) for partition, end in self.ends.items()
        )

    @property
    def health(self) -> Health:
        """Return the health of the topic."""
        if self.state in _STOPPED:
            return Health.UNHEALTHY
        if self.state is TopicState.FOLLOWING and not self.gaps:
            return Health.HEALTHY
        return Health.DEGRADED


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """The state of the whole service."""

    topics: Mapping[str, TopicFacts]
    contact_seconds: float | None = None
    """Since the last answer of a broker; None before the first."""
    uptime_seconds: float = 0.0
    unreachable: Trouble | None = None
    store: Trouble | None = None
    """Set while the file cannot be written."""


def overall(facts: ServiceFacts) -> Health:
    """Return the health of the service: that of its worst part."""
    found = [topic.health for topic in facts.topics.values()]
    if facts.store is not None:
        found.append(Health.UNHEALTHY)
    if facts.unreachable is not None:
        since = facts.uptime_seconds if facts.contact_seconds is None else facts.contact_seconds
        found.append(Health.UNHEALTHY if since > CONTACT_SECONDS_MAX else Health.DEGRADED)
    return max(found, key=_ORDER.index, default=Health.DEGRADED)


def document(facts: ServiceFacts) -> dict[str, Any]:
    """Return the answer of `/health` with all details."""
    answer: dict[str, Any] = {"status": overall(facts).value}
    for name, trouble in (("broker", facts.unreachable), ("store", facts.store)):
        if trouble is not None:
            answer[name] = {"reason": trouble.reason, "remedy": trouble.remedy}
    if facts.contact_seconds is not None:
        answer["seconds_since_contact"] = round(facts.contact_seconds, 1)
    answer["topics"] = {name: _topic(topic) for name, topic in sorted(facts.topics.items())}
    return answer


def _topic(topic: TopicFacts) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "status": topic.health.value,
        "state": topic.state.value,
        "generation": topic.generation,
        "lag_records": topic.lag_records,
        "positions": {str(at): offset for at, offset in sorted(topic.positions.items())},
        "skipped_records": topic.skipped_records,
    }
    if topic.trouble is not None:
        answer["reason"], answer["remedy"] = topic.trouble.reason, topic.trouble.remedy
    if topic.gaps:
        answer["gap_count"] = len(topic.gaps)
        answer["gaps"] = [
            {
                "partition": gap.partition,
                "from": gap.from_offset,
                "until": gap.until_offset,
                "declared_ms": gap.declared_ms,
            }
            for gap in topic.gaps[:GAPS_SHOWN_MAX]
        ]
        answer.setdefault("reason", "records were deleted from the log before they were read.")
        answer.setdefault("remedy", "Restart with --refresh to load the topic again.")
    return answer
