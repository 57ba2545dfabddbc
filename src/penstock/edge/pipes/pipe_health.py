"""Health of a pipe: HEALTHY, DEGRADED or UNHEALTHY, with the reason and the remedy. Pure.

    HEALTHY     the parent answered within 3 polls, and the lag is below 10 s or falls
    DEGRADED    the pipe retries, catches up, waits for disk space, or clocks differ
    UNHEALTHY   no contact for 60 s, access refused, topic recreated, gap, disk full

Guarantees: the first matching row of `judge` decides, and UNHEALTHY rows come first. Each state but
HEALTHY has a reason and a remedy. It measures nothing: `edge.pipes.pipe_runner` collects the facts.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from penstock.edge.pipes.down_pipe import Problem

POLLS_WITHOUT_CONTACT_MAX: Final = 3
CONTACT_SECONDS_MAX: Final = 60.0
"""Without contact for longer, a pipe is unhealthy."""
LAG_SECONDS_MAX: Final = 10.0
CLOCK_SKEW_SECONDS_MAX: Final = 300.0


class State(Enum):
    """The health of a pipe."""

    HEALTHY = "HEALTHY"
    DEGRADED = "DEGRADED"
    UNHEALTHY = "UNHEALTHY"


class Room(Enum):
    """Free space of the disk of this broker."""

    ENOUGH = "enough"
    LOW = "low"
    FULL = "full"


class Priority(Enum):
    """The order in which pipes give way to a filling disk."""

    LOW = "low"
    NORMAL = "normal"


class Facts(NamedTuple):
    """The state of a pipe at one moment; times are seconds of one monotonic clock."""

    now: float
    silent_since: float
    """The last answer of the parent, or the start of the pipe."""
    poll_seconds: float
    is_retrying: bool
    problems: Sequence[Problem]
    """Of partitions that are refused, stopped, or have a gap."""
    failure: str
    """The last error of a connection; empty while the parent answers."""
    behind_since: float | None
    """When the pipe last had everything; None while it has."""
    is_catching_up: bool
    """Whether the lag falls."""
    lag_records: int
    records_per_second: float
    room: Room
    is_paused: bool
    clock_skew_seconds: float
    """How far the newest record lies in the future of this broker's clock."""


class Health(NamedTuple):
    """The health of a pipe, for operators."""

    state: State
    reason: str = ""
    remedy: str = ""


def is_held(room: Room, priority: Priority) -> bool:
    """Return whether a pipe copies nothing because of the disk."""
    return room is Room.FULL or (room is Room.LOW and priority is Priority.LOW)


def judge(facts: Facts) -> Health:
    """Return the health."""
    silent_seconds = facts.now - facts.silent_since
    return (
        _unhealthy(facts, silent_seconds)
        or _degraded(facts, silent_seconds)
        or Health(State.HEALTHY)
    )


def _unhealthy(facts: Facts, silent_seconds: float) -> Health | None:
    if facts.problems:
        first = facts.problems[0]
        more = len(facts.problems) - 1
        also = f" ({more} more partitions have problems)" if more else ""
        return Health(State.UNHEALTHY, f"{first.reason}{also}", first.remedy)
    if facts.room is Room.FULL:
        return Health(
            State.UNHEALTHY,
            "disk full: nothing is copied",
            "free disk space, or lower retention.ms of the mirrors",
        )
    if silent_seconds > CONTACT_SECONDS_MAX and not facts.is_paused:
        return Health(
            State.UNHEALTHY,
            f"no contact with the parent for {silent_seconds:.0f} s"
            + (f": {facts.failure}" if facts.failure else ""),
            "check the network and the parent; the pipe retries by itself",
        )
    return None


def _degraded(facts: Facts, silent_seconds: float) -> Health | None:
    lag = f"{facts.lag_records} records behind"
    if facts.is_paused:
        return Health(State.DEGRADED, "paused", "resume it with `penstock pipe resume`")
    if facts.room is Room.LOW:
        return Health(State.DEGRADED, "disk space is low", "free disk space")
    is_silent = silent_seconds > POLLS_WITHOUT_CONTACT_MAX * facts.poll_seconds
    if facts.is_retrying or is_silent:
        reason = facts.failure or f"no answer for {silent_seconds:.0f} s"
        return Health(State.DEGRADED, f"retrying: {reason}", "the pipe retries by itself")
    if facts.behind_since is not None and facts.now - facts.behind_since > LAG_SECONDS_MAX:
        if facts.is_catching_up:
            return Health(State.DEGRADED, f"catching up: {lag}", "wait until it is in step")
        return Health(
            State.DEGRADED,
            f"{lag}, and the lag does not fall",
            "raise bytes_per_second_max, or check the link to the parent",
        )
    if facts.clock_skew_seconds > CLOCK_SKEW_SECONDS_MAX:
        return Health(
            State.DEGRADED,
            f"clock skew: the newest record is {facts.clock_skew_seconds:.0f} s in the future",
            "synchronize the clocks of this broker and of the producers (NTP)",
        )
    return None


def seconds_to_catch_up(lag_records: int, records_per_second: float) -> float | None:
    """Return the time until the lag is 0 at the present rate; None if it is unknown."""
    if lag_records <= 0:
        return 0.0
    return None if records_per_second <= 0 else lag_records / records_per_second


def seconds_until_full(room_bytes: int, bytes_per_second: float) -> float | None:
    """Return the time until the disk is full at the present rate; None if it does not fill."""
    return None if bytes_per_second <= 0 else max(0, room_bytes) / bytes_per_second
