"""The kinds of change, and `apply(image, changes, revision) -> image`: the only way images change.

`interpret` turns the events of one revision into changes in the order in which they must be
applied. Topics are removed before partitions are changed. Partitions precede the topic that
publishes them. Settings are last, because they belong to a published topic. Deleted access rules
follow new ones: a load has the keys of both. A load works in the same way: every key of the store
is one batch, applied to the empty image. So an image that followed each change equals the image
loaded at the same revision, and a property test checks that.

The cost of `apply` grows with the changes, not with the image: changes collect in a draft, and each
changed map of the image is copied once at the end.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from uuid import UUID

from penstock.cluster import values
from penstock.cluster.access_draft import (
    AccessChange,
    AccessDraft,
    AclRemovalNoted,
    AclsRemoved,
    AclStored,
    ScramChanged,
    changed_map,
)
from penstock.cluster.image import (
    NO_SETTINGS,
    BrokerImage,
    BrokerSettingsImage,
    GroupImage,
    MetadataImage,
    PartitionImage,
    QuotaImage,
    TopicImage,
    similar_name,
)
from penstock.cluster.keys import KeyKind, Keys
from penstock.cluster.quota_entities import QuotaEntity, entity_of_text
from penstock.cluster.stores.port import Event, KeyValue
from penstock.core.errors import StoreError


@dataclass(frozen=True, slots=True)
class TopicRemoved:
    """A deleted topic; the previous image has it."""

    name: str


@dataclass(frozen=True, slots=True)
class PartitionsChanged:
    """Partitions of one topic have a new state, None for deleted ones."""

    topic_id: UUID
    partitions: Mapping[int, PartitionImage | None]


@dataclass(frozen=True, slots=True)
class TopicPublished:
    """A new topic, or a topic with more partitions; the next image has it."""

    name: str
    id: UUID
    partition_count: int
    revision: int
    is_adopted: bool = False


@dataclass(frozen=True, slots=True)
class TopicSettingsChanged:
    """A topic overrides exactly these settings."""

    name: str
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GroupSettingsChanged:
    """A group overrides exactly these settings; None if it overrides none."""

    name: str
    group: GroupImage | None


@dataclass(frozen=True, slots=True)
class BrokerSettingsChanged:
    """The changed settings of a broker, or of all brokers; None if there are none."""

    name: str
    changed: BrokerSettingsImage | None


@dataclass(frozen=True, slots=True)
class QuotasChanged:
    """An entity has exactly these quotas; None if it has none."""

    entity: QuotaEntity
    quotas: QuotaImage | None


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """A registered broker; a new epoch means a restart."""

    broker: BrokerImage


@dataclass(frozen=True, slots=True)
class BrokerRemoved:
    """A broker whose session has ended."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class ProducerIdsTaken:
    """Producer ids below `next_producer_id` are in use."""

    next_producer_id: int
    revision: int


@dataclass(frozen=True, slots=True)
class ClusterNamed:
    """The cluster's new id."""

    cluster_id: str


Change = (
    TopicRemoved
    | PartitionsChanged
    | TopicPublished
    | TopicSettingsChanged
    | GroupSettingsChanged
    | BrokerSettingsChanged
    | QuotasChanged
    | BrokerRegistered
    | BrokerRemoved
    | ProducerIdsTaken
    | ClusterNamed
    | AccessChange
)


