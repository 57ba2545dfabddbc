"""A registry without HTTP, with a clock by hand: entries, registrations, a store in memory."""

from dataclasses import dataclass, field

from penstock.edge.registry.documents import NodePatch, Registration
from penstock.edge.registry.identities import token_identity
from penstock.edge.registry.node_entry import NodeEntry, TopicPatterns
from penstock.edge.registry.node_roles import Role
from penstock.edge.registry.registry_errors import RegistryStoreError
from penstock.edge.registry.registry_service import Caller, RegistryService
from penstock.edge.registry.registry_store import Stored

REGISTRY_ID = "ab" * 16
START_MS = 1_700_000_000_000


@dataclass
class HandClock:
    """Time that moves by hand."""

    seconds: float = 1_000.0
    date_ms: int = START_MS

    def now_ms(self) -> int:
        return self.date_ms

    def monotonic(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
        self.date_ms += round(seconds * 1_000)


@dataclass
class MemoryStore:
    """A store that keeps everything, and fails on demand."""

    nodes: dict[str, NodeEntry] = field(default_factory=dict)
    levels: dict[Role, TopicPatterns] = field(default_factory=dict)
    registry_id: str = ""
    revision: int = 0
    writes: int = 0
    is_failing: bool = False

    def load(self, new_id: str) -> Stored:
        self.registry_id = self.registry_id or new_id
        return Stored(
            self.registry_id, self.revision, tuple(self.nodes.values()), dict(self.levels)
        )

    def save(self, entry: NodeEntry, revision: int) -> None:
        self._write()
        self.nodes[entry.id] = entry
        self.revision = revision

    def delete(self, node_id: str) -> None:
        self._write()
        del self.nodes[node_id]

    def save_level(self, role: Role, patterns: TopicPatterns) -> None:
        self._write()
        self.levels[role] = patterns

    def save_revision(self, revision: int) -> None:
        self._write()
        self.revision = revision

    def _write(self) -> None:
        if self.is_failing:
            raise RegistryStoreError("the disk is full")
        self.writes += 1


def token_of(node_id: str) -> str:
    """The token of a node in these tests."""
    return f"token-of-{node_id}-".ljust(40, "x")


def caller_of(node_id: str, *, has_joined: bool = True, address: str = "192.0.2.1") -> Caller:
    return Caller(token_identity(token_of(node_id)), address, has_joined)


def registration(boot: str = "b007" * 4, instance: int = 0, **given: object) -> Registration:
    return Registration.model_validate(
        {"addresses": {"kafka": "host:9092"}, "boot": boot, "instance": instance, **given}
    )


class Scene:
    """A registry with a clock and a store; nodes that an operator creates, or that join."""

    def __init__(self, nodes_max: int = 1_000, children_max: int = 200) -> None:
        self.clock = HandClock()
        self.store = MemoryStore()
        self._limits = nodes_max, children_max
        self._tokens = 0
        self.service = self._start()

    def restart(self) -> None:
        self.service = self._start()

    def _start(self) -> RegistryService:
        nodes_max, children_max = self._limits
        return RegistryService(
            self.store,
            self.clock,
            REGISTRY_ID,
            self._new_token,
            nodes_max=nodes_max,
            children_max=children_max,
        )

    def _new_token(self) -> str:
        self._tokens += 1
        return f"new-token-{self._tokens}-".ljust(40, "y")

    def create(self, node_id: str, role: str, region: str | None = None) -> None:
        """Create and register a node with a role that an operator assigns."""
        labels = {} if region is None else {"region": region}
        self.service.register(node_id, registration(labels=labels), caller_of(node_id))
        self.service.patch(node_id, NodePatch(role=Role(role)))
