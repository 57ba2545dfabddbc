"""`ImageTopics`: the topics of an image, as coordinators see them.

Coordinators see names, ids and partition counts. A change of a leader or of the in-sync replicas
changes none of them, so a view stays in use until a topic is created, grown or deleted.
"""

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from penstock.cluster.changes import Change, TopicPublished, TopicRemoved
from penstock.cluster.image import MetadataImage, TopicImage
from penstock.coordinator.metadata_view import TopicView


class ImageTopics:
    """`coordinator.metadata_view.TopicsView` over an image."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    @property
    def revision(self) -> int:
        """The revision of the image."""
        return self._image.revision

    def by_name(self, name: str) -> TopicView | None:
        """Return the topic of this name."""
        return _view(self._image.topic(name))

    def by_id(self, topic_id: UUID) -> TopicView | None:
        """Return the topic of this id."""
        return _view(self._image.topic_by_id(topic_id))

    def names(self) -> Iterable[str]:
        """Return the names of all topics, in no order."""
        return self._image.topics


def _view(topic: TopicImage | None) -> TopicView | None:
    return None if topic is None else TopicView(topic.id, topic.name, len(topic.partitions))


class TopicChanges(NamedTuple):
    """The changes of one image that concern coordinators."""

    names: frozenset[str]
    """Topics that were created, grown or deleted."""
    gone: tuple[str, ...]
    """Those of `names` that were deleted, or deleted and created anew."""


def topic_changes(
    before: MetadataImage, image: MetadataImage, changes: Iterable[Change]
) -> TopicChanges | None:
    """Return the created, grown and deleted topics; None if there are none."""
    names = frozenset(one.name for one in changes if isinstance(one, TopicPublished | TopicRemoved))
    if not names:
        return None
    gone = []
    for name in sorted(names):
        old, new = before.topic(name), image.topic(name)
        if old is not None and (new is None or new.id != old.id):
            gone.append(name)
    return TopicChanges(names, tuple(gone))
