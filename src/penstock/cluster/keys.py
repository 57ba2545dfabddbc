"""Every key of the metadata store, in one place.

All keys of one cluster begin with its root, `/penstock/<cluster>/`, so that one store may serve
several clusters. Below it (the values are in `values`):

    meta/format                     version of this layout
    meta/cluster_id                 created once
    meta/adopted                    logs that existed before the store have become topics
    meta/login_secret               derives the salts of unknown users; not in an image
    brokers/<id>                    a registered broker; bound to its session
    nodes/<id>                      the data directory of a broker; stays when the broker stops
    features                        levels of features in use
    transfer                        an import or an export of the metadata; not in an image
    controller                      the broker that controls the cluster; bound to its session
    creating/<topic id>             a broker writes many partitions; bound to its session
    topics/<name>                   the publishing key of a topic: id and number of partitions
    names/<name with . as _>        the topic of such a name, for names with either character
    parts/<topic id>/<00000007>     state of one partition
    configs/topic/<name>            settings that the topic overrides
    configs/group/<name>            settings that the group overrides; the name percent-encoded
    configs/broker/<id>             settings of a broker that were changed while it ran
    configs/broker/default          the same for all brokers
    quotas/<entity>                 quotas of a user, client id or address, or of a default
    acls/<uuid>                     an access rule; the id is random and is never used again
    acl_removals/<uuid>             ids of rules that are deleted together; their keys follow later
    scram/<mechanism>/<user>        the credential of a user; the name percent-encoded
    declared/<topic name>           settings of the topic from the settings file
    producer_ids/next               first unused producer id

Topic names are checked before: they have no slash, so a key can be parsed. Names of groups and
users may have any characters and are encoded as in a URL, so keys stay printable text. A key that
is not in this table belongs to a newer version; `parse` ignores it.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple
from urllib.parse import quote, unquote
from uuid import UUID

from penstock.cluster.quota_entities import QuotaEntity

DEFAULT_ROOT = "/penstock/default/"
"""Root of a cluster without a name: a store that serves one host has one cluster."""


ALL_BROKERS: Final = ""
"""The name of all brokers together in settings: Kafka's empty resource name."""
_DEFAULT_BROKER: Final = "default"


class KeyKind(Enum):
    """The kind of a key."""

    FORMAT = "format"
    CLUSTER_ID = "cluster_id"
    BROKER = "broker"
    NODE = "node"
    CONTROLLER = "controller"
    FEATURES = "features"
    CREATING = "creating"
    TOPIC = "topic"
    NAME = "name"
    PARTITION = "partition"
    TOPIC_SETTINGS = "topic_settings"
    GROUP_SETTINGS = "group_settings"
    BROKER_SETTINGS = "broker_settings"
    QUOTAS = "quotas"
    ACL = "acl"
    ACL_REMOVAL = "acl_removal"
    SCRAM = "scram"
    PRODUCER_IDS = "producer_ids"
    UNKNOWN = "unknown"


