"""Server-side assignors: pure functions from a group to an assignment.

`uniform` spreads partitions evenly and moves few; `range` gives neighbours of every topic to one
member. The names are Kafka's; members choose by them.
"""

from typing import Final

from penstock.coordinator.groups.assignors.range import assign_ranges
from penstock.coordinator.groups.assignors.specification import (
    Assignor,
    GroupSpecification,
    MemberSpecification,
    PartitionSets,
)
from penstock.coordinator.groups.assignors.uniform import assign_uniformly

ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
"""By name, in the order of preference: the first is the default, as in Kafka."""
DEFAULT_ASSIGNOR: Final = "uniform"

__all__ = [
    "ASSIGNORS",
    "DEFAULT_ASSIGNOR",
    "Assignor",
    "GroupSpecification",
    "MemberSpecification",
    "PartitionSets",
]
