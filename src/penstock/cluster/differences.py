"""The changes between two images (pure).

It is for a store that cannot return every change since a revision: the image is loaded again and
compared. Applying the result to the first image returns the second one; shared parts cost nothing.
"""

from collections.abc import Iterable, Mapping

from penstock.cluster.access_draft import (
    AclRemovalNoted,
    AclsRemoved,
    AclStored,
    ScramChanged,
)
from penstock.cluster.changes import (
    BrokerRegistered,
    BrokerRemoved,
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
    TopicRemoved,
    TopicSettingsChanged,
)
from penstock.cluster.image import (
    NO_SETTINGS,
    BrokerSettingsImage,
    GroupImage,
    MetadataImage,
    PartitionImage,
    QuotaImage,
    ScramImage,
    TopicImage,
)
from penstock.cluster.quota_entities import QuotaEntity


def difference(before: MetadataImage, after: MetadataImage) -> tuple[Change, ...]:
    """Return the changes from one image to a later one.

    It is for readers that missed the changes in between. The time grows with the size of the image.
    """
    changes: list[Change] = []
    for name, old in before.topics.items():
        if name not in after.topics or after.topics[name].id != old.id:
            changes.append(TopicRemoved(name))
    for name, topic in after.topics.items():
        known = before.topics.get(name)
        if known is not topic:
            changes.extend(_topic_difference(known, topic))
    changes.extend(_group_differences(before.groups, after.groups))
    changes.extend(_broker_setting_differences(before.broker_settings, after.broker_settings))
    changes.extend(_quota_differences(before.quotas, after.quotas))
    changes.extend(_access_differences(before, after))
    changes.extend(_scram_differences(before.scram, after.scram))
    changes.extend(_member_differences(before, after))
    if before.producer_ids_revision != after.producer_ids_revision:
        changes.append(ProducerIdsTaken(after.next_producer_id, after.producer_ids_revision))
    if before.cluster_id != after.cluster_id:
        changes.append(ClusterNamed(after.cluster_id))
    return tuple(changes)


def _member_differences(before: MetadataImage, after: MetadataImage) -> Iterable[Change]:
    """Yield the changes of brokers and of their work."""
    yield from map(BrokerRemoved, before.brokers.keys() - after.brokers.keys())
    for broker_id, broker in after.brokers.items():
        if before.brokers.get(broker_id) != broker:
            yield BrokerRegistered(broker)
    for broker_id in before.nodes.keys() | after.nodes.keys():
        if before.nodes.get(broker_id) != after.nodes.get(broker_id):
            yield NodeChanged(broker_id, after.nodes.get(broker_id))
    for topic_id in before.creating.keys() | after.creating.keys():
        if before.creating.get(topic_id) != after.creating.get(topic_id):
            yield CreationNoted(topic_id, after.creating.get(topic_id))
    if before.controller != after.controller:
        yield ControllerChanged(after.controller)
    if before.features != after.features:
        yield LevelsChanged(after.features)


def _topic_difference(before: TopicImage | None, after: TopicImage) -> Iterable[Change]:
    if before is None or before.id != after.id:
        before = TopicImage(after.name, after.id, (), NO_SETTINGS, 0)
    states: dict[int, PartitionImage | None] = {
        index: state
        for index, state in enumerate(after.partitions)
        if index >= len(before.partitions) or before.partitions[index] != state
    }
    if states:
        yield PartitionsChanged(after.id, states)
    if before.revision != after.revision:
        yield TopicPublished(
            after.name,
            after.id,
            len(after.partitions),
            after.revision,
            after.is_adopted,
            after.mirror,
        )
    if before.settings != after.settings:
        yield TopicSettingsChanged(after.name, after.settings)


def _group_differences(
    before: Mapping[str, GroupImage], after: Mapping[str, GroupImage]
) -> Iterable[Change]:
    for name, group in after.items():
        if before.get(name) != group:
            yield GroupSettingsChanged(name, group)
    for name in before:
        if name not in after:
            yield GroupSettingsChanged(name, None)


def _broker_setting_differences(
    before: Mapping[str, BrokerSettingsImage], after: Mapping[str, BrokerSettingsImage]
) -> Iterable[Change]:
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield BrokerSettingsChanged(name, after.get(name))


def _quota_differences(
    before: Mapping[QuotaEntity, QuotaImage], after: Mapping[QuotaEntity, QuotaImage]
) -> Iterable[Change]:
    for entity, quotas in after.items():
        if before.get(entity) != quotas:
            yield QuotasChanged(entity, quotas)
    for entity in before:
        if entity not in after:
            yield QuotasChanged(entity, None)


def _access_differences(before: MetadataImage, after: MetadataImage) -> Iterable[Change]:
    for removal_id in before.acl_removals.keys() | after.acl_removals.keys():
        if before.acl_removals.get(removal_id) != after.acl_removals.get(removal_id):
            yield AclRemovalNoted(removal_id, after.acl_removals.get(removal_id))
    for acl_id, acl in after.acls.items():
        if acl_id not in before.acls:
            yield AclStored(acl_id, acl)
    gone = tuple(acl_id for acl_id in before.acls if acl_id not in after.acls)
    if gone:
        yield AclsRemoved(gone)


def _scram_differences(
    before: Mapping[tuple[str, str], ScramImage], after: Mapping[tuple[str, str], ScramImage]
) -> Iterable[Change]:
    for (mechanism, user), credential in after.items():
        if before.get((mechanism, user)) != credential:
            yield ScramChanged(mechanism, user, credential)
    for mechanism, user in before:
        if (mechanism, user) not in after:
            yield ScramChanged(mechanism, user, None)
