"""Partitions that no topic publishes, left by a crash or a failure during a large creation. Pure.

Only the controller deletes them, and only while no broker holds the key `creating/<topic id>`. A
controller's image may be old: meanwhile the creator may have begun again, published the topic and
released the key. So each deletion also compares a revision that a second creation changes: the
publication of an existing topic, or the first partition of a topic that had none.
"""

from collections.abc import Iterator
from uuid import UUID

from penstock.cluster.controller import PARTITIONS_PER_TRANSACTION, GuardedWrites
from penstock.cluster.image import MetadataImage
from penstock.cluster.keys import Keys
from penstock.cluster.stores.port import Compare, Delete, DeletePrefix


def has_leftovers(image: MetadataImage) -> bool:
    """Return whether there are unpublished partitions that no broker is writing."""
    return any(topic_id not in image.creating for topic_id in image.unpublished)


def sweep_writes(
    keys: Keys, image: MetadataImage, guards: tuple[Compare, ...]
) -> Iterator[GuardedWrites]:
    """Yield the transactions that delete the leftovers, each of one topic."""
    for topic_id in image.unpublished:
        if topic_id in image.creating:
            continue
        unheld = (*guards, Compare.absent(keys.creating(topic_id)))
        name = image.topic_names.get(topic_id)
        if name is None:
            yield _whole(keys, image, topic_id, unheld)
        else:
            published = Compare.unchanged(keys.topic(name), image.topics[name].revision)
            yield from _partitions(keys, image, topic_id, (*unheld, published))


def _whole(
    keys: Keys, image: MetadataImage, topic_id: UUID, guards: tuple[Compare, ...]
) -> GuardedWrites:
    # A second creation writes every partition again, before it publishes them.
    first, state = min(image.unpublished[topic_id].items())
    unchanged = Compare.unchanged(keys.partition(topic_id, first), state.partition_epoch)
    return GuardedWrites((*guards, unchanged), (DeletePrefix(keys.partitions(topic_id)),))


def _partitions(
    keys: Keys, image: MetadataImage, topic_id: UUID, guards: tuple[Compare, ...]
) -> Iterator[GuardedWrites]:
    numbers = sorted(image.unpublished[topic_id])
    for start in range(0, len(numbers), PARTITIONS_PER_TRANSACTION):
        few = numbers[start : start + PARTITIONS_PER_TRANSACTION]
        yield GuardedWrites(guards, tuple(Delete(keys.partition(topic_id, one)) for one in few))
