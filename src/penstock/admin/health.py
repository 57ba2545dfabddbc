"""The health of a broker: facts in, a level and its reasons out. Pure.

    Healthy   no problems
    Degraded  existing clients are served, but the broker is slow or refuses some new work (a topic,
              one address's next connection), or will if this goes on
    Critical  records or new clients are refused, or requests are stuck

Each reason has the problem, its remedy, and whether new clients can still be sent here. The
readiness probe needs only the last, which is not the same as the level. A full disk is critical,
because produce is refused; but consumers are served, and a broker that is removed from the load
balancer could not be drained.

It reads no clock and does no IO. `node` collects the facts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from penstock.core.limit_use import LimitUse

NEAR_SHARE: Final = 0.9
"""Starting at this share of a limit, operators are warned: there is still time to act."""
FLUSH_SECONDS_MAX: Final = 10.0
"""A longer sync is stuck: a slow disk needs a tenth of a second, and clients wait for 30 s."""


class Level(StrEnum):
    """The health of a broker, in one word."""

    HEALTHY = "Healthy"
    DEGRADED = "Degraded"
    CRITICAL = "Critical"


@dataclass(frozen=True, slots=True)
class DirectoryFacts:
    """One data directory."""

    path: str
    room: Literal["enough", "low", "none"]
    failure: str | None = None
    """Why it is offline, or None."""
    flush_seconds: float = 0.0
    """Seconds since the current sync began."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The state of a broker at one moment."""

    is_started: bool
    is_stopping: bool
    directories: tuple[DirectoryFacts, ...]
    limits: tuple[LimitUse, ...]
    offline_partitions: int = 0
    """Partitions that are not served: their log is damaged, or their directory is offline."""
    coordinators_loading: int = 0
    coordinators_failed: int = 0
    declared_topic_problems: int = 0
    settings_refusal: str | None = None
    """Why the present settings file is not in force."""
    security_problems: tuple[str, ...] = ()
    """Why changed certificates or access rules are not in force."""
    metadata_problems: tuple[str, ...] = ()
    """Why the newest metadata is not in force: for instance, a value has a newer version."""
    pipe_problems: tuple[str, ...] = ()
    """The reasons of unhealthy pipes."""
    dead_letter_problems: tuple[str, ...] = ()
    """Share groups whose dead letters cannot be written, with the reasons."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a broker is not healthy."""

    code: str
    level: Level
    message: str
    remedy: str
    is_ready: bool = True
    """Whether new clients can be sent here anyway."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of `judge`; the worst reason first."""

    level: Level
    reasons: tuple[Reason, ...]

    @property
    def is_ready(self) -> bool:
        """Whether new clients can be sent here."""
        return all(reason.is_ready for reason in self.reasons)


def judge(facts: Facts) -> Verdict:
    """Return the level and all reasons for it."""
    reasons = [
        *_life(facts),
        *(reason for directory in facts.directories for reason in _directory(directory)),
        *(reason for limit in facts.limits for reason in _limit(limit)),
        *_parts(facts),
        *_deliveries(facts),
    ]
    reasons.sort(key=lambda reason: (reason.is_ready, reason.level is not Level.CRITICAL))
    levels = {reason.level for reason in reasons}
    worst = next((one for one in (Level.CRITICAL, Level.DEGRADED) if one in levels), Level.HEALTHY)
    return Verdict(worst, tuple(reasons))


def _life(facts: Facts) -> Iterator[Reason]:
    if facts.is_stopping:
        yield Reason(
            "stopping",
            Level.CRITICAL,
            "The broker is stopping: it finishes what it accepted and takes nothing new.",
            "Wait for the next broker, or start it again.",
            is_ready=False,
        )
    elif not facts.is_started:
        yield Reason(
            "starting",
            Level.CRITICAL,
            "The broker is starting: its logs are being loaded.",
            "Wait. After a crash the end of each log is verified, which takes as long as reading.",
            is_ready=False,
        )


def _directory(directory: DirectoryFacts) -> Iterator[Reason]:
    if directory.failure is not None:
        yield Reason(
            "directory-offline",
            Level.CRITICAL,
            f"The data directory {directory.path} is offline: {directory.failure}",
            "Look at the disk (dmesg), repair or replace it, then restart the broker. Nothing that "
            "was acknowledged is lost.",
            is_ready=False,
        )
        return
    if directory.flush_seconds > FLUSH_SECONDS_MAX:
        yield Reason(
            "flush-stuck",
            Level.CRITICAL,
            f"A sync of {directory.path} takes {directory.flush_seconds:.0f} s already: no produce "
            "is acknowledged.",
            "Look at the disk (dmesg, iostat). The broker goes on by itself when the sync returns.",
            is_ready=False,
        )
    if directory.room == "none":
        yield Reason(
            "disk-full",
            Level.CRITICAL,
            f"The disk of {directory.path} is too full: produce is refused, fetch goes on.",
            "Make room: delete topics or records, shorten retention, or enlarge the disk. Produce "
            "is taken again without a restart.",
        )
    elif directory.room == "low":
        yield Reason(
            "disk-low",
            Level.DEGRADED,
            f"The disk of {directory.path} is nearly full; produce is refused when it is.",
            "Make room: delete topics or records, shorten retention, or enlarge the disk.",
        )


_MEMORY: Final = (Level.DEGRADED, "connections are not read from until requests are answered")
_MORE_BYTES: Final = "Look for a slow disk, or raise listener.request_bytes_in_flight_max."

