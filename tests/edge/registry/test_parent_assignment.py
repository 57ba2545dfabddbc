"""Parents: levels, regions, limits, stability; random histories keep every rule."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.edge.registry.node_entry import NodeEntry
from penstock.edge.registry.node_roles import LEVELS, ROLES, Role, may_feed
from penstock.edge.registry.parent_assignment import CHILDREN_MAX, GONE_SECONDS, Tree

ADDRESSES = {"kafka": "host:9092"}


def entry(node_id: str, role: Role, region: str | None = None) -> NodeEntry:
    labels = {} if region is None else {"region": region}
    return NodeEntry(node_id, "token:x", chosen_role=role, addresses=ADDRESSES, labels=labels)


def settle(tree: Tree, node_id: str, now: float = 0.0) -> str | None:
    found = tree.get(node_id)
    assert found is not None
    settled, _ = tree.settled(found, now)
    tree.put(settled)
    tree.validate()
    return settled.parent


def test_a_root_has_no_parent() -> None:
    tree = Tree([entry("root", Role.ROOT), entry("other", Role.ROOT)])
    assert settle(tree, "root") is None


def test_the_parent_is_one_level_up() -> None:
    levels = [entry(role.value.lower(), role) for role in ROLES]
    tree = Tree(levels)
    assert [settle(tree, one.id) for one in levels] == [None, "root", "l2", "l3", "pos"]


def test_a_level_without_nodes_is_skipped() -> None:
    tree = Tree([entry("root", Role.ROOT), entry("store", Role.POS)])
    assert settle(tree, "store") == "root"


def test_the_region_counts_and_nodes_without_a_region_serve_all() -> None:
    tree = Tree(
        [
            entry("l2-any", Role.L2),
            entry("l2-north", Role.L2, "north"),
            entry("l2-south", Role.L2, "south"),
            entry("store-north", Role.L3, "north"),
            entry("store-west", Role.L3, "west"),
        ]
    )
    assert settle(tree, "store-north") == "l2-north"
    assert settle(tree, "store-west") == "l2-any"


def test_a_node_of_another_region_is_never_the_parent() -> None:
    tree = Tree([entry("l2-south", Role.L2, "south"), entry("store", Role.L3, "north")])
    found = tree.get("store")
    assert found is not None
    settled, reason = tree.settled(found, 0.0)
    assert settled.parent is None
    assert reason == "no node above L3 in the region north has registered"


def test_the_fewest_children_and_the_limit() -> None:
    tree = Tree([entry("a", Role.ROOT), entry("b", Role.ROOT)], children_max=2)
    for number in range(5):
        tree.put(entry(f"l2-{number}", Role.L2))
    parents = [settle(tree, f"l2-{number}") for number in range(5)]
    assert parents == ["a", "b", "a", "b", None]
    found = tree.get("l2-4")
    assert found is not None
    assert tree.settled(found, 0.0)[1] == "all 2 nodes with the role ROOT have 2 children"


def test_a_parent_is_kept_until_it_has_been_gone_for_five_minutes() -> None:
    tree = Tree([entry("a", Role.ROOT), entry("b", Role.ROOT), entry("store", Role.POS)])
    tree.see("a", 100.0)
    assert settle(tree, "store", 100.0) == "a"
    late = 100.0 + GONE_SECONDS
    tree.see("b", late)
    assert settle(tree, "store", late - 0.1) == "a"
    assert settle(tree, "store", late) == "b"
    tree.see("a", late)
    assert settle(tree, "store", late) == "b", "no change back"


def test_a_gone_parent_is_kept_if_there_is_no_other() -> None:
    tree = Tree([entry("a", Role.ROOT), entry("store", Role.POS)])
    assert settle(tree, "store") == "a"
    assert settle(tree, "store", 10 * GONE_SECONDS) == "a"


def test_after_a_start_every_node_counts_as_seen() -> None:
    nodes = [entry("a", Role.ROOT), entry("b", Role.ROOT), entry("store", Role.POS)]
    nodes[2] = replace(nodes[2], parent="a")
    tree = Tree(nodes, now_seconds=1e6)
    assert settle(tree, "store", 1e6 + GONE_SECONDS - 1) == "a"


def test_the_choice_of_an_operator_wins_while_it_is_valid() -> None:
    tree = Tree([entry("a", Role.ROOT), entry("b", Role.L2), entry("store", Role.POS)])
    store = tree.get("store")
    assert store is not None
    tree.put(replace(store, pinned_parent="a"))
    assert settle(tree, "store") == "a"
    assert settle(tree, "store", 10 * GONE_SECONDS) == "a", "also when it is gone"
    tree.remove("a")
    assert settle(tree, "store") == "b"


@pytest.mark.parametrize(
    ("parent", "words"),
    [
        ("store", "cannot be its own parent"),
        ("nobody", "there is no node nobody"),
        ("local", "which is not above POS"),
        ("new", "has not registered itself yet"),
    ],
)
def test_parents_that_an_operator_cannot_choose(parent: str, words: str) -> None:
    tree = Tree(
        [
            entry("store", Role.POS),
            entry("local", Role.LOCAL),
            replace(entry("new", Role.ROOT), addresses={}),
        ]
    )
    store = tree.get("store")
    assert store is not None
    assert words in (tree.parent_problem(store, parent) or "")


def test_a_full_parent_cannot_be_chosen() -> None:
    tree = Tree([entry("root", Role.ROOT)])
    for number in range(CHILDREN_MAX):
        tree.put(replace(entry(f"s{number}", Role.POS), parent="root"))
    new = entry("new", Role.POS)
    assert "200 children (at most 200)" in (tree.parent_problem(new, "root") or "")


@given(st.sampled_from(ROLES), st.sampled_from(ROLES))
def test_a_level_never_feeds_itself_or_a_higher_one(parent: Role, child: Role) -> None:
    assert may_feed(parent, child) == (LEVELS[parent] < LEVELS[child])


REGIONS = st.sampled_from([None, "north", "south"])
NAMES = st.integers(0, 30).map("n{}".format)


class TreeMachine(RuleBasedStateMachine):
    """Nodes come, poll, fall silent, change their role and go."""

    LIMIT = 3

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.tree = Tree(children_max=self.LIMIT)

    @rule(name=NAMES, role=st.sampled_from(ROLES), region=REGIONS)
    def register(self, name: str, role: Role, region: str | None) -> None:
        before = self.tree.get(name)
        new = entry(name, role, region)
        if before is not None:
            new = replace(new, parent=before.parent)
        self._poll(new)

    @rule(name=NAMES)
    def poll(self, name: str) -> None:
        found = self.tree.get(name)
        if found is not None:
            self._poll(found)

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        self.tree.remove(name)

    @rule(seconds=st.sampled_from([1.0, 100.0, GONE_SECONDS]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    def _poll(self, before: NodeEntry) -> None:
        after, reason = self.tree.settled(before, self.now)
        again, _ = self.tree.settled(after, self.now)
        assert again == after, "a second look changes nothing"
        kept = before.parent
        if kept is not None and after.parent != kept:
            self._must_have_left(after, kept)
        assert bool(reason) == (after.parent is None and after.role is not Role.ROOT)
        self.tree.put(after)
        self.tree.see(after.id, self.now)
        if after.parent is not None and after.parent != kept:
            assert self.tree.children(after.parent) <= self.LIMIT

    def _must_have_left(self, child: NodeEntry, kept: str) -> None:
        parent = self.tree.get(kept)
        assert (
            parent is None
            or not may_feed(parent.role, child.role)
            or parent.region not in (None, child.region)
            or self.tree.silent_seconds(kept, self.now) >= GONE_SECONDS
        ), "a good parent is kept"

    @invariant()
    def no_cycles(self) -> None:
        self.tree.validate()
        for one in self.tree:
            self._follow(one)

    def _follow(self, below: NodeEntry) -> None:
        seen = {below.id}
        while below.parent is not None and (above := self.tree.get(below.parent)) is not None:
            if not may_feed(above.role, below.role):
                break  # a role has changed: the child moves when it polls
            assert above.id not in seen
            seen.add(above.id)
            below = above


TestTree = TreeMachine.TestCase
