"""`PreferredLeaders`: the partitions whose first replica can lead again, and since when. Pure.

A first replica leads again after it has been in sync for `STABLE_SECONDS`: a broker that fails
again and again must not move its leaders each time. The time is measured between two examinations
by the controller; a replica that leaves the in-sync replicas in between begins anew.
"""

from collections.abc import Iterable
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

    def follow(self, image: MetadataImage, changes: Iterable[Change]) -> None:
        """Forget partitions whose first replica cannot lead any more."""
        if not self._since:
            return
        members = Members.of(image)
        for change in changes:
            if isinstance(change, PartitionsChanged):
                for index, state in change.partitions.items():
                    if state is None or not _can_lead(state, members):
                        self._since.pop((change.topic_id, index), None)

    def examine(self, image: MetadataImage, now: float) -> frozenset[Place]:
        """Return the partitions whose first replica leads again now."""
        members = Members.of(image)
        known, self._since = self._since, {}
        for topic in image.topics.values():
            for index, state in enumerate(topic.partitions):
                if state.leader != state.replicas[0] and _can_lead(state, members):
                    self._since[topic.id, index] = known.get((topic.id, index), now)
        return frozenset(
            place for place, since in self._since.items() if now - since >= STABLE_SECONDS
        )

    def next_seconds(self, now: float) -> float | None:
        """Return the time until another partition has been in sync for long enough, if any."""
        earliest = min(self._since.values(), default=None)
        return None if earliest is None else max(0.0, earliest + STABLE_SECONDS - now)


def _can_lead(state: PartitionImage, members: Members) -> bool:
    return with_preferred_leader(state, members) is not None
