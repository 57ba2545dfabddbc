"""`interpret`: the events of one revision of the store as changes of the image. Pure.

The changes are in the order in which they must be applied. Topics are removed before partitions are
changed. Partitions precede the topic that publishes them. Settings are last, because they belong to
a published topic. Deleted access rules follow new ones: a load has the keys of both.

It applies nothing (`changes.apply`).
"""

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from penstock.cluster import values
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
    CreationImage,
    FeaturesImage,
    GroupImage,
    PartitionImage,
    QuotaImage,
)
from penstock.cluster.keys import KeyKind, Keys, ParsedKey
from penstock.cluster.quota_entities import entity_of_text
from penstock.cluster.stores.port import Event, KeyValue
from penstock.core.errors import StoreError


def interpret(
    keys: Keys, events: Iterable[Event], unreadable: dict[str, str] | None = None
) -> tuple[Change, ...]:
    """Return the changes of one revision's events, in the order in which they apply.

    A value that cannot be read raises an error. With `unreadable` it is left out, and the problem
    is noted there, by key.
    """
    collected = _Collected()
    for event in events:
        try:
            collected.take(keys.parse(event.key), event.value)
        except StoreError as error:
            problem = f"{event.key}: {error}"
            if unreadable is None:
                raise StoreError(problem) from error
            unreadable[event.key] = problem
    return collected.ordered()


def in_order(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Return changes of several sources in the order in which they apply."""
    return tuple(sorted(changes, key=lambda change: _ORDER.get(type(change), _OTHERS)))


_OTHERS: Final = 4
_ORDER: Final[Mapping[type[Change], int]] = {
    TopicRemoved: 0,
    PartitionsChanged: 1,
    TopicPublished: 2,
    TopicSettingsChanged: 3,
    AclsRemoved: _OTHERS + 1,
}


class _Collected:
    """The changes of the events of one revision."""

    def __init__(self) -> None:
        self._partitions: dict[UUID, dict[int, PartitionImage | None]] = {}
        self._changes: list[Change] = []

    def take(self, key: ParsedKey, pair: KeyValue | None) -> None:
        match key.kind:
            case KeyKind.PARTITION:
                state = values.read_partition(pair.value, pair.mod_revision) if pair else None
                topic_id = values.topic_id_of(key.name)
                self._partitions.setdefault(topic_id, {})[key.number] = state
            case KeyKind.TOPIC:
                self._changes.append(_topic_change(key.name, pair))
            case KeyKind.TOPIC_SETTINGS:
                overrides = values.read_settings(pair.value) if pair else NO_SETTINGS
                self._changes.append(TopicSettingsChanged(key.name, overrides))
            case KeyKind.GROUP_SETTINGS:
                self._changes.append(GroupSettingsChanged(key.name, _group(pair)))
            case KeyKind.BROKER_SETTINGS:
                self._changes.append(BrokerSettingsChanged(key.name, _of_broker(pair)))
            case KeyKind.QUOTAS:
                self._changes.append(QuotasChanged(entity_of_text(key.name), _quotas(pair)))
            case KeyKind.ACL | KeyKind.ACL_REMOVAL | KeyKind.SCRAM:
                self._changes.extend(_access_changes(key.kind, key.name, pair))
            case _:
                self._changes.extend(_other_change(key, pair))

    def ordered(self) -> tuple[Change, ...]:
        changed = (PartitionsChanged(*one) for one in self._partitions.items())
        return in_order((*changed, *self._changes))


def _topic_change(name: str, pair: KeyValue | None) -> Change:
    if pair is None:
        return TopicRemoved(name)
    topic = values.read_topic(pair.value)
    return TopicPublished(
        name, topic.id, topic.partition_count, pair.mod_revision, topic.is_adopted, topic.mirror
    )


def _group(pair: KeyValue | None) -> GroupImage | None:
    if pair is None:
        return None
    return GroupImage(values.read_settings(pair.value), pair.mod_revision)


def _of_broker(pair: KeyValue | None) -> BrokerSettingsImage | None:
    if pair is None:
        return None
    return BrokerSettingsImage(values.read_settings(pair.value), pair.mod_revision)


def _quotas(pair: KeyValue | None) -> QuotaImage | None:
    if pair is None:
        return None
    return QuotaImage(values.read_quotas(pair.value), pair.mod_revision)


def _creation(pair: KeyValue | None) -> CreationImage | None:
    return None if pair is None else values.read_creation(pair.value, pair.create_revision)


def _features(pair: KeyValue | None) -> FeaturesImage:
    if pair is None:
        return FeaturesImage()
    return FeaturesImage(values.read_features(pair.value), pair.mod_revision)


def _broker_change(broker_id: int, pair: KeyValue | None) -> Change:
    if pair is None:
        return BrokerRemoved(broker_id)
    return BrokerRegistered(
        values.read_broker(pair.value, broker_id, pair.create_revision, pair.mod_revision)
    )


def _access_changes(kind: KeyKind, name: str, pair: KeyValue | None) -> Iterable[Change]:
    if kind is KeyKind.SCRAM:
        mechanism, _, user = name.partition("/")
        read = None if pair is None else values.read_scram(pair.value, pair.mod_revision)
        yield ScramChanged(mechanism, user, read)
        return
    found = values.acl_id_of(name)
    if kind is KeyKind.ACL:
        yield (
            AclsRemoved((found,)) if pair is None else AclStored(found, values.read_acl(pair.value))
        )
    elif pair is None:
        yield AclRemovalNoted(found, None)
    else:
        ids = values.read_acl_removal(pair.value)
        yield AclRemovalNoted(found, ids)
        yield AclsRemoved(ids)


def _other_change(key: ParsedKey, pair: KeyValue | None) -> Iterable[Change]:
    match key.kind:
        case KeyKind.BROKER:
            yield _broker_change(key.number, pair)
        case KeyKind.NODE:
            node = None if pair is None else values.read_node(pair.value, pair.mod_revision)
            yield NodeChanged(key.number, node)
        case KeyKind.CREATING:
            yield CreationNoted(values.topic_id_of(key.name), _creation(pair))
        case KeyKind.CONTROLLER:
            yield ControllerChanged(
                None if pair is None else values.read_controller(pair.value, pair.create_revision)
            )
        case KeyKind.FEATURES:
            yield LevelsChanged(_features(pair))
        case KeyKind.PRODUCER_IDS if pair is not None:
            yield ProducerIdsTaken(values.read_next_producer_id(pair.value), pair.mod_revision)
        case KeyKind.CLUSTER_ID if pair is not None:
            yield ClusterNamed(values.read_cluster_id(pair.value))
        case KeyKind.FORMAT if pair is not None:
            values.check_format(pair.value)
        case _:
            pass
