"""`Tree`: which node is whose parent (pure).

Rules, in this order:

1. A ROOT has no parent.
2. An operator's parent is kept while it is valid: it exists, and its level is higher.
3. The present parent is kept while it is valid, in the same region, and has been seen within
   `GONE_SECONDS`. So the tree is stable, and a short outage changes nothing.
4. Otherwise: among the nodes one level up in the same region, or without a region, the one with the
   fewest children below `CHILDREN_MAX`; nodes of the same region first, then by name. If the level
   has no node at all for this region, the next higher level counts.
5. If there is none, the present parent is kept if it is valid: to be without a parent is no better.

Guarantees: no cycles, because a parent is always on a higher level; a decision changes one node;
equal states give equal decisions. It does NOT store anything, and it reads no clock: times are
arguments, in seconds that never go back. A node that was never seen since the start counts as seen
at the start, so a restart of the registry moves no child.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from penstock.edge.registry.node_entry import KAFKA, NodeEntry
from penstock.edge.registry.node_roles import LEVELS, ROLES, Role, may_feed

CHILDREN_MAX: Final = 200
"""Children of one node: each has a connection for its pipe."""
GONE_SECONDS: Final = 300.0
"""Time without a poll after which the children of a node move to another parent."""


class Tree:
    """The nodes, the number of children of each, and when each was seen."""

    def __init__(
        self,
        entries: Iterable[NodeEntry] = (),
        *,
        now_seconds: float = 0.0,
        children_max: int = CHILDREN_MAX,
        gone_seconds: float = GONE_SECONDS,
    ) -> None:
        self._start_seconds = now_seconds
        self._children_max = children_max
        self._gone_seconds = gone_seconds
        self._nodes: dict[str, NodeEntry] = {}
        self._by_role: dict[Role, set[str]] = defaultdict(set)
        self._children: Counter[str] = Counter()
        self._seen_seconds: dict[str, float] = {}
        for entry in entries:
            self.put(entry)

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self._nodes)

    def __iter__(self) -> Iterator[NodeEntry]:
        """Iterate over all nodes."""
        return iter(self._nodes.values())

    def get(self, node_id: str) -> NodeEntry | None:
        """Return a node; None if there is none."""
        return self._nodes.get(node_id)

    def put(self, entry: NodeEntry) -> None:
        """Add or replace a node."""
        self._unlink(entry.id)
        self._nodes[entry.id] = entry
        self._by_role[entry.role].add(entry.id)
        if entry.parent is not None:
            self._children[entry.parent] += 1

    def remove(self, node_id: str) -> None:
        """Remove a node; its children get another parent when they ask next."""
        self._unlink(node_id)
        self._nodes.pop(node_id, None)
        self._seen_seconds.pop(node_id, None)

    def see(self, node_id: str, now_seconds: float) -> None:
        """Note that a node has called now."""
        self._seen_seconds[node_id] = now_seconds

    def silent_seconds(self, node_id: str, now_seconds: float) -> float:
        """Return the time since the last call of a node, or since the start."""
        return max(0.0, now_seconds - self._seen_seconds.get(node_id, self._start_seconds))

    def was_seen(self, node_id: str) -> bool:
        """Whether a node has called since the start."""
        return node_id in self._seen_seconds

    def children(self, node_id: str) -> int:
        """Return the number of children of a node."""
        return self._children[node_id]

    def settled(self, entry: NodeEntry, now_seconds: float) -> tuple[NodeEntry, str]:
        """Return the entry with its parent, and the reason if it has none."""
        parent, reason = self._parent_of(entry, now_seconds)
        return (entry if parent == entry.parent else replace(entry, parent=parent)), reason

    def parent_problem(self, entry: NodeEntry, parent: str) -> str | None:
        """Return why an operator cannot choose this parent; None if it is valid."""
        found = self._nodes.get(parent)
        if parent == entry.id:
            return f"node {entry.id} cannot be its own parent"
        if found is None:
            return f"there is no node {parent}"
        if KAFKA not in found.addresses:
            return f"{parent} has not registered itself yet"
        if not may_feed(found.role, entry.role):
            return f"{parent} is {found.role}, which is not above {entry.role}"
        if self._children[parent] >= self._children_max and entry.parent != parent:
            return f"{parent} has {self._children[parent]} children (at most {self._children_max})"
        return None

    def validate(self) -> None:
        """Assert what must hold after every change; for tests."""
        counted = Counter(one.parent for one in self if one.parent is not None)
        assert counted == +self._children, (counted, self._children)
        for role, ids in self._by_role.items():
            assert all(self._nodes[node_id].role is role for node_id in ids)
        assert sum(map(len, self._by_role.values())) == len(self._nodes)

    def _parent_of(self, entry: NodeEntry, now_seconds: float) -> tuple[str | None, str]:
        if entry.role is Role.ROOT:
            return None, ""
        pinned = entry.pinned_parent
        if pinned is not None and self._is_valid(entry, pinned):
            return pinned, ""
        present = entry.parent
        is_valid = present is not None and self._is_valid(entry, present)
        if is_valid and present is not None and self._serves(entry, present, now_seconds):
            return present, ""
        chosen, reason = self._choose(entry, now_seconds)
        if chosen is None and is_valid:
            return present, ""
        return chosen, reason

    def _is_valid(self, entry: NodeEntry, parent: str) -> bool:
        found = self._nodes.get(parent)
        if found is None or parent == entry.id or KAFKA not in found.addresses:
            return False
        return may_feed(found.role, entry.role)

    def _serves(self, entry: NodeEntry, parent: str, now_seconds: float) -> bool:
        """Whether the present parent is kept: alive, and of a region that serves this node."""
        is_alive = self.silent_seconds(parent, now_seconds) < self._gone_seconds
        return is_alive and _is_near(self._nodes[parent], entry)

    def _choose(self, entry: NodeEntry, now_seconds: float) -> tuple[str | None, str]:
        for role in reversed(ROLES[: LEVELS[entry.role]]):
            near = [
                one
                for node_id in self._by_role[role]
                if node_id != entry.id
                and _is_near(one := self._nodes[node_id], entry)
                and KAFKA in one.addresses
            ]
            if near:
                return self._best(entry, role, near, now_seconds)
        region = "" if entry.region is None else f" in the region {entry.region}"
        return None, f"no node above {entry.role}{region} has registered"

    def _best(
        self, entry: NodeEntry, role: Role, near: list[NodeEntry], now_seconds: float
    ) -> tuple[str | None, str]:
        alive = [
            one for one in near if self.silent_seconds(one.id, now_seconds) < self._gone_seconds
        ]
        if not alive:
            return None, f"all {len(near)} nodes with the role {role} are gone"
        free = [one for one in alive if self._load(entry, one) < self._children_max]
        if not free:
            return None, (
                f"all {len(alive)} nodes with the role {role} have {self._children_max} children"
            )
        best = min(
            free, key=lambda one: (one.region != entry.region, self._load(entry, one), one.id)
        )
        return best.id, ""

    def _load(self, entry: NodeEntry, candidate: NodeEntry) -> int:
        """Return the children of a candidate, without this node."""
        return self._children[candidate.id] - (entry.parent == candidate.id)

    def _unlink(self, node_id: str) -> None:
        before = self._nodes.get(node_id)
        if before is None:
            return
        self._by_role[before.role].discard(node_id)
        if before.parent is not None:
            self._children[before.parent] -= 1


def _is_near(parent: NodeEntry, child: NodeEntry) -> bool:
    """Whether a parent serves the region of a child."""
    return parent.region is None or parent.region == child.region
