"""The edge from one seed: each log is its parent's, each gap is declared, no parent is flooded.

`PENSTOCK_EDGE_SITES` and `PENSTOCK_EDGE_SEED` choose another run of the large simulation.
"""

import os
import resource
import time

import pytest

from tests.edge_sim.edge_promises import check, figures, run
from tests.edge_sim.edge_world import DAY, ROOT, Plan

SITES = int(os.environ.get("PENSTOCK_EDGE_SITES", "1000"))
SEED = int(os.environ.get("PENSTOCK_EDGE_SEED", "1"))


@pytest.mark.parametrize("is_verifying", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_a_few_sites(seed: int, is_verifying: bool) -> None:
    check(run(Plan(25, seed, write_seconds=DAY / 6, is_verifying=is_verifying)))


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
    begun = time.process_time()
    world = run(Plan(sites=SITES, seed=SEED))
    check(world)
    found = figures(world)
    for fault in (
        *("gaps", "cuts", "lost offsets", "kill at a step", "late answer", "append without room"),
        *("clock jump", "deleted mirror", "cloned disk", "nonsense_refused", "instances_refused"),
    ):
        assert found[fault], f"the run has no {fault}"
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"\nedge of {SITES} sites, seed {SEED}: {found['kill']} kills, "
        f"{found['cuts']} offsets cut, "
        f"{found['gaps']} gaps declared, {found['deleted mirror']} mirrors of a recreated topic, "
        f"{found['nonsense_refused']} answers of the registry refused; all logs equal; at most "
        f"{found['root_calls_a_second']} connections a second at the root, "
        f"{found['calls_a_second']} at any parent, {len(world.children(ROOT))} children of the root"
        f"; {time.process_time() - begun:.0f} s of CPU, {megabytes:.0f} MB"
    )
