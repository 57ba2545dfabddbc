"""`RunningMoves`: the partitions whose reassignment the controller can complete now. Pure.

The changes of images show when the last replica of a target has joined the in-sync replicas: the
controller then looks at that partition, and not at all partitions of the cluster.
"""

from collections.abc import Iterable, Iterator
from uuid import UUID

from penstock.cluster.changes import Change, PartitionsChanged
from penstock.cluster.elections import ChangedState, Members
from penstock.cluster.image import MetadataImage
from penstock.cluster.keys import Keys
from penstock.cluster.moves.reassignment import completed, is_moving, target_of


class RunningMoves:
    """Known from the changes that one controller has followed."""

    def __init__(self) -> None:
        self._due: dict[tuple[UUID, int], None] = {}

    def follow(self, changes: Iterable[Change]) -> bool:
        """Note the partitions that can be completed; return whether there are any."""
        for change in changes:
            if isinstance(change, PartitionsChanged):
                for index, state in change.partitions.items():
                    if state is None or not is_moving(state):
                        continue
                    if set(state.isr).issuperset(target_of(state)):
                        self._due[change.topic_id, index] = None
        return bool(self._due)

    def take(self, keys: Keys, image: MetadataImage) -> Iterator[ChangedState]:
        """Yield the completed states, and forget the partitions.

        One that cannot be completed has a leader or a replica whose broker has gone: the controller
        sees all partitions when it decides about that broker.
        """
        members = Members.of(image)
        due, self._due = self._due, {}
        for topic_id, index in due:
            topic = image.topic_by_id(topic_id)
            if topic is None or index >= len(topic.partitions):
                continue
            before = topic.partitions[index]
            after = completed(before, members)
            if after is not None:
                yield ChangedState(keys.partition(topic_id, index), before, after)
