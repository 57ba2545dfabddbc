"""`MetadataImage`: all metadata of the cluster, as one immutable value.

An image is the state of the store at one revision. A reader may keep it for any time: a later
change creates another image and does not change this one. Lookups by topic name and by topic id
have constant time, and a change to one topic copies neither the other topics nor their partitions
(`persistent_map`). So 100,000 partitions cost memory and not time.

It holds overrides of topic and group settings as text; `topic_configs` and `group_configs` convert
them to their types. The keys of credentials are secrets, and no `repr` shows them. It is not a
cache of the log: it never has watermarks, offsets or group state, and it does not know which groups
exist. Images change only by `changes.apply`, live and on load.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from penstock.cluster.features.levels import SUPPORTED, Ranges
from penstock.cluster.persistent_map import PersistentMap
from penstock.cluster.quota_entities import QuotaEntity
from penstock.core.types import PLAINTEXT
from penstock.security.acls.values import AclBinding
from penstock.security.scram_credential import ScramCredential

NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})
"""The settings of a topic or a group that overrides nothing."""


class Replica(NamedTuple):
    """A replica in a list of replicas that have everything, and since which registration."""

    broker_id: int
    epoch: int
    """Broker epoch at which it was noted; 0 is never valid, the replica is only named."""


class WriteMark(NamedTuple):
    """The writer of a partition's state: after a lost answer it recognises its own write."""

    broker_id: int
    epoch: int
    nonce: int


class PartitionImage(NamedTuple):
    """The replicas and the leader of one partition.

    It is a tuple, because a load creates one for each partition of the cluster.
    """

    replicas: tuple[int, ...]
    """Broker ids, the preferred leader first."""
    leader: int
    """Broker id of the leader, -1 for none."""
    leader_epoch: int
    isr: tuple[int, ...]
    """Replicas that are in sync; the leader is one of them. Without a leader, the last ones."""
    partition_epoch: int
    """Revision of the store at which this state was written; the next writer compares with it."""
    broker_epoch: int = 0
    """Broker epoch of the leader: after a restart the same broker does not lead any more."""
    isr_epochs: tuple[int, ...] = ()
    """Broker epochs of the replicas of `isr`, in its order; empty if none is known."""
    elr: tuple[Replica, ...] = ()
    """Eligible leader replicas: they left the in-sync replicas below `min_isr`, while nothing more
    could be acknowledged."""
    min_isr: int = 1
    """The number of in-sync replicas without which nothing is acknowledged."""
    adding: tuple[int, ...] = ()
    """Replicas that a reassignment adds; also in `replicas`."""
    removing: tuple[int, ...] = ()
    """Replicas that a reassignment removes; still in `replicas`."""
    is_recovering: bool = False
    """Whether the leader was elected although it may lack acknowledged records."""
    written_by: WriteMark | None = None

    @property
    def in_sync(self) -> tuple[Replica, ...]:
        """The in-sync replicas with their broker epochs."""
        epochs = self.isr_epochs or (0,) * len(self.isr)
        return tuple(map(Replica, self.isr, epochs))


class Mirror(NamedTuple):
    """The mark of a topic that a pipe writes: it has the parent's records, and is read-only."""

    pipe: str
    """The name of the pipe."""
    is_restoring: bool = False
    """Whether clients wrote it before, and its records were not compared with the parent's yet."""


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic: its id, its partitions in order of their number, its settings."""

    name: str
    id: UUID
    partitions: tuple[PartitionImage, ...]
    settings: Mapping[str, str]
    """Overrides as they were set; absent settings have their defaults."""
    revision: int
    """Revision of the store at which the topic was last published."""
    is_adopted: bool = False
    """Whether its logs existed before it: their earlier broker may have compacted them."""
    mirror: Mirror | None = None
    """Set for a topic that a pipe writes instead of clients."""


@dataclass(frozen=True, slots=True)
class GroupImage:
    """The settings that one group overrides. Other groups are not in an image."""

    settings: Mapping[str, str]
    """As they were set; absent settings have their defaults."""
    revision: int
    """Revision of the store at which they were written."""


@dataclass(frozen=True, slots=True)
class BrokerSettingsImage:
    """The settings of a broker, or of all brokers, that were changed while it ran."""

    settings: Mapping[str, str]
    """By Kafka's names, as they were set."""
    revision: int
    """Revision of the store at which they were written."""


@dataclass(frozen=True, slots=True)
class QuotaImage:
    """The quotas of one entity."""

    quotas: Mapping[str, float]
    """By Kafka's names; an absent quota has no bound."""
    revision: int
    """Revision of the store at which they were written."""


@dataclass(frozen=True, slots=True)
class ScramImage:
    """The credential of one user for one mechanism."""

    credential: ScramCredential
    created_ms: int
    """Time since the epoch at which the password was set."""
    revision: int
    """Revision of the store at which it was written."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The advertised address of one listener of a broker."""

    listener: str
    host: str
    port: int
    protocol: str = PLAINTEXT

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class BrokerState(StrEnum):
    """The readiness of a registered broker."""

    STARTING = "starting"
    """It follows partitions and does not lead yet."""
    RUNNING = "running"
    DRAINING = "draining"
    """It is about to stop: it leads only if no other broker can."""