_AT_LIMIT: Final[dict[str, tuple[Level, str, str, bool]]] = {
    "connections": (
        Level.CRITICAL,
        "every new connection is closed at once",
        "Find clients that leak connections, or raise listener.connections_max (and `ulimit -n`).",
        False,
    ),
    "connections_of_one_address": (
        Level.DEGRADED,
        "further connections from that address are closed at once",
        "Find what leaks connections there, or raise listener.connections_per_address_max.",
        True,
    ),
    "requests_in_flight": (*_MEMORY, "Look for a slow disk, or for clients that flood.", True),
    "request_bytes_handled": (*_MEMORY, _MORE_BYTES, True),
    "request_bytes_arriving": (*_MEMORY, _MORE_BYTES, True),
    "unsent_answer_bytes": (
        Level.DEGRADED,
        "a fetch gets a single batch",
        "Look for clients that ask for much and read slowly.",
        True,
    ),
    "parked_requests": (
        Level.CRITICAL,
        "a fetch is answered at once with the available records, a waiting produce with a timeout",
        "Look for clients that open many connections and only wait; restart them.",
        True,
    ),
    "parked_partitions": (
        Level.DEGRADED,
        "a fetch is answered at once with the available records",
        "Look for clients that open many connections and fetch from many partitions.",
        True,
    ),
    "partitions": (
        Level.DEGRADED,
        "no topic can be created",
        "Delete unused topics, or start another broker.",
        True,
    ),
}
"""The effect of reaching a limit: level, consequence, remedy, whether new clients can connect."""

_OTHER_LIMIT: Final = (
    Level.DEGRADED,
    "more of it is refused or waits",
    "See docs/internals/limits.md for what the limit protects.",
    True,
)


_NO_REASONS: Final = frozenset({"disk_used_bytes", "fetch_sessions"})
"""The directory reports its disk, with the operator's marks. A full cache of fetch sessions costs a
few bytes for each fetch, and rejects no client."""


def _limit(limit: LimitUse) -> Iterator[Reason]:
    if limit.current is None or limit.name in _NO_REASONS:
        return
    level, consequence, remedy, is_ready = _AT_LIMIT.get(limit.name, _OTHER_LIMIT)
    words = limit.name.replace("_", " ")
    usage = f"{limit.current:.0f} of {limit.limit:.0f} {limit.unit}"
    if limit.current >= limit.limit:
        message = f"The limit of {words} is reached ({usage}): {consequence}."
        yield Reason(f"{limit.name}-at-limit", level, message, remedy, is_ready)
    elif limit.current >= NEAR_SHARE * limit.limit:
        message = f"The limit of {words} is near ({usage}); at the limit {consequence}."
        yield Reason(f"{limit.name}-near-limit", Level.DEGRADED, message, remedy)


def _parts(facts: Facts) -> Iterator[Reason]:
    if facts.offline_partitions:
        is_offline = any(directory.failure is not None for directory in facts.directories)
        why = "a directory is offline, or a log is damaged" if is_offline else "a log is damaged"
        first = "Repair the directory first: its partitions return with it. "
        yield Reason(
            "partitions-damaged",
            Level.CRITICAL,
            f"{_count(facts.offline_partitions, 'partition')} not served: {why}.",
            f"{first if is_offline else ''}The broker's log names the damaged ones. `penstock log "
            "dump` shows how far a file is good. Restore it, or delete the topic.",
        )
    if facts.coordinators_failed:
        yield Reason(
            "coordinators-failed",
            Level.CRITICAL,
            f"{_count(facts.coordinators_failed, 'coordinator')} not served: its log cannot be "
            "read.",
            "The broker's log says why. Groups and transactions of other partitions go on.",
        )
    if facts.coordinators_loading:
        yield Reason(
            "coordinators-loading",
            Level.DEGRADED,
            f"{_count(facts.coordinators_loading, 'coordinator')} being loaded: their groups and "
            "transactions wait.",
            "Wait: clients repeat their requests by themselves.",
        )
    if facts.settings_refusal is not None:
        yield Reason(
            "settings-refused",
            Level.DEGRADED,
            "The settings file was changed and rejected, so the broker keeps its settings: "
            f"{facts.settings_refusal}",
            "Correct the file; the broker reads it again by itself. `penstock config check` lists "
            "all its errors.",
        )
    for problem in facts.metadata_problems:
        yield Reason(
            "metadata",
            Level.CRITICAL,
            f"The newest metadata is not in force, the last known is: {problem}",
            "Install the newer Penstock that wrote the value, or repair the metadata store.",
        )
    for problem in facts.security_problems:
        yield Reason(
            "security-files",
            Level.DEGRADED,
            f"A changed file is rejected, and the one before stays in force: {problem}",
            "Correct the file; the broker reads it again by itself.",
        )
    if facts.declared_topic_problems:
        yield Reason(
            "declared-topics",
            Level.DEGRADED,
            f"{_count(facts.declared_topic_problems, 'declared topic')} not as the settings file "
            "says.",
            "The broker's log says why. `penstock config plan` shows what is missing.",
        )


def _deliveries(facts: Facts) -> Iterator[Reason]:
    for problem in facts.pipe_problems:
        yield Reason(
            "pipes",
            Level.DEGRADED,
            f"A pipe does not copy: {problem}.",
            "`penstock pipe status` shows the remedy.",
        )
    for problem in facts.dead_letter_problems:
        yield Reason(
            "dead-letters",
            Level.DEGRADED,
            f"{problem[:1].upper()}{problem[1:]}.",
            "Correct the dead-letter topic or the setting of the group; the broker retries.",
        )


def _count(number: int, noun: str) -> str:
    return f"1 {noun} is" if number == 1 else f"{number} {noun}s are"
