"""Each rule of pipes and of the registry that is taken out is found by a seed."""

import pytest

from tests.edge_sim.removed_edge_guards import COVERED, GUARDS, PLANS, first_failure

SEEDS_MAX = 60


@pytest.mark.simulate
@pytest.mark.uncompiled
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", [name for name in GUARDS if name not in COVERED])
def test_a_removed_rule_is_found(name: str) -> None:
    found = first_failure(name, SEEDS_MAX)
    assert found is not None, f"none of {SEEDS_MAX} seeds finds that {name} is gone"


def test_each_plan_and_each_exception_is_of_a_known_rule() -> None:
    assert set(PLANS) | set(COVERED) <= set(GUARDS)
