"""`RegistryService`: the operations of the registry, over its tree and its store.

Each operation decides on the tree, stores one changed node in one transaction, and then changes the
tree. If the store fails, the tree is as before and the caller gets an error. A poll that changes
nothing writes nothing.

Revisions rise with each change of an answer. A start begins with a revision above all earlier ones
and not below the clock's milliseconds, so nodes follow a registry that was restored from a backup.
A clock after the year 2109 does not count: revisions must stay below their bound.

It is blocking code for one thread at a time. It does NOT speak HTTP: `registry_app` does.
"""

import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from penstock.core.clock import Clock
from penstock.edge.registry.documents import (
    REVISION_MAX,
    LevelDocument,
    LevelPatch,
    NodeDocument,
    NodePatch,
    ParentDocument,
    Registration,
    TokenDocument,
    TopologyDocument,
    TreeDocument,
)
from penstock.edge.registry.identities import is_same, token_identity
from penstock.edge.registry.instances import (
    InstanceRefusal,
    new_instance,
    take_instance,
    use_instance,
)
from penstock.edge.registry.node_entry import NodeEntry, TopicPatterns
from penstock.edge.registry.node_roles import ROLES, SELF_CHOSEN, Role
from penstock.edge.registry.node_view import Conflict, node_document
from penstock.edge.registry.parent_assignment import CHILDREN_MAX, GONE_SECONDS, Tree
from penstock.edge.registry.registry_errors import (
    RegistryRefusedError,
    forbidden,
    unauthorized,
    unknown_node,
)
from penstock.edge.registry.registry_store import Stored
from penstock.edge.registry.topic_patterns import expanded

logger = logging.getLogger(__name__)

NODES_MAX: Final = 100_000
"""Each has about 2 KB of memory: 200 MB for all."""
CLOCK_MS_MAX: Final = REVISION_MAX // 2


