"""The kinds of change, and `apply(image, changes, revision) -> image`: the only way images change.

`link.interpretation` turns the events of one revision into changes. A load works in the same way:
every key of the store is one batch, applied to the empty image. So an image that followed each
change equals the image loaded at the same revision, and a property test checks that.

The cost of `apply` grows with the changes, not with the image: changes collect in a draft, and each
changed map of the image is copied once at the end.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from uuid import UUID

from penstock.cluster.access_draft import (
    AccessChange,
    AccessDraft,
    changed_map,
)
from penstock.cluster.image import (
    NO_SETTINGS,
    BrokerImage,
    BrokerSettingsImage,
    ControllerImage,
    CreationImage,
    FeaturesImage,
    GroupImage,
    MetadataImage,
    Mirror,
    NodeImage,
    PartitionImage,
    QuotaImage,
    TopicImage,
    similar_name,
)
from penstock.cluster.quota_entities import QuotaEntity
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
    mirror: Mirror | None = None


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
class NodeChanged:
    """A broker has this data directory; None if its key was deleted."""

    broker_id: int
    node: NodeImage | None


@dataclass(frozen=True, slots=True)
class ControllerChanged:
    """Another broker controls the cluster; None for none."""

    controller: ControllerImage | None


@dataclass(frozen=True, slots=True)
class CreationNoted:
    """A broker writes many partitions of a topic; None when it has finished or stopped."""

    topic_id: UUID
    creation: CreationImage | None


@dataclass(frozen=True, slots=True)
class ProducerIdsTaken:
    """Producer ids below `next_producer_id` are in use."""

    next_producer_id: int
    revision: int


@dataclass(frozen=True, slots=True)
class ClusterNamed:
    """The cluster's new id."""

    cluster_id: str


@dataclass(frozen=True, slots=True)
class LevelsChanged:
    """The cluster uses features at these levels."""

    features: FeaturesImage


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
    | NodeChanged
    | ControllerChanged
    | CreationNoted
    | ProducerIdsTaken
    | ClusterNamed
    | LevelsChanged
    | AccessChange
)


def apply(
    image: MetadataImage,
    changes: Iterable[Change],
    revision: int,
    contradictions: dict[str, str] | None = None,
) -> MetadataImage:
    """Return the image after `changes`, at `revision`.

    A change that contradicts the image raises an error. With `contradictions` it is left out, and
    the problem is noted there, by topic name.
    """
    assert revision >= image.revision, "an image never goes back"
    draft = _Draft(image)
    for change in changes:
        try:
            draft.take(change)
        except ContradictionError as error:
            if contradictions is None:
                raise
            contradictions[error.topic] = str(error)
    return draft.finish(revision)


class ContradictionError(StoreError):
    """The keys of a topic contradict each other."""

    def __init__(self, topic: str, message: str) -> None:
        super().__init__(message)
        self.topic = topic


class _Draft:
    """A draft of an image: its differences from the image it began with."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._topics: dict[str, TopicImage | None] = {}
        self._names: dict[UUID, str | None] = {}
        self._similar: dict[str, str | None] = {}
        self._unpublished: dict[UUID, Mapping[int, PartitionImage]] = dict(image.unpublished)
        self._brokers = dict(image.brokers)
        self._nodes = dict(image.nodes)
        self._groups: dict[str, GroupImage | None] = {}
        self._broker_settings: dict[str, BrokerSettingsImage | None] = {**image.broker_settings}
        self._quotas: dict[QuotaEntity, QuotaImage | None] = {}
        self._access = AccessDraft(image)
        self._partition_count = image.partition_count
        self._creating = dict(image.creating)
        self._controller = image.controller
        self._features = image.features
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
            case BrokerRegistered() | BrokerRemoved() | NodeChanged():
                self._change_broker(change)
            case (
                ProducerIdsTaken()
                | ClusterNamed()
                | ControllerChanged()
                | CreationNoted()
                | LevelsChanged()
            ):
                self._take_of_cluster(change)
            case _:
                self._access.take(change)

    def _take_of_cluster(
        self,
        change: ProducerIdsTaken | ClusterNamed | ControllerChanged | CreationNoted | LevelsChanged,
    ) -> None:
        match change:
            case LevelsChanged(features):
                self._features = features
            case ClusterNamed(cluster_id):
                self._cluster_id = cluster_id
            case ControllerChanged(controller):
                self._controller = controller
            case CreationNoted(topic_id, None):
                self._creating.pop(topic_id, None)
            case CreationNoted(topic_id, creation):
                assert creation is not None
                self._creating[topic_id] = creation
            case ProducerIdsTaken():
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
            nodes=MappingProxyType(self._nodes),
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
            creating=MappingProxyType(self._creating),
            controller=self._controller,
            features=self._features,
            next_producer_id=self._producer_ids[0],
            producer_ids_revision=self._producer_ids[1],
        )

    def _change_broker(self, change: BrokerRegistered | BrokerRemoved | NodeChanged) -> None:
        match change:
            case BrokerRegistered(broker):
                self._brokers[broker.id] = broker
            case BrokerRemoved(broker_id):
                self._brokers.pop(broker_id, None)
            case NodeChanged(broker_id, None):
                self._nodes.pop(broker_id, None)
            case NodeChanged(broker_id, node):
                assert node is not None
                self._nodes[broker_id] = node

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
        vanished: list[int] = []
        for index, state in changed.items():
            if index < len(states):
                if state is None:
                    vanished.append(index)
                else:
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
        if vanished:
            raise ContradictionError(
                str(name), f"partitions {vanished} of topic {name} vanished from the store"
            )

    def _publish(self, change: TopicPublished) -> None:
        topic = self._topic(change.name)
        is_other = topic is not None and topic.id != change.id
        known = topic.partitions if topic and not is_other else ()
        waiting = self._unpublished.get(change.id, {})
        missing = [
            index for index in range(len(known), change.partition_count) if index not in waiting
        ]
        if missing or change.partition_count < len(known):
            message = f"topic {change.name} lacks partition {missing or 'numbers'}"
            raise ContradictionError(change.name, message)
        self._unpublished.pop(change.id, None)
        if is_other:
            self._remove(change.name)
            topic = None
        added = tuple(waiting[index] for index in range(len(known), change.partition_count))
        # The rest of a larger number of partitions that was written in part and never published.
        rest = {index: waiting[index] for index in waiting if index >= change.partition_count}
        if rest:
            self._unpublished[change.id] = MappingProxyType(rest)
        settings = topic.settings if topic else NO_SETTINGS
        self._topics[change.name] = TopicImage(
            change.name,
            change.id,
            known + added,
            settings,
            change.revision,
            change.is_adopted,
            change.mirror,
        )
        self._names[change.id] = change.name
        self._partition_count += len(added)
        similar = similar_name(change.name)
        if similar is not None:
            self._similar[similar] = change.name
