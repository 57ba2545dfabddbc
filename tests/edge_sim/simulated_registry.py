"""The registry of the simulator: unreachable for a week, nonsense for a day, copied disks.

The decisions are the real ones: `Tree` for the parents, `instances` for copied disks, and
`TopologyFollower` in each node for the answers. An answer is the JSON of the REST interface; a poll
that would get 304 gets none.

`Place` is the part of a node that the registry knows: id, boot, instance and last topology.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.edge.registry.documents import ParentDocument, TopologyDocument
from penstock.edge.registry.instances import InstanceRefusal, take_instance, use_instance
from penstock.edge.registry.node_entry import NodeEntry
from penstock.edge.registry.node_roles import Role, may_feed
from penstock.edge.registry.parent_assignment import Tree
from penstock.edge.registry.topology_follower import RefusedAnswer, TopologyFollower

REGISTRY_ID: Final = "0" * 32
NONSENSE: Final = 0.5
"""Answers that are nonsense, in the time of nonsense."""


class TopologyViolationError(AssertionError):
    """A node follows an answer that it must refuse."""


@dataclass
class Place:
    """One process of a node; `instance` and `follower.last` are on its disk."""

    id: str
    follower: TopologyFollower
    boot: int = 0
    machine: int = 0
    """Another number for the second machine with a copied disk."""
    instance: int = 0
    is_registered: bool = False
    is_refused: bool = False

    @property
    def boot_text(self) -> str:
        return f"{self.machine}-{self.boot}"

    def copy(self) -> "Place":
        """Return the second machine of a copied disk."""
        follower = TopologyFollower(self.id, self.follower.last)
        return Place(self.id, follower, machine=self.machine + 1, instance=self.instance)


@dataclass
class SimulatedRegistry:
    """One registry; `is_reachable` and `is_nonsense` are set by the faults."""

    draw: random.Random
    gone_seconds: float
    is_reachable: bool = True
    is_nonsense: bool = False
    revision: int = 1_000
    refused: Counter[str] = field(default_factory=Counter)
    """Answers that nodes refused, by the kind of nonsense, and refused calls of nodes."""

    def __post_init__(self) -> None:
        self.tree = Tree(gone_seconds=self.gone_seconds)
        self.children_most: Counter[str] = Counter()

    def add(self, name: str, role: Role) -> Place:
        """Create a node."""
        addresses = {"kafka": f"{name}:9092"}
        self.tree.put(NodeEntry(name, "token:x", chosen_role=role, addresses=addresses))
        return Place(name, TopologyFollower(name))

    def poll(self, place: Place, now: float) -> str | None:
        """Let a node poll; return the id of its parent now."""
        if not self.is_reachable:
            return self._parent_of(place)
        body, kind = self._answer(place, now), "answer"
        has_last = place.follower.last is not None
        if self.is_nonsense and has_last and self.draw.random() < NONSENSE:
            kind, body = self._nonsense(place)
        if body is not None:
            found = place.follower.judge(body)
            if isinstance(found, RefusedAnswer):
                self.refused[kind] += 1
            else:
                place.follower.follow(found)
                self._check(place, found)
        return self._parent_of(place)

    @staticmethod
    def _parent_of(place: Place) -> str | None:
        last = place.follower.last
        return None if last is None or last.parent is None else last.parent.id

    def _answer(self, place: Place, now: float) -> bytes | None:
        """Return the answer of a good registry; None: no answer, refused, or unchanged."""
        entry = self.tree.get(place.id)
        if entry is None:
            return None
        used = self._instance(place, entry, now)
        if used is None:
            return None
        settled, _ = self.tree.settled(used, now)
        if settled.parent != entry.parent or not settled.revision:
            self.revision += 1
            settled = replace(settled, revision=self.revision)
        if settled is not entry:
            self.tree.put(settled)
        self.tree.see(place.id, now)
        if settled.parent is not None and settled is not entry:
            children = self.tree.children(settled.parent)
            self.children_most[settled.parent] = max(self.children_most[settled.parent], children)
        last = place.follower.last
        known = None if last is None else (last.revision, last.parent and last.parent.id)
        if known == (settled.revision, settled.parent):
            # The content counts too, as in the ETag: nonsense may have had the same revision.
            place.follower.confirm()
            return None
        return _answer(settled, settled.parent, settled.revision)

    def _instance(self, place: Place, entry: NodeEntry, now: float) -> NodeEntry | None:
        """Return the entry after the call of this process; None if it is refused."""
        found: NodeEntry | InstanceRefusal
        if place.is_registered:
            found = use_instance(entry, place.instance)
        if not place.is_registered or isinstance(found, InstanceRefusal):
            silent = self.tree.silent_seconds(place.id, now)
            found = take_instance(entry, place.instance, place.boot_text, silent)
        place.is_refused = isinstance(found, InstanceRefusal)
        place.is_registered = not place.is_refused
        if isinstance(found, InstanceRefusal):
            self.refused["instance"] += 1
            return None
        place.instance = found.instance
        return found

    def _nonsense(self, place: Place) -> tuple[str, bytes]:
        entry = self.tree.get(place.id)
        assert entry is not None
        parent, later = entry.parent, self.revision + 1
        other = next(iter(self.tree))
        kinds: dict[str, Callable[[], bytes]] = {
            "empty": lambda: b"",
            "json": lambda: b'{"registry": ',
            "list": lambda: b"[]",
            "other": lambda: _answer(other, other.parent, later),
            "own parent": lambda: _answer(entry, entry.id, later),
            "older": lambda: _answer(entry, "s-0", 1),
            "no parent": lambda: _answer(entry, None, later),
            "absurd": lambda: _answer(entry, parent, later).replace(
                b'"revision":%d' % later, b'"revision":%d' % 2**52
            ),
            "far ahead": lambda: _answer(entry, parent, 10**12),
        }
        kind = self.draw.choice(list(kinds))
        return kind, kinds[kind]()

    def _check(self, place: Place, found: TopologyDocument) -> None:
        """A followed parent is on a higher level, and a node that had a parent has one."""
        entry = self.tree.get(place.id)
        assert entry is not None
        if entry.role is Role.ROOT:
            return
        parent = None if found.parent is None else self.tree.get(found.parent.id)
        if found.id != place.id:
            raise TopologyViolationError(f"{place.id} follows an answer for {found.id}")
        if parent is None:
            if entry.parent is not None:
                raise TopologyViolationError(f"{place.id} has lost its parent {entry.parent}")
        elif not may_feed(parent.role, entry.role):
            raise TopologyViolationError(f"{place.id} follows {parent.id} as its parent")


def _answer(entry: NodeEntry, parent: str | None, revision: int) -> bytes:
    addresses = {"kafka": f"{parent}:9092"}
    document = TopologyDocument(
        registry=REGISTRY_ID,
        id=entry.id,
        role=entry.role,
        parent=None if parent is None else ParentDocument(id=parent, addresses=addresses),
        down=("*",),
        up=(),
        revision=revision,
        instance=entry.instance,
    )
    return document.model_dump_json().encode()
