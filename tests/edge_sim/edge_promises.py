"""The promises at the end of a run, and its figures."""

from collections import Counter

from penstock.edge.registry.parent_assignment import CHILDREN_MAX
from tests.edge_sim.edge_faults import plan_faults
from tests.edge_sim.edge_world import ROOT, EdgeWorld, Plan
from tests.edge_sim.site_logs import OFFSETS

UNPROVEN_MAX = 0.02
"""Sites that may have records which their parent had deleted before they could be compared."""


def run(plan: Plan) -> EdgeWorld:
    """Run a world with all faults."""
    world = EdgeWorld(plan)
    plan_faults(world)
    world.run()
    return world


def check(world: EdgeWorld) -> None:
    """Assert all promises."""
    check_logs(world)
    check_gaps(world)
    check_instances(world)
    check_topologies(world)
    check_connections(world)


def check_logs(world: EdgeWorld) -> None:
    """Each log is a part of the history of its topic, and has its end."""
    root, unproven = world.nodes[ROOT].log, 0
    for node in world.nodes.values():
        log = node.log
        history = world.histories[log.topic_id]
        first, last = log.start_offset // OFFSETS, log.end_offset // OFFSETS
        if log.batches != history[first:last]:
            proven = max(node.unproven_end // OFFSETS, first)
            unproven += 1
            assert log.batches[proven - first :] == history[proven:last], (
                f"{node.id} is not its parent's log"
            )
        assert log.topic_id == root.topic_id, f"{node.id} has a deleted topic"
        assert log.end_offset == root.end_offset, f"{node.id} is behind"
    assert unproven <= max(1, UNPROVEN_MAX * len(world.nodes)), f"{unproven} logs are not proven"


def check_gaps(world: EdgeWorld) -> None:
    """Each offset that a site will never have was declared; a kill declares it twice."""
    for node in world.nodes.values():
        declared = node.gap_offsets + node.pipe.gap_records
        assert declared >= world.jumped_offsets[node.id], f"{node.id} has a silent gap"


def check_instances(world: EdgeWorld) -> None:
    """One of two machines with one identity is refused."""
    for name in [name for name in world.nodes if name.endswith("~2")]:
        first, second = (world.nodes[one].place for one in (name.partition("~")[0], name))
        assert first.is_refused != second.is_refused, f"{name}: both machines are one node"
        entry = world.registry.tree.get(first.id)
        assert entry is not None
        accepted = second if first.is_refused else first
        assert entry.instance == accepted.instance, f"{name}: a wrong instance is accepted"


def check_topologies(world: EdgeWorld) -> None:
    """Each node that the registry accepts follows its last answer."""
    for node in world.nodes.values():
        entry, last = world.registry.tree.get(node.place.id), node.place.follower.last
        assert entry is not None
        if not node.place.is_refused and node.id != ROOT:
            assert last is not None, f"{node.id} has no topology"
            assert last.revision == entry.revision, f"{node.id} does not follow the registry"
            assert node.parent == entry.parent, f"{node.id} has another parent"


def check_connections(world: EdgeWorld) -> None:
    """No parent has more children than allowed, nor many connections in one second."""
    most_children = world.registry.children_most
    most = max(most_children.values())
    assert most <= CHILDREN_MAX, f"a parent has {most} children"
    for parent, calls in world.calls.items():
        children = most_children[parent]
        for second, calls_then in calls.items():
            # A parent that cuts its log sends all children away at once, and they come once.
            was_cut = any(second - ago in world.cut_at[parent] for ago in range(3))
            bound = 10 + (children if was_cut else 0.25 * children)
            assert calls_then <= bound, f"{calls_then} of {children} children came in one second"


def figures(world: EdgeWorld) -> Counter[str]:
    """Return how often each fault met a site."""
    nodes = world.nodes.values()
    found = Counter(
        gaps=sum(one.gaps + one.pipe.gaps for one in nodes),
        cuts=sum(one.cut_offsets + one.pipe.cut_records for one in nodes),
        unproven=sum(1 for one in nodes if one.unproven_end > one.log.start_offset),
        root_calls_a_second=max(world.calls[ROOT].values()),
        calls_a_second=max(max(calls.values()) for calls in world.calls.values()),
        nonsense_refused=sum(world.registry.refused.values()) - world.registry.refused["instance"],
        instances_refused=world.registry.refused["instance"],
    )
    return found + world.seen
