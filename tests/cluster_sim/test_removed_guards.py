"""Each rule of the protocol that is taken out is found by a seed: the simulator is not blind."""

import inspect

import pytest

from tests.cluster_sim.fault_profiles import PROFILES, Plan
from tests.cluster_sim.invariants import ViolationError
from tests.cluster_sim.loop import UnhandledError
from tests.cluster_sim.removed_guards import (
    COVERED,
    GUARDS,
    PROFILES_OF,
    first_failure,
    without,
)
from tests.cluster_sim.run import run_seed

SEEDS_MAX = 200


@pytest.mark.simulate
@pytest.mark.uncompiled
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", [name for name in GUARDS if name not in COVERED])
def test_a_removed_rule_is_found(name: str) -> None:
    found = first_failure(name, SEEDS_MAX)
    assert found is not None, f"none of {SEEDS_MAX} seeds finds that {name} is gone"


def test_each_rule_has_a_known_profile() -> None:
    assert set(PROFILES_OF) <= set(GUARDS)
    assert set(PROFILES_OF.values()) <= set(PROFILES)
    assert set(COVERED) <= set(GUARDS)


@pytest.mark.uncompiled
@pytest.mark.parametrize("name", GUARDS)
def test_a_replacement_is_called_as_the_rule_was(name: str) -> None:
    for place, attribute, replacement in GUARDS[name]():
        parameters = inspect.signature(getattr(place, attribute)).parameters.values()
        named = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
        inspect.signature(replacement).bind(
            *range(len(parameters) - len(named)), **dict.fromkeys(named)
        )


@pytest.mark.uncompiled
def test_a_follower_that_reports_unsynced_records_is_found() -> None:
    with without("report_synced"):
        trace = run_seed(1, Plan(seconds=4, has_faults=False))
    error = trace.error.__cause__ if isinstance(trace.error, UnhandledError) else trace.error
    assert isinstance(error, ViolationError), trace.text()
    assert "(3)" in str(error)