def interpret(keys: Keys, events: Iterable[Event]) -> tuple[Change, ...]:
    """Return the changes of one revision's events, in the order in which they apply."""
    removed: list[Change] = []
    partitions: dict[str, dict[int, PartitionImage | None]] = {}
    published: list[Change] = []
    settings: list[Change] = []
    others: list[Change] = []
    access: list[Change] = []
    for event in events:
        key, pair = keys.parse(event.key), event.value
        match key.kind:
            case KeyKind.PARTITION:
                states = partitions.setdefault(key.name, {})
                states[key.number] = (
                    values.read_partition(pair.value, pair.mod_revision) if pair else None
                )
            case KeyKind.TOPIC:
                (published if pair else removed).append(_topic_change(key.name, pair))
            case KeyKind.TOPIC_SETTINGS:
                overrides = values.read_settings(pair.value) if pair else NO_SETTINGS
                settings.append(TopicSettingsChanged(key.name, overrides))
            case KeyKind.GROUP_SETTINGS:
                others.append(GroupSettingsChanged(key.name, _group(pair)))
            case KeyKind.BROKER_SETTINGS:
                others.append(BrokerSettingsChanged(key.name, _of_broker(pair)))
            case KeyKind.QUOTAS:
                others.append(QuotasChanged(entity_of_text(key.name), _quotas(pair)))
            case KeyKind.ACL | KeyKind.ACL_REMOVAL | KeyKind.SCRAM:
                access.extend(_access_changes(key.kind, key.name, pair))
            case _:
                others.extend(_other_change(key.kind, key.number, pair))
    changed: list[Change] = [
        PartitionsChanged(values.topic_id_of(topic_id), states)
        for topic_id, states in partitions.items()
    ]
    return (*removed, *changed, *published, *settings, *others, *_removals_last(access))


