"""Compares the acknowledged and consumed records of real clients with the log. Pure."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from tests.crash.ledger import Ledger, PartitionContent, summary

Place = tuple[int, int]
"""Partition and offset."""


def places(log: Mapping[int, PartitionContent]) -> set[Place]:
    """Every record of a log."""
    return {(partition, offset) for partition, content in log.items() for offset, _ in content}


def not_shown(
    log: Mapping[int, PartitionContent], shown: Mapping[str, AbstractSet[Place]]
) -> dict[str, set[Place]]:
    """For each group the records that it never got."""
    everything = places(log)
    return {group: everything - found for group, found in shown.items()}


def compared(
    ledger: Ledger, log: Mapping[int, PartitionContent], shown: Mapping[str, AbstractSet[Place]]
) -> dict[str, object]:
    """What the log breaks of what was acknowledged and seen, and what groups were not shown.

    Groups must be at the end of the log: then each record of it was seen, where and as it is.
    """
    expected = ledger.expected()
    violations = ledger.violations(expected, log)
    seen = {(place.partition, place.offset) for place in expected.seen}
    return {
        "totals": ledger.totals,
        "seen": len(seen),
        "unseen": len(places(log) - seen),
        "violations": len(violations),
        "told": summary(violations) if violations else "",
        "not_shown": {group: len(missing) for group, missing in not_shown(log, shown).items()},
    }
