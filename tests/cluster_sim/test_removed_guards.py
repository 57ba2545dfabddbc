"""Each rule of the protocol that is taken out is found by a seed: the simulator is not blind."""

import pytest

from tests.cluster_sim.invariants import ViolationError
from tests.cluster_sim.loop import UnhandledError
from tests.cluster_sim.removed_guards import GUARDS, first_failure, without
from tests.cluster_sim.run import run_seed
from tests.cluster_sim.world import Plan

SEEDS_MAX = 200

RARE = {
    "smallest_isr": "a change of the ISR in doubt, and a loss at the same moment",
    "elr_emptied_by_min_isr": "a change of the setting below min.insync.replicas",
    "own_answer": "1 of 350 seeds in the model",
    "epoch_of_fetches": "the comparison of histories covers it, as in the model",
}
"""Rules that this number of seeds does not find yet; the nightly runs use more."""


FIRST = {"nodes": 110}
"""Where the search begins, for rules that few seeds find."""


@pytest.mark.simulate
@pytest.mark.uncompiled
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", [name for name in GUARDS if name not in RARE])
def test_a_removed_rule_is_found(name: str) -> None:
    found = first_failure(name, SEEDS_MAX, first=FIRST.get(name, 1))
    assert found is not None, f"none of {SEEDS_MAX} seeds finds that {name} is gone"


@pytest.mark.uncompiled
def test_a_follower_that_reports_unsynced_records_is_found() -> None:
    with without("report_synced"):
        trace = run_seed(1, Plan(seconds=4, has_faults=False))
    error = trace.error.__cause__ if isinstance(trace.error, UnhandledError) else trace.error
    assert isinstance(error, ViolationError), trace.text()
    assert "(3)" in str(error)