def _topic_change(name: str, pair: KeyValue | None) -> Change:
    if pair is None:
        return TopicRemoved(name)
    topic = values.read_topic(pair.value)
    return TopicPublished(
        name, topic.id, topic.partition_count, pair.mod_revision, topic.is_adopted
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


def _removals_last(changes: list[Change]) -> Iterable[Change]:
    return sorted(changes, key=lambda change: isinstance(change, AclsRemoved))


def _other_change(kind: KeyKind, number: int, pair: KeyValue | None) -> Iterable[Change]:
    match kind:
        case KeyKind.BROKER:
            if pair is None:
                yield BrokerRemoved(number)
            else:
                yield BrokerRegistered(values.read_broker(pair.value, number, pair.create_revision))
        case KeyKind.PRODUCER_IDS if pair is not None:
            yield ProducerIdsTaken(values.read_next_producer_id(pair.value), pair.mod_revision)
        case KeyKind.CLUSTER_ID if pair is not None:
            yield ClusterNamed(values.read_cluster_id(pair.value))
        case KeyKind.FORMAT if pair is not None:
            values.check_format(pair.value)
        case _:
            pass


def apply(image: MetadataImage, changes: Iterable[Change], revision: int) -> MetadataImage:
    """Return the image after `changes`, at `revision`."""
    assert revision >= image.revision, "an image never goes back"
    draft = _Draft(image)
    for change in changes:
        draft.take(change)
    return draft.finish(revision)


class _Draft:
    """A draft of an image: its differences from the image it began with."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._topics: dict[str, TopicImage | None] = {}
        self._names: dict[UUID, str | None] = {}
        self._similar: dict[str, str | None] = {}
        self._unpublished: dict[UUID, Mapping[int, PartitionImage]] = dict(image.unpublished)
        self._brokers = dict(image.brokers)
        self._groups: dict[str, GroupImage | None] = {}
        self._broker_settings: dict[str, BrokerSettingsImage | None] = {**image.broker_settings}
        self._quotas: dict[QuotaEntity, QuotaImage | None] = {}
        self._access = AccessDraft(image)
        self._partition_count = image.partition_count
        self._cluster_id = image.cluster_id
        self._producer_ids = (image.next_producer_id, image.producer_ids_revision)

    def take(self, change: Change) -> None:
        match change:
            case TopicRemoved(name):
                self._remove(name)
            case PartitionsChanged(topic_id, partitions):
                self._change_partitions(topic_id, partitions)
            case TopicPublished():
                self._publish(change)
            case TopicSettingsChanged(name, settings):
                self._set_settings(name, settings)
            case GroupSettingsChanged(name, group):
                self._groups[name] = group
            case BrokerSettingsChanged(name, changed):
                self._broker_settings[name] = changed
            case QuotasChanged(entity, quotas):
                self._quotas[entity] = quotas
            case BrokerRegistered() | BrokerRemoved():
                self._change_broker(change)
            case ProducerIdsTaken() | ClusterNamed():
                self._take_of_cluster(change)
            case _:
                self._access.take(change)

    def _take_of_cluster(self, change: ProducerIdsTaken | ClusterNamed) -> None:
        if isinstance(change, ClusterNamed):
            self._cluster_id = change.cluster_id
        else:
            self._producer_ids = (change.next_producer_id, change.revision)

    def finish(self, revision: int) -> MetadataImage:
        image = self._image
        return MetadataImage(
            revision=revision,
            cluster_id=self._cluster_id,
            topics=changed_map(image.topics, self._topics),
            topic_names=changed_map(image.topic_names, self._names),
            similar_names=changed_map(image.similar_names, self._similar),
            brokers=MappingProxyType(self._brokers),
            groups=changed_map(image.groups, self._groups),
            broker_settings=MappingProxyType(
                {name: one for name, one in self._broker_settings.items() if one is not None}
            ),
            quotas=changed_map(image.quotas, self._quotas),
            acls=self._access.acls,
            acl_ids=self._access.acl_ids,
            acl_removals=self._access.acl_removals,
            scram=self._access.scram,
            partition_count=self._partition_count,
            unpublished=MappingProxyType(self._unpublished),
            next_producer_id=self._producer_ids[0],
            producer_ids_revision=self._producer_ids[1],
        )

    def _change_broker(self, change: BrokerRegistered | BrokerRemoved) -> None:
        if isinstance(change, BrokerRegistered):
            self._brokers[change.broker.id] = change.broker
        else:
            self._brokers.pop(change.broker_id, None)

    def _topic(self, name: str) -> TopicImage | None:
        return self._topics[name] if name in self._topics else self._image.topics.get(name)

    def _set_settings(self, name: str, settings: Mapping[str, str]) -> None:
        topic = self._topic(name)
        if topic is not None:
            self._topics[name] = replace(topic, settings=settings)

    def _remove(self, name: str) -> None:
        topic = self._topic(name)
        if topic is None:
            return
        self._topics[name] = None
        self._names[topic.id] = None
        self._partition_count -= len(topic.partitions)
        similar = similar_name(name)
        if similar is not None:
            self._similar[similar] = None

    def _change_partitions(
        self, topic_id: UUID, changed: Mapping[int, PartitionImage | None]
    ) -> None:
        if topic_id in self._names:
            name = self._names[topic_id]
        else:
            name = self._image.topic_names.get(topic_id)
        published = self._topic(name) if name is not None else None
        states = list(published.partitions) if published else []
        waiting = dict(self._unpublished.get(topic_id, {}))
        for index, state in changed.items():
            if index < len(states):
                if state is None:
                    raise StoreError(f"partition {index} of topic {name} vanished from the store")
                states[index] = state
            elif state is None:
                waiting.pop(index, None)
            else:
                waiting[index] = state
        if published is not None and tuple(states) != published.partitions:
            self._topics[published.name] = replace(published, partitions=tuple(states))
        self._unpublished.pop(topic_id, None)
        if waiting:
            self._unpublished[topic_id] = MappingProxyType(waiting)

    def _publish(self, change: TopicPublished) -> None:
        topic = self._topic(change.name)
        if topic is not None and topic.id != change.id:
            self._remove(change.name)
            topic = None
        known = topic.partitions if topic else ()
        waiting = self._unpublished.pop(change.id, {})
        missing = [
            index for index in range(len(known), change.partition_count) if index not in waiting
        ]
        if missing or change.partition_count < len(known):
            raise StoreError(f"topic {change.name} lacks partition {missing or 'numbers'}")
        added = tuple(waiting[index] for index in range(len(known), change.partition_count))
        # The rest of a larger number of partitions that was written in part and never published.
        rest = {index: waiting[index] for index in waiting if index >= change.partition_count}
        if rest:
            self._unpublished[change.id] = MappingProxyType(rest)
        settings = topic.settings if topic else NO_SETTINGS
        self._topics[change.name] = TopicImage(
            change.name, change.id, known + added, settings, change.revision, change.is_adopted
        )
        self._names[change.id] = change.name
        self._partition_count += len(added)
        similar = similar_name(change.name)
        if similar is not None:
            self._similar[similar] = change.name
