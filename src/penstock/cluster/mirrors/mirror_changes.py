"""Decisions about mirrors: topics that a pipe writes instead of clients. Pure.

The input is an image, the output guarded writes or a domain error, as in `controller`. Guarantees:

- a mirror has the topic id of its parent, so the two are one topic for clients;
- its leader epochs never fall, and are raised before a batch of a newer epoch is stored;
- a promotion raises each epoch by one, and the mark ends with the last write: after a crash in
  between the topic is still a mirror, and the promotion is repeated;
- before the first mirror is created, producer ids move to a range that the parent does not use.
  The log of a mirror has producer ids of the parent: after a promotion, a producer with the same id
  would be taken for the parent's, and its batches for repeated ones.

Only for a broker that is alone: nothing else changes its partitions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from penstock.cluster import values
from penstock.cluster.controller import (
    PARTITIONS_PER_TRANSACTION,
    GuardedWrites,
    NewTopic,
    TopicCreation,
    creation_decisions,
    creation_writes,
)
from penstock.cluster.image import MetadataImage, Mirror, PartitionImage, TopicImage
from penstock.cluster.keys import Keys
from penstock.cluster.stores.port import Compare, Operation, Put
from penstock.cluster.topic_rules import TopicRules
from penstock.core.errors import (
    PenstockError,
    PolicyViolationError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)

PRODUCER_ID_RANGE_BITS: Final = 40
"""Producer ids of a broker with mirrors begin at a random multiple of 2 to this power."""
PRODUCER_ID_RANGE_CHOICES: Final = 1 << 20


def decide_mirror(
    image: MetadataImage,
    wanted: NewTopic,
    topic_id: UUID,
    epochs: Sequence[int],
    pipe: str,
    rules: TopicRules,
    defaults: Mapping[str, str],
) -> TopicCreation:
    """Return the mirror to create; raise a domain error if that is not possible."""
    (decision,) = creation_decisions(image, [wanted], [topic_id], rules, defaults)
    if isinstance(decision, PenstockError):
        raise decision
    if isinstance(decision, TopicImage):
        raise TopicExistsError(
            f"Topic '{decision.name}' has the id {topic_id} of the parent's topic already."
        )
    states = tuple(
        state._replace(leader_epoch=max(state.leader_epoch, epoch))
        for state, epoch in zip(decision.topic.partitions, epochs, strict=True)
    )
    return TopicCreation(replace(decision.topic, partitions=states, mirror=Mirror(pipe)))


def mirror_writes(
    keys: Keys,
    image: MetadataImage,
    creation: TopicCreation,
    guards: tuple[Compare, ...],
    choice: int,
) -> Iterator[GuardedWrites]:
    """Yield the transactions that create a mirror; `choice` selects the range of producer ids."""
    assert 0 <= choice < PRODUCER_ID_RANGE_CHOICES
    if image.next_producer_id < 1 << PRODUCER_ID_RANGE_BITS:
        key = keys.producer_ids()
        start = (1 + choice) << PRODUCER_ID_RANGE_BITS
        compare = Compare.unchanged(key, image.producer_ids_revision)
        write = Put(key, values.write_next_producer_id(start))
        yield GuardedWrites((*guards, compare), (write,))
    yield from creation_writes(keys, (creation,), guards)


def raised(topic: TopicImage, epochs: Sequence[int]) -> dict[int, PartitionImage]:
    """Return the partitions whose leader epoch is below the wanted one, with the wanted one."""
    return {
        index: state._replace(leader_epoch=epoch)
        for index, (state, epoch) in enumerate(zip(topic.partitions, epochs, strict=False))
        if epoch > state.leader_epoch
    }


def decide_promotion(image: MetadataImage, name: str) -> TopicImage:
    """Return the topic that clients write again; raise a domain error if it is not a mirror."""
    topic = _existing(image, name)
    if topic.mirror is None:
        raise PolicyViolationError(f"Topic '{name}' is not a mirror: clients write it already.")
    states = tuple(
        state._replace(leader_epoch=state.leader_epoch + 1) for state in topic.partitions
    )
    return replace(topic, partitions=states, mirror=None)


def decide_restoration(image: MetadataImage, name: str, pipe: str) -> TopicImage:
    """Return the topic that the pipe writes again; raise a domain error if it is a mirror."""
    topic = _existing(image, name)
    if topic.mirror is not None:
        raise PolicyViolationError(
            f"Topic '{name}' is a mirror already, of the pipe '{topic.mirror.pipe}'."
        )
    return replace(topic, mirror=Mirror(pipe, is_restoring=True))


def change_writes(
    keys: Keys,
    before: TopicImage,
    states: Mapping[int, PartitionImage],
    guards: tuple[Compare, ...],
    published: TopicImage | None = None,
) -> Iterator[GuardedWrites]:
    """Yield the transactions that write these partitions, then the topic if it has changed."""
    compares = (*guards, Compare.unchanged(keys.topic(before.name), before.revision))
    operations: list[Operation] = []
    for index, state in states.items():
        if len(operations) == PARTITIONS_PER_TRANSACTION:
            yield GuardedWrites(compares, tuple(operations))
            operations = []
        operations.append(Put(keys.partition(before.id, index), values.write_partition(state)))
    if published is not None:
        value = values.TopicValue(
            published.id, len(published.partitions), published.is_adopted, published.mirror
        )
        operations.append(Put(keys.topic(published.name), values.write_topic(value)))
    if operations:
        yield GuardedWrites(compares, tuple(operations))


def _existing(image: MetadataImage, name: str) -> TopicImage:
    topic = image.topic(name)
    if topic is None:
        raise UnknownTopicOrPartitionError(f"The topic '{name}' does not exist.")
    return topic
