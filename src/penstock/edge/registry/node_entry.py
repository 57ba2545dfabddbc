"""`NodeEntry` and `Topology`: values of the registry, without decisions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.edge.registry.node_roles import Role

KAFKA: Final = "kafka"
"""The transport whose address a child needs of its parent."""
REGION: Final = "region"
"""The label that parents and children share."""
NO_INSTANCE: Final = 0
"""The instance number of a node that has never been registered."""


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """A node as the registry stores it."""

    id: str
    identity: str
    """The key of the node: `token:` and a digest, or `certificate:` and a name."""
    wanted_role: Role = Role.LOCAL
    chosen_role: Role | None = None
    """The role that an operator has assigned; it wins over the wanted one."""
    parent: str | None = None
    pinned_parent: str | None = None
    """The parent that an operator has assigned; it wins while it is valid."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """By transport; empty until the node has registered itself."""
    labels: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    instance: int = NO_INSTANCE
    boot: str = ""
    """A random text of the process that has the instance number."""
    used_instance: int = NO_INSTANCE
    """The newest number that a process has used, so it is on the disk of the node."""
    revision: int = 0
    """The revision of the last change of the node's topology."""
    answer: str = ""
    """A digest of that topology."""

    @property
    def role(self) -> Role:
        """The role in force."""
        return self.wanted_role if self.chosen_role is None else self.chosen_role

    @property
    def region(self) -> str | None:
        """The region; None serves every region, and is served by nodes without a region."""
        return self.labels.get(REGION)


@dataclass(frozen=True, slots=True)
class TopicPatterns:
    """The topics of one level: names, with `*` for any text and `{label}` for a label's value."""

    down: tuple[str, ...] = ()
    up: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Parent:
    """The parent of a node, and where it listens."""

    id: str
    addresses: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Topology:
    """The place of a node in the tree: the port to the pipes."""

    id: str
    role: Role
    parent: Parent | None
    down: tuple[str, ...]
    """Patterns of topics that are copied from the parent."""
    up: tuple[str, ...]
    """Patterns of topics that are sent to the parent."""
    revision: int
    instance: int

    @property
    def parent_address(self) -> str | None:
        """`host:port` of the parent's Kafka listener; None without a parent."""
        return None if self.parent is None else self.parent.addresses[KAFKA]
