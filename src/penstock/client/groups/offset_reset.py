"""The plan of an offset reset, from the bounds of the partitions (pure).

The plan has one change for each partition. An offset outside of the log is moved to its nearest
end, with a remark in the change; a time after the last record means the end. An impossible request
(a shift without a committed offset, a partition that does not exist) raises `InvalidRequestError`,
and then there is no plan at all. Applying a plan is NOT done here.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.core.errors import InvalidRequestError
from penstock.core.types import TopicPartition

TO_EARLIEST: Final = "to-earliest"
TO_LATEST: Final = "to-latest"
TO_CURRENT: Final = "to-current"
TO_OFFSET: Final = "to-offset"
TO_TIMESTAMP: Final = "to-timestamp"
SHIFT_BY: Final = "shift-by"
FROM_FILE: Final = "from-file"

NO_OFFSET: Final = -1
"""The broker's answer when no record is as young as the requested time."""


class Bounds(NamedTuple):
    """The offsets of one partition."""

    first_offset: int
    end_offset: int
    committed: int | None = None
    at_timestamp: int = NO_OFFSET
    """The first offset at or after the time of the scenario, if the scenario has a time."""


class Scenario(NamedTuple):
    """The requested reset: one of the kinds above, with its number or its file."""

    kind: str
    value: int = 0
    offsets: Mapping[TopicPartition, int] = {}


class Change(NamedTuple):
    """One partition's part of a plan."""

    at: TopicPartition
    committed: int | None
    offset: int
    remark: str = ""
    """Why the offset differs from the requested one."""


def plan(scenario: Scenario, partitions: Mapping[TopicPartition, Bounds]) -> list[Change]:
    """Return the changes, by topic and partition."""
    return [_change(scenario, at, partitions[at]) for at in sorted(partitions)]


def _change(scenario: Scenario, at: TopicPartition, bounds: Bounds) -> Change:
    assert 0 <= bounds.first_offset <= bounds.end_offset, (at, bounds)
    wanted = _wanted(scenario, at, bounds)
    if wanted is None:
        remark = (
            "no record is that young: the end"
            if scenario.kind == TO_TIMESTAMP
            else "nothing is committed: the end"
        )
        return Change(at, bounds.committed, bounds.end_offset, remark)
    if wanted > bounds.end_offset:
        remark = f"{wanted} is after the end"
        return Change(at, bounds.committed, bounds.end_offset, remark)
    if wanted < bounds.first_offset:
        remark = f"{wanted} is before the first record that is kept"
        return Change(at, bounds.committed, bounds.first_offset, remark)
    return Change(at, bounds.committed, wanted)


def _wanted(scenario: Scenario, at: TopicPartition, bounds: Bounds) -> int | None:
    """Return the requested offset, before the check against the log; None means the end."""
    if scenario.kind == SHIFT_BY:
        if bounds.committed is None:
            raise InvalidRequestError(
                f"{at} cannot be shifted: the group committed nothing there. "
                "Use --to-earliest, --to-latest or --to-offset for it."
            )
        return bounds.committed + scenario.value
    if scenario.kind == FROM_FILE:
        return scenario.offsets[at]
    found: Mapping[str, int | None] = {
        TO_EARLIEST: bounds.first_offset,
        TO_LATEST: bounds.end_offset,
        TO_CURRENT: bounds.committed,
        TO_OFFSET: scenario.value,
        TO_TIMESTAMP: None if bounds.at_timestamp == NO_OFFSET else bounds.at_timestamp,
    }
    return found[scenario.kind]
