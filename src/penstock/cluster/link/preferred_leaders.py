"""`PreferredLeaders`: the partitions whose first replica can lead again, and since when. Pure.

A first replica leads again after it has been in sync for `STABLE_SECONDS`: a broker that fails
again and again must not move its leaders each time. The time is measured between two examinations
by the controller; a replica that leaves the in-sync replicas in between begins anew.

The first examination looks at all partitions. Each later one looks only at partitions with another
leader than their first replica, which are noted as images change: an idle cluster costs nothing.
"""

from collections.abc import Iterable, Iterator
from typing import Final
from uuid import UUID

from penstock.cluster.changes import Change, PartitionsChanged
from penstock.cluster.elections import Members, with_preferred_leader
from penstock.cluster.image import MetadataImage, PartitionImage

STABLE_SECONDS: Final = 60.0
"""Time in sync before a first replica leads again."""

Place = tuple[UUID, int]
"""Topic id and number of a partition."""


class PreferredLeaders:
    """Known from the examinations of one controller."""

    def __init__(self) -> None:
        self._since: dict[Place, float] = {}
        self._moved: dict[Place, None] | None = None
        """Partitions with another leader than their first replica; None until the first look."""

    def follow(self, image: MetadataImage, changes: Iterable[Change]) -> None:
        """Note moved leaders; forget partitions whose first replica cannot lead any more."""
        moved = self._moved
        if moved is None:
            return
        members: Members | None = None
        for change in changes:
            if not isinstance(change, PartitionsChanged):
                continue
            for index, state in change.partitions.items():
                place = change.topic_id, index
                if state is None or state.leader == state.replicas[0]:
                    moved.pop(place, None)
                else:
                    moved[place] = None
                if place in self._since:
                    members = members or Members.of(image)
                    if state is None or not _can_lead(state, members):
                        del self._since[place]

    def examine(self, image: MetadataImage, now: float) -> frozenset[Place]:
        """Return the partitions whose first replica leads again now."""
        members = Members.of(image)
        known, self._since = self._since, {}
        if self._moved is None:
            self._moved = dict.fromkeys(_moved_leaders(image))
        for topic_id, index in tuple(self._moved):
            topic = image.topic_by_id(topic_id)
            if topic is None or index >= len(topic.partitions):
                if topic_id not in image.unpublished:
                    del self._moved[topic_id, index]
            elif _can_lead(topic.partitions[index], members):
                self._since[topic_id, index] = known.get((topic_id, index), now)
        return frozenset(
            place for place, since in self._since.items() if now - since >= STABLE_SECONDS
        )

    def next_seconds(self, now: float) -> float | None:
        """Return the time until another partition has been in sync for long enough, if any."""
        earliest = min(self._since.values(), default=None)
        return None if earliest is None else max(0.0, earliest + STABLE_SECONDS - now)


def _moved_leaders(image: MetadataImage) -> Iterator[Place]:
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            if state.leader != state.replicas[0]:
                yield topic.id, index


def _can_lead(state: PartitionImage, members: Members) -> bool:
    return with_preferred_leader(state, members) is not None
