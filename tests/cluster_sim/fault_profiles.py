"""The size, the clients and the faults of a run, drawn from its seed.

Most runs draw a few kinds of faults from all of them. The others have a profile: faults that make
one rare situation likely, because a rule of the protocol exists for it. `nemesis` carries out the
faults; this module only chooses.
"""

import random
from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True)
class Plan:
    """The size of a run."""

    brokers: int = 3
    partitions: int = 3
    replication_factor: int = 3
    min_insync_replicas: int = 2
    seconds: float = 30.0
    has_faults: bool = True
    has_coordinators: bool = False
    """Whether there are members of a group, and transactional producers."""
    kinds: tuple[str, ...] = ()
    """The kinds of faults, more often if named more often; empty: some of all kinds."""
    gap_seconds: tuple[float, float] = (0.05, 3.0)
    """Between two faults."""
    lag_seconds: float = 10.0
    """A follower that is behind for this long leaves the ISR."""


PROFILES: Final[dict[str, tuple[int, Plan]]] = {
    "any": (10, Plan()),
    "any, more brokers": (2, Plan(brokers=5, partitions=2)),
    "any, with coordinators": (5, Plan(partitions=2, seconds=20.0, has_coordinators=True)),
    # Coordinators that change while groups and transactions run.
    "coordinators": (
        3,
        Plan(
            partitions=2,
            seconds=20.0,
            has_coordinators=True,
            kinds=("coordinator", "coordinator", "elect", "expire", "pause", "reset", "kill"),
        ),
    ),
    # Transactions that are decided, and whose markers do not arrive for seconds. The coordinators
    # of a transaction and of a group are often no replicas of one another.
    "markers": (
        1,
        Plan(
            brokers=5,
            partitions=2,
            seconds=20.0,
            has_coordinators=True,
            kinds=("crowded link", "crowded link", "crowded link", "cut", "coordinator"),
            gap_seconds=(0.5, 3.0),
            lag_seconds=0.7,
        ),
    ),
    # Other values of min.insync.replicas while replicas are out of sync.
    "minimum": (
        2,
        Plan(
            partitions=2,
            kinds=("min isr", "min isr", "kill", "power", "pause", "cut", "late watch"),
            gap_seconds=(0.05, 1.5),
        ),
    ),
    # Changes of the ISR whose outcome is not known, while several replicas are out of sync.
    "doubt": (
        2,
        Plan(
            brokers=4,
            partitions=1,
            replication_factor=4,
            min_insync_replicas=3,
            lag_seconds=1.5,
            kinds=("late writes", "late writes", "lost answers", "kill", "kill", "pause", "cut"),
            gap_seconds=(0.05, 1.2),
        ),
    ),
    # Leaders that lose some of their partitions only, and learn it late.
    "leaders": (
        2,
        Plan(
            partitions=6,
            kinds=("elect", "elect", "late watch", "late watch", "expire", "slow link", "kill"),
            gap_seconds=(0.05, 1.0),
        ),
    ),
    # Replicas that move while brokers fail.
    "moves": (
        2,
        Plan(
            brokers=5,
            partitions=2,
            kinds=("move", "move", "move", "kill", "pause", "elect", "expire", "late watch", "cut"),
            gap_seconds=(0.05, 2.0),
        ),
    ),
    # Disks that fail below a running broker or are replaced, and logs that cannot be served.
    "disks": (
        2,
        Plan(
            partitions=8,
            kinds=(
                *("dead disk", "dead disk", "quarantine", "wipe", "wipe"),
                *("elect", "elect", "kill", "expire"),
            ),
        ),
    ),
}
"""The weight and the plan of each profile."""


def plan_of(seed: int) -> Plan:
    """Return the plan of a seed."""
    draws = random.Random(f"plan {seed}")
    weights = [weight for weight, _ in PROFILES.values()]
    (name,) = draws.choices(list(PROFILES), weights)
    return replace(PROFILES[name][1])
