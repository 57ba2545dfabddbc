"""The plan of one run, and the judgement of its result. Pure: no clock, no process.

Messages have numbers. The publisher of a direction sends the next number when its time has come,
and repeats it until its own server has acknowledged it; such a number is *accepted*. A receiver
notes each delivery with its position (offset, sequence), if the system has one.

- lost: an accepted number that was never received.
- doubled: a number that was received at two positions, or twice without a position.
- out of order: a first delivery with a lower number than one before it.
- positions kept: whether each number has the same position at its origin and at its destination.
"""

import random
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Plan:
    """The moments of a run, in seconds since its start."""

    cut_at: float
    kill_at: float
    """When the process of the site is killed; it is started again at once."""
    restore_at: float
    publish_until: float
    drain_seconds_max: float
    rate: float
    """Messages a second in each direction."""
    message_bytes: int

    @property
    def count(self) -> int:
        """Messages in each direction."""
        return int(self.publish_until * self.rate)


def plan_of(seed: int, outage_seconds: float, rate: float, message_bytes: int) -> Plan:
    """Return the plan of a seed: the link is cut for most of the time."""
    rng = random.Random(seed)
    cut_at = rng.uniform(3.0, 5.0)
    return Plan(
        cut_at=cut_at,
        kill_at=cut_at + outage_seconds * rng.uniform(0.4, 0.6),
        restore_at=cut_at + outage_seconds,
        publish_until=cut_at + outage_seconds + rng.uniform(2.0, 4.0),
        drain_seconds_max=120.0,
        rate=rate,
        message_bytes=message_bytes,
    )


@dataclass
class Direction:
    """The messages of one direction."""

    accepted: dict[int, int | None] = field(default_factory=dict)
    """Number to its position at the origin; None without positions."""
    received: dict[int, list[int | None]] = field(default_factory=dict)
    """Number to the position of each delivery."""
    order: list[int] = field(default_factory=list)
    """Numbers in the order of their first delivery."""

    def deliver(self, number: int, position: int | None) -> None:
        """Note a delivery; a position that was read before is the same record."""
        places = self.received.setdefault(number, [])
        if not places:
            self.order.append(number)
        if position is None or position not in places:
            places.append(position)

    @property
    def missing(self) -> list[int]:
        """Accepted numbers that were not received."""
        return sorted(self.accepted.keys() - self.received.keys())

    @property
    def doubled(self) -> int:
        """Deliveries beyond the first one of each number."""
        return sum(len(places) - 1 for places in self.received.values())

    @property
    def out_of_order(self) -> int:
        """First deliveries with a lower number than one before."""
        highest, count = -1, 0
        for number in self.order:
            count += number < highest
            highest = max(highest, number)
        return count

    @property
    def keeps_positions(self) -> bool | None:
        """Whether positions are equal at both ends; None for a system without positions."""
        known = [
            (place, self.received[number][0])
            for number, place in self.accepted.items()
            if number in self.received
        ]
        if not known or any(None in pair for pair in known):
            return None
        return all(origin == found for origin, found in known)


@dataclass
class Outcome:
    """The result of one run."""

    system: str
    up: Direction
    down: Direction
    waiting: list[int]
    """Accepted and not received when the link was restored: up, down."""
    catch_up_seconds: float | None
    """From the restored link until the messages of the outage had arrived; None: never."""
    memory_bytes: int
    """The most resident memory of the site's processes."""
    disk_bytes: int
    """Of the site, at the end."""
    failures: list[str] = field(default_factory=list)


def message(number: int, size: int) -> bytes:
    """Return the content of a message."""
    return b"%d " % number + b"." * max(0, size - len(str(number)) - 1)


def number_in(content: bytes) -> int:
    """Return the number of a message."""
    return int(content.split(b" ", 1)[0])


def row(outcome: Outcome) -> dict[str, object]:
    """Return the figures of a run."""

    def kept(direction: Direction) -> str:
        return {True: "yes", False: "no", None: "none"}[direction.keeps_positions]

    return {
        "system": outcome.system,
        "accepted up / down": f"{len(outcome.up.accepted):,} / {len(outcome.down.accepted):,}",
        "waiting at the end of the outage": "{:,} / {:,}".format(*outcome.waiting),
        "lost up / down": f"{len(outcome.up.missing):,} / {len(outcome.down.missing):,}",
        "doubled up / down": f"{outcome.up.doubled:,} / {outcome.down.doubled:,}",
        "out of order up / down": f"{outcome.up.out_of_order:,} / {outcome.down.out_of_order:,}",
        "positions kept up / down": f"{kept(outcome.up)} / {kept(outcome.down)}",
        "catch-up": "never"
        if outcome.catch_up_seconds is None
        else f"{outcome.catch_up_seconds:.1f} s",
        "memory of the site": f"{outcome.memory_bytes / 1e6:.0f} MB",
        "disk of the site": f"{outcome.disk_bytes / 1e6:.1f} MB",
    }


def table(rows: list[dict[str, object]]) -> str:
    """Return a table in Markdown: one column for each system."""
    names = [str(one["system"]) for one in rows]
    lines = ["| | " + " | ".join(names) + " |", "| --- " * (len(rows) + 1) + "|"]
    lines += [
        f"| {key} | " + " | ".join(str(one[key]) for one in rows) + " |"
        for key in rows[0]
        if key != "system"
    ]
    return "\n".join(lines)