class ParsedKey(NamedTuple):
    """A parsed key."""

    kind: KeyKind
    name: str = ""
    """Name of a topic, group or broker (`ALL_BROKERS` for all), a similar name, topic id of a
    partition or a creation, an entity that has quotas, the id of an access rule or of a removal, or
    mechanism/user."""
    number: int = -1
    """Partition number, or broker id."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one cluster."""

    root: str = DEFAULT_ROOT

    def __post_init__(self) -> None:
        assert self.root.startswith("/"), self.root
        assert self.root.endswith("/"), self.root

    def format(self) -> str:
        """Return the key of the layout's version."""
        return f"{self.root}meta/format"

    def cluster_id(self) -> str:
        """Return the key of the cluster's id."""
        return f"{self.root}meta/cluster_id"

    def adopted(self) -> str:
        """Return the key that exists after the logs of the data directory have become topics."""
        return f"{self.root}meta/adopted"

    def login_secret(self) -> str:
        """Return the key of the cluster's secret for logins; `parse` ignores it."""
        return f"{self.root}meta/login_secret"

    def broker(self, broker_id: int) -> str:
        """Return the key of a registered broker."""
        return f"{self.root}brokers/{broker_id}"

    def brokers(self) -> str:
        """Return the prefix of the keys of registered brokers."""
        return f"{self.root}brokers/"

    def node(self, broker_id: int) -> str:
        """Return the key of a broker's data directory."""
        return f"{self.root}nodes/{broker_id}"

    def features(self) -> str:
        """Return the key of the levels of features."""
        return f"{self.root}features"

    def transfer(self) -> str:
        """Return the key that exists while metadata is moved into or out of this store.

        `parse` ignores it.
        """
        return f"{self.root}transfer"

    def controller(self) -> str:
        """Return the key of the broker that controls the cluster."""
        return f"{self.root}controller"

    def creating(self, topic_id: UUID) -> str:
        """Return the key that a broker holds while it writes many partitions of a topic."""
        return f"{self.root}creating/{topic_id}"

    def topic(self, name: str) -> str:
        """Return the publishing key of a topic."""
        return f"{self.root}topics/{name}"

    def name(self, similar: str) -> str:
        """Return the key that one of all topics with this `image.similar_name` has."""
        return f"{self.root}names/{similar}"

    def partition(self, topic_id: UUID, index: int) -> str:
        """Return the key of one partition's state; numbers are padded, so keys sort by number."""
        return f"{self.root}parts/{topic_id}/{index:08d}"

    def partitions(self, topic_id: UUID) -> str:
        """Return the prefix of the keys of a topic's partitions."""
        return f"{self.root}parts/{topic_id}/"

    def topic_settings(self, name: str) -> str:
        """Return the key of the settings that a topic overrides."""
        return f"{self.root}configs/topic/{name}"

    def group_settings(self, name: str) -> str:
        """Return the key of the settings that a group overrides."""
        return f"{self.root}configs/group/{quote(name, safe='')}"

    def broker_settings(self, name: str) -> str:
        """Return the key of the changed settings of a broker, or of all brokers (`ALL_BROKERS`)."""
        return f"{self.root}configs/broker/{name or _DEFAULT_BROKER}"

    def quotas(self, entity: QuotaEntity) -> str:
        """Return the key of one entity's quotas."""
        return f"{self.root}quotas/{entity.text()}"

    @property
    def acls(self) -> str:
        """The prefix of the keys of access rules."""
        return f"{self.root}acls/"

    def acl(self, acl_id: UUID) -> str:
        """Return the key of an access rule."""
        return f"{self.acls}{acl_id}"

    def acl_removal(self, removal_id: UUID) -> str:
        """Return the key that deletes several access rules at once."""
        return f"{self.root}acl_removals/{removal_id}"

    def scram(self, mechanism: str, user: str) -> str:
        """Return the key of a user's credential for one mechanism."""
        return f"{self.root}scram/{mechanism}/{quote(user, safe='')}"

    def declaration(self, name: str) -> str:
        """Return the key of a topic's declared settings; not in an image, so `parse` ignores it."""
        return f"{self.root}declared/{name}"

    def declarations(self) -> str:
        """Return the prefix of the keys of all declarations."""
        return f"{self.root}declared/"

    def producer_ids(self) -> str:
        """Return the key of the first unused producer id."""
        return f"{self.root}producer_ids/next"

    def parse(self, key: str) -> ParsedKey:
        """Parse a key of this cluster."""
        assert key.startswith(self.root), key
        # Parsed by hand: a load does this for every key, and most keys are partitions.
        kind, _, rest = key[len(self.root) :].partition("/")
        name, slash, number = rest.partition("/")
        if kind == "parts" and number.isdecimal():
            return ParsedKey(KeyKind.PARTITION, name, int(number))
        if kind == "topics" and not slash:
            return ParsedKey(KeyKind.TOPIC, name)
        if kind == "configs" and name == "topic":
            return ParsedKey(KeyKind.TOPIC_SETTINGS, number)
        if kind == "configs" and name == "group":
            return ParsedKey(KeyKind.GROUP_SETTINGS, unquote(number))
        if kind == "configs" and name == "broker":
            is_shared = number == _DEFAULT_BROKER
            return ParsedKey(KeyKind.BROKER_SETTINGS, ALL_BROKERS if is_shared else number)
        if kind in _KINDS_WITH_NUMBER and name.isdecimal() and not slash:
            return ParsedKey(_KINDS_WITH_NUMBER[kind], "", int(name))
        if kind == "scram" and number:
            return ParsedKey(KeyKind.SCRAM, f"{name}/{unquote(number)}")
        if kind in _KINDS_WITH_NAME and name and not slash:
            return ParsedKey(_KINDS_WITH_NAME[kind], name)
        return ParsedKey(_SINGLE_KEYS.get(key[len(self.root) :], KeyKind.UNKNOWN))


_KINDS_WITH_NUMBER: Final = {"brokers": KeyKind.BROKER, "nodes": KeyKind.NODE}

_KINDS_WITH_NAME: Final = {
    "acls": KeyKind.ACL,
    "acl_removals": KeyKind.ACL_REMOVAL,
    "creating": KeyKind.CREATING,
    "names": KeyKind.NAME,
    "quotas": KeyKind.QUOTAS,
}

_SINGLE_KEYS: Final = {
    "meta/format": KeyKind.FORMAT,
    "meta/cluster_id": KeyKind.CLUSTER_ID,
    "producer_ids/next": KeyKind.PRODUCER_IDS,
    "controller": KeyKind.CONTROLLER,
    "features": KeyKind.FEATURES,
}
