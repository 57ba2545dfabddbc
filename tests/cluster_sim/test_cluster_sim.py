"""Whole clusters from seeds: every promise is kept under faults, and a seed has one trace.

PENSTOCK_SIM_SEEDS sets the number of seeds, PENSTOCK_SIM_FIRST the first one.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster_sim.run import run_seed
from tests.cluster_sim.world import Plan

ROOT = Path(__file__).resolve().parents[2]
FIRST = int(os.environ.get("PENSTOCK_SIM_FIRST", "1"))
SEEDS = int(os.environ.get("PENSTOCK_SIM_SEEDS", "25"))
SHORT = Plan(seconds=2)


def test_without_faults_everything_is_acknowledged_and_read() -> None:
    trace = run_seed(1, Plan(seconds=6, has_faults=False))
    assert trace.error is None, trace.text()
    assert trace.figures["operations"] > 100


def test_a_seed_has_one_trace() -> None:
    first, again, other = (run_seed(seed, SHORT) for seed in (5, 5, 6))
    assert first.error is None, first.text()
    assert first.hash == again.hash
    assert first.events == again.events
    assert first.hash != other.hash


@pytest.mark.simulate
def test_a_seed_has_one_trace_in_every_process() -> None:
    """Another process has other hashes of text: no set of names may decide an order."""
    lines = {
        subprocess.run(
            [sys.executable, "-m", "tests.cluster_sim.run", "--hash", "7", "9"],
            env={**os.environ, "PYTHONHASHSEED": str(number), "PYTHONPATH": "src:."},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for number in (1, 2, 3)
    }
    assert len(lines) == 1, lines


@pytest.mark.simulate
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_every_promise_is_kept(seed: int) -> None:
    trace = run_seed(seed)
    assert trace.error is None, trace.text()
