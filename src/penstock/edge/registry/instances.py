"""Instance numbers: one disk, one node (pure).

A node keeps the number that the registry gave it on its disk, and each of its processes has a
random text, its boot. A new process shows the number of its disk and gets the next one. The second
process of a copied disk shows the same number as the first:

    the first is alive (seen within `SILENCE_SECONDS`)    the second waits, and is reported
    the first has been silent                              the second gets the next number, and the
                                                           first shows an old number later
    an old number: a copied disk, or an old backup         refused until an operator accepts it

A number that was given and never used may be missing on the disk, because the node was killed
before it wrote it. So the newest used number and each later one are accepted. A restart waits for
the silence of the process before: meanwhile the node uses its last topology. A number above that of
the registry is accepted: the registry was restored from a backup.

It does NOT check the key of the node: `service` does that first.
"""

from dataclasses import dataclass, replace
from typing import Final

from penstock.edge.registry.node_entry import NO_INSTANCE, NodeEntry

SILENCE_SECONDS: Final = 90.0
"""Three polls: a process that is alive has been seen within this time."""
INSTANCE_MAX: Final = 2**53
"""The largest integer that every JSON parser reads exactly. Only an answer that is nonsense leads
to it: the next number is 1 again, so copied disks are found also then."""


@dataclass(frozen=True, slots=True)
class InstanceRefusal:
    """Why a process does not get the instance number."""

    reason: str
    remedy: str
    retry_after_seconds: int | None
    """None: only an operator can change it."""


def take_instance(
    entry: NodeEntry, shown: int, boot: str, silent_seconds: float
) -> NodeEntry | InstanceRefusal:
    """Return the entry with the instance of this process; `silent_seconds`: since the last call."""
    if entry.instance == NO_INSTANCE:
        return _next(entry, shown, boot)
    if boot == entry.boot:
        return entry  # the same process: its answer was lost, or its report has changed
    if shown < entry.used_instance:
        return InstanceRefusal(
            f"node {entry.id} is instance {entry.instance}, and this disk has instance {shown}: it "
            "is a copy of another disk or an old backup",
            "Give this machine an id of its own (registry.node_id). If this disk is the right one, "
            f"accept it with `penstock registry assign {entry.id} --new-instance`.",
            None,
        )
    if silent_seconds < SILENCE_SECONDS:
        return InstanceRefusal(
            f"another process of node {entry.id} was seen {silent_seconds:.0f} s ago",
            "After a restart, wait. If two machines have this id, their disk was copied: give one "
            "of them an id of its own (registry.node_id).",
            max(1, round(SILENCE_SECONDS - silent_seconds)),
        )
    return _next(entry, shown, boot)


def use_instance(entry: NodeEntry, shown: int) -> NodeEntry | InstanceRefusal:
    """Return the entry after a poll with an instance number."""
    if shown == entry.instance:
        return entry if entry.used_instance == shown else replace(entry, used_instance=shown)
    return InstanceRefusal(
        f"node {entry.id} is instance {entry.instance}, and the caller has instance {shown}",
        "Register again: PUT /registry/v1/nodes/{id}.",
        None,
    )


def new_instance(entry: NodeEntry) -> NodeEntry:
    """Return the entry that accepts any disk next; an operator asks for it."""
    return replace(entry, instance=NO_INSTANCE, boot="", used_instance=NO_INSTANCE)


def _next(entry: NodeEntry, shown: int, boot: str) -> NodeEntry:
    number = max(entry.instance, shown) + 1
    if number > INSTANCE_MAX:
        return replace(entry, instance=1, boot=boot, used_instance=NO_INSTANCE)
    return replace(entry, instance=number, boot=boot)
