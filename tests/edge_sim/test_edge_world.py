"""The edge from one seed: each log is its parent's, each gap is declared, no parent is flooded.

`PENSTOCK_EDGE_SITES` and `PENSTOCK_EDGE_SEED` choose another run of the large simulation.
"""

import os
from collections import Counter

import pytest

from penstock.edge.registry.parent_assignment import CHILDREN_MAX
from tests.edge_sim.edge_world import DAY, ROOT, EdgeWorld, Plan
from tests.edge_sim.site_logs import OFFSETS

SITES = int(os.environ.get("PENSTOCK_EDGE_SITES", "1000"))
SEED = int(os.environ.get("PENSTOCK_EDGE_SEED", "1"))


def run(plan: Plan) -> EdgeWorld:
    world = EdgeWorld(plan)
    world.run()
    return world


def check_logs(world: EdgeWorld) -> None:
    root = world.nodes[ROOT].log
    for node in world.nodes.values():
        first, last = node.log.start_offset // OFFSETS, node.log.end_offset // OFFSETS
        assert node.log.batches == world.history[first:last], f"{node.id} is not its parent's log"
        assert node.log.end_offset == root.end_offset, f"{node.id} is behind"


def check_gaps(world: EdgeWorld) -> None:
    for node in world.nodes.values():
        declared = node.gap_offsets + node.pipe.gap_records
        assert declared == world.jumped_offsets[node.id], f"{node.id} has a silent gap"


def check_connections(world: EdgeWorld) -> None:
    assert max(world.children_most.values()) <= CHILDREN_MAX
    for parent, calls in world.calls.items():
        children = world.children_most[parent]
        most = max(calls.values())
        assert most <= 10 + 0.25 * children, f"{most} of {children} children came in one second"


def faults(world: EdgeWorld) -> Counter[str]:
    nodes = world.nodes.values()
    return Counter(
        gaps=sum(one.gaps + one.pipe.gaps for one in nodes),
        cuts=sum(one.cut_offsets + one.pipe.cut_records for one in nodes),
        lost=world.lost_offsets,
        moved=len(world.children_most) - 1,
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_few_sites(seed: int) -> None:
    world = run(Plan(sites=25, seed=seed, write_seconds=4 * 3_600))
    check_logs(world)
    check_gaps(world)
    check_connections(world)


def test_the_same_seed_is_the_same_run() -> None:
    plan = Plan(sites=12, seed=9, write_seconds=DAY / 4)
    first, second = run(plan), run(plan)
    assert first.calls == second.calls
    assert [one.log.batches for one in first.nodes.values()] == [
        one.log.batches for one in second.nodes.values()
    ]


@pytest.mark.simulate
@pytest.mark.timeout(3_600)
def test_many_sites() -> None:
    world = run(Plan(sites=SITES, seed=SEED))
    check_logs(world)
    check_gaps(world)
    check_connections(world)
    found = faults(world)
    assert found["gaps"], "the plan has sites that were away for too long"
    assert found["cuts"], "the plan has a root that was restored from a backup"
    assert found["lost"], "the plan has kills"


@pytest.mark.simulate
def test_without_jitter_a_parent_is_flooded() -> None:
    """The guard bites: the bound on connections fails without the random pauses."""
    world = run(Plan(sites=300, seed=SEED, is_jittered=False, write_seconds=DAY / 4))
    with pytest.raises(AssertionError, match="children came in one second"):
        check_connections(world)