@dataclass(frozen=True, slots=True)
class NodeImage:
    """A broker's disk, registered or not."""

    directory_id: str
    revision: int
    """Since this revision of the store, the disk has kept everything that the broker reported."""


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A broker that is registered now."""

    id: int
    endpoints: tuple[Endpoint, ...]
    """At least one, each with another listener."""
    rack: str | None
    directory_id: str
    """Identifies the data directory: distinguishes a restart from a second broker with the same id.
    """
    epoch: int
    """Revision of the store at which it registered; a restart gets a higher one."""
    state: BrokerState = BrokerState.RUNNING
    revision: int = 0
    """Revision of the store at which the registration was last written."""
    features: Ranges = SUPPORTED
    """The levels of features that it supports."""

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return the address of this listener; None if the broker does not have it."""
        return next((one for one in self.endpoints if one.listener == listener), None)


@dataclass(frozen=True, slots=True)
class FeaturesImage:
    """The levels of features that the cluster uses."""

    levels: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """By name; a feature that is not in use is absent."""
    revision: int = 0
    """Revision of the store at which they were written, 0 for never."""


@dataclass(frozen=True, slots=True)
class ControllerImage:
    """The broker that controls the cluster now."""

    broker_id: int
    broker_epoch: int
    """The registration that it controls with; a broker that registers again has lost the role."""
    revision: int
    """Revision of the store at which it got the role: each write of a controller compares it."""


@dataclass(frozen=True, slots=True)
class CreationImage:
    """A broker that writes many partitions of a topic in several transactions."""

    broker_id: int
    revision: int
    """Revision of the store at which it began: each of the transactions compares it."""


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The state of the cluster at one revision of the store."""

    revision: int = 0
    cluster_id: str = ""
    """22 characters, Kafka's form of an id; empty only before the first start."""
    topics: PersistentMap[str, TopicImage] = field(default_factory=PersistentMap)
    """By name."""
    topic_names: PersistentMap[UUID, str] = field(default_factory=PersistentMap)
    """Name by topic id."""
    similar_names: PersistentMap[str, str] = field(default_factory=PersistentMap)
    """Name by name with `.` as `_`, for names that contain either. Two such names must not differ
    only there, because their Kafka metric names would be equal."""
    brokers: Mapping[int, BrokerImage] = field(default_factory=lambda: MappingProxyType({}))
    """By broker id."""
    nodes: Mapping[int, NodeImage] = field(default_factory=lambda: MappingProxyType({}))
    """By broker id, for every broker that has ever registered."""
    groups: PersistentMap[str, GroupImage] = field(default_factory=PersistentMap)
    """The groups that have their own settings, by name."""
    broker_settings: Mapping[str, BrokerSettingsImage] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """By broker id as text, and by `keys.ALL_BROKERS` for all."""
    quotas: PersistentMap[QuotaEntity, QuotaImage] = field(default_factory=PersistentMap)
    """By entity, for entities with quotas."""
    acls: PersistentMap[UUID, AclBinding] = field(default_factory=PersistentMap)
    """The access rules of the store by id, without the ones that `acl_removals` deletes."""
    acl_ids: PersistentMap[AclBinding, tuple[UUID, ...]] = field(default_factory=PersistentMap)
    """The ids of each rule, sorted: more than one if two brokers created it at the same time."""
    acl_removals: Mapping[UUID, tuple[UUID, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Ids of deleted rules whose keys still exist, by the id of their removal."""
    scram: PersistentMap[tuple[str, str], ScramImage] = field(default_factory=PersistentMap)
    """Credentials by mechanism and user."""
    partition_count: int = 0
    """Partitions of all published topics."""
    unpublished: Mapping[UUID, Mapping[int, PartitionImage]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Partitions written before their topic is published. They are not served."""
    creating: Mapping[UUID, CreationImage] = field(default_factory=lambda: MappingProxyType({}))
    """Topics, by id, whose partitions are being written. They must not be swept."""
    controller: ControllerImage | None = None
    """None while no broker controls the cluster."""
    features: FeaturesImage = field(default_factory=FeaturesImage)
    next_producer_id: int = 0
    producer_ids_revision: int = 0
    """Revision at which `next_producer_id` was written, 0 for never."""

    def topic(self, name: str) -> TopicImage | None:
        """Return the topic of this name."""
        return self.topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        """Return the topic with this id."""
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def group_settings(self, name: str) -> Mapping[str, str]:
        """Return the settings that a group overrides; empty for most."""
        group = self.groups.get(name)
        return NO_SETTINGS if group is None else group.settings

    def settings_of_broker(self, name: str) -> Mapping[str, str]:
        """Return the changed settings of a broker, or of all brokers."""
        found = self.broker_settings.get(name)
        return NO_SETTINGS if found is None else found.settings

    def partition(self, name: str, index: int) -> PartitionImage | None:
        """Return one partition of a topic."""
        topic = self.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]


def similar_name(name: str) -> str | None:
    """Return the form of a name that is compared for collisions; None if it cannot collide."""
    return name.replace(".", "_") if "." in name or "_" in name else None
