"""Histories of a simulated log: a correct one has no anomaly, a faulty one is found out."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checker.check import Mode, Report, check
from tests.checker.simulation import FAULTS, Simulation

STEPS = 400
NEEDS_GROUP = {"lose-position", "no-fencing", "keep-aborted-positions"}
NEEDS_TRANSACTIONS = {
    "show-aborted",
    "ignore-last-stable-offset",
    "tear-commit",
    "no-fencing",
    "keep-aborted-positions",
}
SEEDS_FOR_EACH_FAULT = 12


def simulated(
    seed: int, fault: str | None, *, in_group: bool, in_transactions: bool
) -> tuple[Report, int]:
    simulation = Simulation(seed, fault, in_group=in_group, in_transactions=in_transactions)
    entries = simulation.run(STEPS)
    return check(entries, Mode(with_subscribe=in_group)), simulation.log.fired


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), in_group=st.booleans(), in_transactions=st.booleans())
def test_a_correct_log_has_no_anomaly(seed: int, in_group: bool, in_transactions: bool) -> None:
    report, _ = simulated(seed, None, in_group=in_group, in_transactions=in_transactions)
    assert report.is_valid, report.text()
    assert report.figures.values_read > 0


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str) -> None:
    missed = []
    fired_in_all = 0
    for seed in range(SEEDS_FOR_EACH_FAULT):
        report, fired = simulated(
            seed, fault, in_group=fault in NEEDS_GROUP, in_transactions=fault in NEEDS_TRANSACTIONS
        )
        fired_in_all += fired
        if fired and not FAULTS[fault] & set(report.forbidden):
            missed.append(seed)
    assert fired_in_all
    assert not missed, f"{fault} was not found with the seeds {missed}"
