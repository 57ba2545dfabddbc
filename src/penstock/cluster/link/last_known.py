"""The state of a key in an image, and whether an image agrees with a compare. Pure.

`last_known` is for a key whose value cannot be read: the changes that keep its state of an earlier
image. `may_hold` is for a transaction that failed: an image on which all its compares hold is too
old to decide on again.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol
from uuid import UUID

from penstock.cluster import values
from penstock.cluster.access_draft import AclRemovalNoted, AclStored, ScramChanged
from penstock.cluster.changes import (
    BrokerRegistered,
    BrokerSettingsChanged,
    Change,
    ClusterNamed,
    ControllerChanged,
    CreationNoted,
    GroupSettingsChanged,
    LevelsChanged,
    NodeChanged,
    PartitionsChanged,
    ProducerIdsTaken,
    QuotasChanged,
    TopicPublished,
    TopicSettingsChanged,
)
from penstock.cluster.image import MetadataImage, PartitionImage, TopicImage
from penstock.cluster.keys import KeyKind, Keys, ParsedKey
from penstock.cluster.quota_entities import entity_of_text
from penstock.cluster.stores.port import Compare, CompareTarget


def last_known(image: MetadataImage, key: ParsedKey) -> Iterator[Change]:
    """Yield the changes that set the state that `image` has of this key; none if it has none.

    The publication of a topic is `published_again`: it needs the partitions.
    """
    match key.kind:
        case KeyKind.PARTITION:
            topic_id = values.topic_id_of(key.name)
            state = _partition(image, topic_id, key.number)
            if state is not None:
                yield PartitionsChanged(topic_id, {key.number: state})
        case KeyKind.TOPIC_SETTINGS if key.name in image.topics:
            yield TopicSettingsChanged(key.name, image.topics[key.name].settings)
        case KeyKind.BROKER if key.number in image.brokers:
            yield BrokerRegistered(image.brokers[key.number])
        case KeyKind.NODE:
            yield NodeChanged(key.number, image.nodes.get(key.number))
        case KeyKind.CONTROLLER:
            yield ControllerChanged(image.controller)
        case KeyKind.CREATING:
            topic_id = values.topic_id_of(key.name)
            yield CreationNoted(topic_id, image.creating.get(topic_id))
        case KeyKind.PRODUCER_IDS:
            yield ProducerIdsTaken(image.next_producer_id, image.producer_ids_revision)
        case KeyKind.CLUSTER_ID:
            yield ClusterNamed(image.cluster_id)
        case _:
            yield from _last_of_names(image, key)


def _last_of_names(image: MetadataImage, key: ParsedKey) -> Iterator[Change]:
    match key.kind:
        case KeyKind.FEATURES:
            yield LevelsChanged(image.features)
        case KeyKind.GROUP_SETTINGS:
            yield GroupSettingsChanged(key.name, image.groups.get(key.name))
        case KeyKind.BROKER_SETTINGS:
            yield BrokerSettingsChanged(key.name, image.broker_settings.get(key.name))
        case KeyKind.QUOTAS:
            entity = entity_of_text(key.name)
            yield QuotasChanged(entity, image.quotas.get(entity))
        case KeyKind.SCRAM:
            mechanism, user = _mechanism_and_user(key.name)
            yield ScramChanged(mechanism, user, image.scram.get((mechanism, user)))
        case KeyKind.ACL:
            acl_id = values.acl_id_of(key.name)
            if acl_id in image.acls:
                yield AclStored(acl_id, image.acls[acl_id])
        case KeyKind.ACL_REMOVAL:
            removal_id = values.acl_id_of(key.name)
            yield AclRemovalNoted(removal_id, image.acl_removals.get(removal_id))
        case _:
            pass


def published_again(topic: TopicImage) -> tuple[Change, ...]:
    """Return the changes that publish a topic of an earlier image."""
    states: dict[int, PartitionImage | None] = dict(enumerate(topic.partitions))
    return (
        PartitionsChanged(topic.id, states),
        TopicPublished(
            topic.name, topic.id, len(states), topic.revision, topic.is_adopted, topic.mirror
        ),
        TopicSettingsChanged(topic.name, topic.settings),
    )


def may_hold(keys: Keys, image: MetadataImage, compare: Compare) -> bool:
    """Return whether a compare holds on an image; True also for a key that images do not have."""
    if compare.target is CompareTarget.NEWEST:
        is_of_brokers = compare.key == keys.brokers()
        newest = max((one.epoch for one in image.brokers.values()), default=0)
        return not is_of_brokers or newest <= compare.revision
    known = _revision(image, keys.parse(compare.key), compare.target)
    return known is None or known == compare.revision


def _revision(image: MetadataImage, key: ParsedKey, target: CompareTarget) -> int | None:
    """Return the revision that writers of this key compare, 0 for an absent key.

    For keys that are bound to a session it is the one that created them, for others the last one;
    a registration has both.
    """
    match key.kind:
        case KeyKind.PARTITION:
            state = _partition(image, values.topic_id_of(key.name), key.number)
            return 0 if state is None else state.partition_epoch
        case KeyKind.BROKER:
            broker = image.brokers.get(key.number)
            if broker is None:
                return 0
            return broker.epoch if target is CompareTarget.CREATE else broker.revision
        case KeyKind.NODE:
            node = image.nodes.get(key.number)
            return 0 if node is None else node.revision
        case KeyKind.PRODUCER_IDS:
            return image.producer_ids_revision
        case KeyKind.FEATURES:
            return image.features.revision
        case _ if key.kind in _BY_NAME:
            found = _BY_NAME[key.kind](image, key.name)
            return 0 if found is None else found.revision
        case _:
            return None


class _Revised(Protocol):
    @property
    def revision(self) -> int: ...


_BY_NAME: Final[Mapping[KeyKind, Callable[[MetadataImage, str], _Revised | None]]] = {
    KeyKind.TOPIC: lambda image, name: image.topics.get(name),
    KeyKind.NAME: lambda image, name: image.topics.get(image.similar_names.get(name, "")),
    KeyKind.CONTROLLER: lambda image, _: image.controller,
    KeyKind.CREATING: lambda image, name: image.creating.get(values.topic_id_of(name)),
    KeyKind.GROUP_SETTINGS: lambda image, name: image.groups.get(name),
    KeyKind.BROKER_SETTINGS: lambda image, name: image.broker_settings.get(name),
    KeyKind.QUOTAS: lambda image, name: image.quotas.get(entity_of_text(name)),
    KeyKind.SCRAM: lambda image, name: image.scram.get(_mechanism_and_user(name)),
}


def _mechanism_and_user(name: str) -> tuple[str, str]:
    mechanism, _, user = name.partition("/")
    return mechanism, user


def _partition(image: MetadataImage, topic_id: UUID, number: int) -> PartitionImage | None:
    topic = image.topic_by_id(topic_id)
    if topic is not None and number < len(topic.partitions):
        return topic.partitions[number]
    return image.unpublished.get(topic_id, {}).get(number)
