"""Internal topics that were created with fewer brokers get more replicas. Pure.

`__consumer_offsets`, `__transaction_state` and `__share_group_state` have a replica on each broker,
up to three. In a cluster that was smaller when they were created, the controller moves them to more
brokers as soon as these run. With three replicas, two must have a record before it is acknowledged:
this setting is written when all partitions have three, because the topic would not be available
before.

A topic with its own `min.insync.replicas` is left alone: it has been grown, or an operator decides.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from penstock.cluster.controller import MIN_ISR, GuardedWrites, running_racks
from penstock.cluster.elections import Decide
from penstock.cluster.image import MetadataImage, PartitionImage, TopicImage
from penstock.cluster.keys import Keys
from penstock.cluster.moves.reassignment import begun, is_moving, target_of
from penstock.cluster.placement import placed
from penstock.cluster.stores.port import Compare
from penstock.cluster.topic_changes import settings_writes
from penstock.core.types import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC

REPLICAS_MAX: Final = 3
"""Replicas of internal topics: Kafka's offsets.topic.replication.factor. With three, two must have
a record before it is acknowledged: one may be lost."""
GROWING: Final = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC)


def growth_decision(image: MetadataImage, replicas_max: int = REPLICAS_MAX) -> Decide | None:
    """Return the decision that moves internal topics to more brokers; None if none must be."""
    targets: dict[str, tuple[tuple[int, ...], ...]] = {}
    racks = running_racks(image)
    factor = min(replicas_max, len(racks))
    for name in GROWING:
        topic = image.topic(name)
        if topic is None or MIN_ISR in topic.settings:
            continue
        if any(_grows(state, factor) for state in topic.partitions):
            targets[name] = placed(racks, topic.id, range(len(topic.partitions)), factor)
    if not targets:
        return None

    def decide(topic: TopicImage, index: int, state: PartitionImage) -> PartitionImage | None:
        if topic.name not in targets or not _grows(state, factor):
            return None
        return begun(state, targets[topic.name][index])

    return decide


def _grows(state: PartitionImage, factor: int) -> bool:
    return not is_moving(state) and len(state.replicas) < factor


def min_isr_writes(
    keys: Keys, image: MetadataImage, guards: tuple[Compare, ...]
) -> Iterator[GuardedWrites]:
    """Yield the transactions for internal topics whose partitions all have three replicas now."""
    for name in GROWING:
        topic = image.topic(name)
        if topic is None or MIN_ISR in topic.settings or not topic.partitions:
            continue
        if all(len(target_of(one)) >= REPLICAS_MAX <= len(one.isr) for one in topic.partitions):
            settings = {**topic.settings, MIN_ISR: str(REPLICAS_MAX - 1)}
            yield settings_writes(keys, topic, replace(topic, settings=settings), guards)
