"""Decisions about existing topics: more partitions, other settings. Pure.

The input is a topic and a request, the output guarded writes or a domain error, as in `controller`,
which decides on creations and deletions. Guarantees of the writes:

- partitions are only added: numbers and replicas of existing ones stay unchanged;
- new partitions are in the store before, or together with, the topic that counts them;
- settings are written whole, and only when all of them together are valid.

Each change publishes the topic again, including settings, and compares with its last publication:
of two changes decided on the same image, one is decided again. Errors have Kafka's wording and
Kafka's order: for a request with two faults a client gets the same error.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.cluster import values
from penstock.cluster.configs.setting_changes import SettingsChange, edited
from penstock.cluster.configs.topic_configs import TOPIC_CONFIGS, parse_topic_settings
from penstock.cluster.controller import (
    MIN_ISR,
    PARTITIONS_PER_TRANSACTION,
    GuardedWrites,
    absent_brokers,
    known_brokers,
    new_partition,
    running_racks,
)
from penstock.cluster.image import MetadataImage, TopicImage
from penstock.cluster.keys import Keys
from penstock.cluster.placement import placed
from penstock.cluster.stores.port import Compare, Delete, Operation, Put
from penstock.cluster.topic_rules import (
    TopicRules,
    check_factor,
    check_replicas,
    check_topic_name,
)
from penstock.cluster.topic_rules import partition_count as checked_count
from penstock.core.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    PolicyViolationError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from penstock.core.types import INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """The requested number of partitions of a topic, and the replicas of the new ones."""

    name: str
    count: int
    """The total, existing partitions included."""
    assignments: tuple[tuple[int, ...], ...] | None = None
    """The replicas of each new partition; if None, the cluster chooses."""


def decide_growth(image: MetadataImage, wanted: MorePartitions, rules: TopicRules) -> TopicImage:
    """Return the topic with its new partitions; raise a domain error to reject the change."""
    topic = image.topic(wanted.name)
    if topic is None:
        raise UnknownTopicOrPartitionError("This server does not host this topic-partition.")
    existing = len(topic.partitions)
    if wanted.count == existing:
        raise InvalidPartitionsError(f"Topic already has {existing} partition(s).")
    if wanted.count < existing:
        raise InvalidPartitionsError(
            f"The topic {wanted.name} currently has {existing} partition(s); {wanted.count} would "
            "not be an increase."
        )
    added = wanted.count - existing
    if wanted.assignments is not None and len(wanted.assignments) != added:
        raise InvalidReplicaAssignmentError(
            f"Attempted to add {added} additional partition(s), but only "
            f"{len(wanted.assignments)} assignment(s) were specified."
        )
    if wanted.name in INTERNAL_TOPICS:
        # Kafka allows this, and then searches each group and each transaction in another partition.
        raise PolicyViolationError(
            f"{wanted.name} cannot get more partitions: its keys would move to other partitions."
        )
    checked_count(wanted.count, rules)
    room = rules.partitions_per_broker_max * max(1, len(image.brokers)) - image.partition_count
    if added > room:
        raise PolicyViolationError(
            f"{added} more partitions are too many for this cluster: "
            f"there is room for {max(0, room)}."
        )
    min_isr = int(topic.settings.get(MIN_ISR, topic.partitions[0].min_isr))
    partitions = tuple(
        new_partition(image, replicas, min_isr) for replicas in _new_replicas(image, topic, wanted)
    )
    return replace(topic, partitions=topic.partitions + partitions)


def _new_replicas(
    image: MetadataImage, topic: TopicImage, wanted: MorePartitions
) -> Sequence[tuple[int, ...]]:
    first = topic.partitions[0]
    # Without the replicas that a reassignment removes.
    factor = len(first.replicas) - len(first.removing)
    if wanted.assignments is not None:
        for replicas in wanted.assignments:
            check_replicas(replicas, factor, known_brokers(image))
        return wanted.assignments
    racks, absent = running_racks(image), absent_brokers(image)
    check_factor(factor, len(racks), len(absent))
    # As for a new topic: one leader after the other, continuing after the last partition.
    existing = [state.replicas for state in topic.partitions]
    return placed(racks, topic.id, range(len(existing), wanted.count), factor, existing, absent)


def growth_writes(
    keys: Keys,
    before: TopicImage,
    grown: TopicImage,
    guards: tuple[Compare, ...],
    *,
    is_held: bool = False,
) -> Iterator[GuardedWrites]:
    """Yield the transactions that add partitions; the last one publishes them.

    `is_held`: as for `controller.creation_writes`.
    """
    compares = (*guards, Compare.unchanged(keys.topic(before.name), before.revision))
    first = len(before.partitions)
    while len(grown.partitions) - first > PARTITIONS_PER_TRANSACTION:
        yield GuardedWrites(compares, tuple(_states(keys, grown, first)))
        first += PARTITIONS_PER_TRANSACTION
    release = (Delete(keys.creating(grown.id)),) if is_held else ()
    last = (*_states(keys, grown, first), _publication(keys, grown), *release)
    yield GuardedWrites(compares, last)


def _states(keys: Keys, topic: TopicImage, start: int) -> list[Operation]:
    """Return the partitions of one transaction, not all: the event loop encodes them."""
    few = topic.partitions[start : start + PARTITIONS_PER_TRANSACTION]
    return [
        Put(keys.partition(topic.id, index), values.write_partition(state))
        for index, state in enumerate(few, start)
    ]


def decide_settings(
    image: MetadataImage, change: SettingsChange, defaults: Mapping[str, str]
) -> TopicImage:
    """Return the topic with its new settings; raise a domain error to reject the change."""
    topic = image.topic(change.name)
    current = topic.settings if topic is not None else {}
    settings = edited(current, change, TOPIC_CONFIGS, defaults)
    if not change.name:
        raise InvalidRequestError("Default topic resources are not allowed.")
    # Kafka checks the settings before it checks whether the topic exists.
    check_topic_name(change.name)
    parse_topic_settings(settings, defaults)
    if topic is None:
        raise UnknownTopicOrPartitionError(f"The topic '{change.name}' does not exist.")
    if change.topic_id not in {None, topic.id}:
        raise UnknownTopicIdError(
            f"The topic '{change.name}' was deleted and created again in the meantime."
        )
    return replace(topic, settings=settings)


def settings_writes(
    keys: Keys, before: TopicImage, changed: TopicImage, guards: tuple[Compare, ...]
) -> GuardedWrites:
    """Return the transaction that stores a topic's new settings."""
    key = keys.topic_settings(changed.name)
    write = Put(key, values.write_settings(changed.settings)) if changed.settings else Delete(key)
    compare = Compare.unchanged(keys.topic(before.name), before.revision)
    return GuardedWrites((*guards, compare), (write, _publication(keys, changed)))


def _publication(keys: Keys, topic: TopicImage) -> Put:
    value = values.TopicValue(topic.id, len(topic.partitions), topic.is_adopted, topic.mirror)
    return Put(keys.topic(topic.name), values.write_topic(value))
