"""Checks and bounds before an offset reset: the group must be empty.

`groups.offset_reset` creates the plan from them. Several answers are not one moment: records may
arrive during the requests.
"""

from collections.abc import Sequence

from penstock.client.calls import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from penstock.client.cluster import Cluster
from penstock.client.groups import offset_reset
from penstock.client.groups.groups import CONSUMER, EMPTY, GroupNotEmptyError, Groups
from penstock.client.groups.offset_reset import Bounds, Scenario
from penstock.core.types import TopicPartition


def check_empty(groups: Groups, name: str, new_type: str = CONSUMER) -> str:
    """Raise unless the group is empty; a missing group is accepted: the commit creates it.

    Return its type, or `new_type` for a missing group.
    """
    found = groups.find(name, new_type)
    if found is not None and found.state != EMPTY:
        count = len(found.members)
        raise GroupNotEmptyError(
            f"group {name} is {found.state} with {count} member{'' if count == 1 else 's'}, and "
            "offsets can be moved only while it has none. Stop them and try again."
        )
    return new_type if found is None else found.group_type


def find_bounds(
    cluster: Cluster,
    groups: Groups,
    name: str,
    scenario: Scenario,
    wanted: Sequence[TopicPartition] | None,
    group_type: str = CONSUMER,
) -> dict[TopicPartition, Bounds]:
    """Return the bounds of these partitions, or of all with a committed or start offset."""
    committed = groups.positions(name, group_type)
    places = list(committed) if wanted is None else list(wanted)
    first = cluster.find_offsets(dict.fromkeys(places, EARLIEST_TIMESTAMP))
    end = cluster.find_offsets(dict.fromkeys(places, LATEST_TIMESTAMP))
    at_time = dict.fromkeys(places, offset_reset.NO_OFFSET)
    if scenario.kind == offset_reset.TO_TIMESTAMP:
        at_time = cluster.find_offsets(dict.fromkeys(places, scenario.value))
    return {
        at: Bounds(
            first[at],
            end[at],
            committed[at].offset if at in committed else None,
            at_time[at],
        )
        for at in places
    }