class Store(Protocol):
    """The durable state: `RegistryStore`, or a fake."""

    def load(self, new_id: str) -> Stored:
        """Return everything that is stored."""
        ...

    def save(self, entry: NodeEntry, revision: int) -> None:
        """Store a node and the revision of the registry, before it returns."""
        ...

    def delete(self, node_id: str) -> None:
        """Delete a node."""
        ...

    def save_level(self, role: Role, patterns: TopicPatterns) -> None:
        """Store the topics of a level."""
        ...

    def save_revision(self, revision: int) -> None:
        """Store the revision of the registry."""
        ...


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of an operation."""

    identity: str | None
    """None: no valid key."""
    address: str = ""
    has_joined: bool = False
    """Whether it has shown the join token, which lets new nodes in."""


class RegistryService:
    """The registry of one tree."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        new_id: str,
        new_token: Callable[[], str],
        *,
        nodes_max: int = NODES_MAX,
        children_max: int = CHILDREN_MAX,
        gone_seconds: float = GONE_SECONDS,
    ) -> None:
        """Load the state; `new_id` is the id of a registry without one."""
        self._store = store
        self._clock = clock
        self._new_token = new_token
        self._nodes_max = nodes_max
        stored = store.load(new_id)
        self.id = stored.registry_id
        self._tree = Tree(
            stored.entries,
            now_seconds=clock.monotonic(),
            children_max=children_max,
            gone_seconds=gone_seconds,
        )
        self._levels = dict(stored.levels)
        self._reports: dict[str, Registration] = {}
        self._conflicts: dict[str, Conflict] = {}
        newest = max((one.revision for one in stored.entries), default=0)
        clock_ms = min(clock.now_ms(), CLOCK_MS_MAX)
        self._start_revision = max(stored.revision + 1, newest + 1, clock_ms)
        self._revision = self._start_revision
        store.save_revision(self._revision)

    def register(self, node_id: str, given: Registration, caller: Caller) -> TopologyDocument:
        """Register a node, or what has changed of it; return its topology."""
        identity, now = self._known(caller), self._clock.monotonic()
        entry = self._tree.get(node_id)
        if entry is None:
            entry = self._admitted(node_id, identity, caller)
        elif not is_same(entry.identity, identity):
            raise forbidden(
                f"the id {node_id} belongs to another key",
                "Choose another id (registry.node_id), or issue a new key with `penstock registry "
                f"token {node_id}`.",
            )
        silent = self._tree.silent_seconds(node_id, now)
        taken = take_instance(entry, given.instance, given.boot, silent)
        if isinstance(taken, InstanceRefusal):
            raise self._refused(node_id, given.instance, caller, taken)
        if taken.instance == entry.instance:
            self._note_alive(node_id)
        changed = replace(
            taken,
            wanted_role=_granted(taken, given.wanted_role),
            addresses=dict(given.addresses),
            labels=dict(given.labels),
            version=given.version,
        )
        document = self._settle(changed, now)
        self._tree.see(node_id, now)
        self._reports[node_id] = given
        if taken.instance != entry.instance:
            self._conflicts.pop(node_id, None)
        return document

    def poll(self, node_id: str, instance: int, caller: Caller) -> TopologyDocument:
        """Return the topology of a node."""
        identity, now = self._known(caller), self._clock.monotonic()
        entry = self._tree.get(node_id)
        if entry is None:
            raise unknown_node(node_id)
        if not is_same(entry.identity, identity):
            raise forbidden(
                f"the id {node_id} belongs to another key", "Register this node under its own id."
            )
        used = use_instance(entry, instance)
        if isinstance(used, InstanceRefusal):
            raise self._refused(node_id, instance, caller, used)
        document = self._settle(used, now)
        self._tree.see(node_id, now)
        self._note_alive(node_id)
        return document

    def patch(self, node_id: str, given: NodePatch) -> NodeDocument:
        """Change the role, the parent or the instance of a node, for an operator."""
        entry = self._tree.get(node_id)
        if entry is None:
            raise unknown_node(node_id)
        if "role" in given.model_fields_set:
            entry = replace(entry, chosen_role=given.role)
        if "parent" in given.model_fields_set:
            problem = given.parent and self._tree.parent_problem(entry, given.parent)
            if problem:
                raise RegistryRefusedError(
                    409, "Not a valid parent", problem, "Show the tree: `penstock edge tree`."
                )
            entry = replace(entry, pinned_parent=given.parent)
        if given.new_instance:
            entry = new_instance(entry)
            self._conflicts.pop(node_id, None)
        now = self._clock.monotonic()
        self._settle(entry, now)
        return self._shown(self._entry(node_id), now)

    def issue_token(self, node_id: str) -> TokenDocument:
        """Create a node, or replace the key of one; return its token, which is not stored."""
        token = self._new_token()
        entry = self._tree.get(node_id)
        identity = token_identity(token)
        if entry is None:
            self._check_room()
            entry = NodeEntry(node_id, identity)
        self._keep(replace(entry, identity=identity))
        return TokenDocument(id=node_id, token=token)

    def admit_root(self, node_id: str, identity: str) -> None:
        """Create the ROOT whose process runs this registry, or give it this key.

        The process that had the node before has ended, because it had this registry open: a new
        one does not wait for its silence. A role that an operator has assigned stays.
        """
        entry = self._tree.get(node_id)
        if entry is None:
            self._check_room()
            entry = NodeEntry(node_id, identity, chosen_role=Role.ROOT)
        self._keep(new_instance(replace(entry, identity=identity)))

    def remove(self, node_id: str) -> None:
        """Remove a node; its children get another parent when they poll next."""
        if self._tree.get(node_id) is None:
            raise unknown_node(node_id)
        self._store.delete(node_id)
        self._tree.remove(node_id)
        self._reports.pop(node_id, None)
        self._conflicts.pop(node_id, None)

    def set_level(self, role: Role, given: LevelPatch) -> LevelDocument:
        """Change the topics of a level; nodes get them with their next poll."""
        before = self._levels.get(role, TopicPatterns())
        patterns = TopicPatterns(
            before.down if given.down is None else given.down,
            before.up if given.up is None else given.up,
        )
        self._store.save_level(role, patterns)
        self._levels[role] = patterns
        return LevelDocument(role=role, down=patterns.down, up=patterns.up)

    def node(self, node_id: str) -> NodeDocument:
        """Return one node."""
        if self._tree.get(node_id) is None:
            raise unknown_node(node_id)
        return self._shown(self._entry(node_id), self._clock.monotonic())

    def tree(self) -> TreeDocument:
        """Return all nodes and levels."""
        now = self._clock.monotonic()
        return TreeDocument(
            registry=self.id,
            revision=self._revision,
            nodes=tuple(
                self._shown(one, now) for one in sorted(self._tree, key=lambda one: one.id)
            ),
            levels=tuple(
                LevelDocument(role=role, down=found.down, up=found.up)
                for role in ROLES
                if (found := self._levels.get(role)) is not None
            ),
        )

    def _known(self, caller: Caller) -> str:
        if caller.identity is None:
            raise unauthorized()
        return caller.identity

    def _admitted(self, node_id: str, identity: str, caller: Caller) -> NodeEntry:
        """Return the entry of a new node with this key."""
        if not caller.has_joined:
            raise forbidden(
                f"there is no node {node_id}, and the caller has not shown the join token",
                f"Create it with `penstock registry token {node_id}`, or give the node the join "
                "token (registry.join_token_file).",
            )
        self._check_room()
        return NodeEntry(node_id, identity)

    def _check_room(self) -> None:
        if len(self._tree) >= self._nodes_max:
            raise RegistryRefusedError(
                503,
                "Full",
                f"the registry has {len(self._tree)} nodes (at most {self._nodes_max})",
                "Remove nodes that are gone: `penstock registry remove ID`.",
            )

    def _entry(self, node_id: str) -> NodeEntry:
        entry = self._tree.get(node_id)
        assert entry is not None, node_id
        return entry

    def _settle(self, entry: NodeEntry, now: float) -> TopologyDocument:
        """Give a node its parent, store the node if it has changed, and return its topology."""
        entry, reason = self._tree.settled(entry, now)
        patterns = self._levels.get(entry.role, TopicPatterns())
        parent = None if entry.parent is None else self._tree.get(entry.parent)
        content = {
            "role": entry.role.value,
            "parent": None
            if parent is None
            else {"id": parent.id, "addresses": dict(parent.addresses)},
            "down": expanded(patterns.down, entry.id, entry.labels),
            "up": expanded(patterns.up, entry.id, entry.labels),
        }
        text = json.dumps(content, sort_keys=True)
        answer = hashlib.sha256(text.encode()).hexdigest()
        if answer != entry.answer:
            entry = replace(entry, answer=answer, revision=self._revision + 1)
        self._keep(entry)
        return TopologyDocument(
            registry=self.id,
            id=entry.id,
            role=entry.role,
            parent=None
            if parent is None
            else ParentDocument(id=parent.id, addresses=dict(parent.addresses)),
            reason=reason,
            down=expanded(patterns.down, entry.id, entry.labels),
            up=expanded(patterns.up, entry.id, entry.labels),
            revision=max(entry.revision, self._start_revision),
            instance=entry.instance,
        )

    def _keep(self, entry: NodeEntry) -> None:
        """Store a node that has changed, then change the tree."""
        if entry == self._tree.get(entry.id):
            return
        revision = max(self._revision, entry.revision)
        self._store.save(entry, revision)
        self._revision = revision
        self._tree.put(entry)

    def _refused(
        self, node_id: str, instance: int, caller: Caller, why: InstanceRefusal
    ) -> RegistryRefusedError:
        """Note a conflict of instances, and return its error."""
        before = self._conflicts.get(node_id)
        is_certain = why.retry_after_seconds is None or (before is not None and before.is_certain)
        now, times = self._clock.monotonic(), 1 if before is None else before.times + 1
        conflict = Conflict(is_certain, caller.address, instance, why.reason, now, times)
        self._conflicts[node_id] = conflict
        if is_certain and (before is None or not before.is_certain):
            self._report(conflict)
        return RegistryRefusedError(
            409,
            "Another instance",
            why.reason,
            why.remedy,
            retry_after_seconds=why.retry_after_seconds,
        )

    def _note_alive(self, node_id: str) -> None:
        """Note a call of the process that has the instance: a refused one was not its restart."""
        found = self._conflicts.get(node_id)
        if found is not None and not found.is_certain:
            self._conflicts[node_id] = replace(found, is_certain=True)
            self._report(found)

    def _report(self, conflict: Conflict) -> None:
        logger.warning("refused a call from %s: %s", conflict.address or "?", conflict.reason)

    def _shown(self, entry: NodeEntry, now: float) -> NodeDocument:
        conflict = self._conflicts.get(entry.id)
        return node_document(
            entry,
            children=self._tree.children(entry.id),
            revision=max(entry.revision, self._start_revision),
            silent_seconds=self._tree.silent_seconds(entry.id, now),
            was_seen=self._tree.was_seen(entry.id),
            report=self._reports.get(entry.id),
            conflict=conflict.document(now)
            if conflict is not None and conflict.is_certain
            else None,
        )


def _granted(entry: NodeEntry, wanted: Role | None) -> Role:
    """Return the role that a node may have by asking for it; raise if an operator must assign it.

    A role that an operator has assigned wins, and the wish is kept only if it needs no operator.
    """
    if wanted is None or wanted is entry.chosen_role:
        return entry.wanted_role
    if wanted in SELF_CHOSEN:
        return wanted
    if entry.chosen_role is not None:
        return entry.wanted_role
    raise forbidden(
        f"node {entry.id} asks for the role {wanted}, which feeds other nodes",
        f"Assign it: `penstock registry token {entry.id}` if the node is new, then `penstock "
        f"registry assign {entry.id} --role {wanted}`.",
    )
