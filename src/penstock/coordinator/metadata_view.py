"""`TopicsView`: the cluster's topics as coordinators see them.

A narrow port over the metadata image, so that shards can be given a plain value in tests. It is NOT
a copy: each lookup of a topic reads the image behind the view.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol
from uuid import UUID


class TopicView(NamedTuple):
    """One topic."""

    topic_id: UUID
    name: str
    partition_count: int


class TopicsView(Protocol):
    """All topics, as of one revision."""

    @property
    def revision(self) -> int:
        """Grows with every change of the metadata."""
        ...

    def by_name(self, name: str) -> TopicView | None:
        """The topic of this name."""
        ...

    def by_id(self, topic_id: UUID) -> TopicView | None:
        """The topic of this id."""
        ...

    def names(self) -> Iterable[str]:
        """The names of all topics, in no order."""
        ...
