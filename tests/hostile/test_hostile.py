"""Every attack against a broker (marker `chaos`).

CI takes a seeded sample at a fraction of the size, with slack for a machine that other tests share;
PENSTOCK_PROOF=1 runs every attack at full size, on the uncompiled source and on the installed
package. Random mixes of all attacks, ten minutes on each build, are in `make hostile`.
"""

import dataclasses
import os
import random

import pytest

from tests.crash.rounds import IS_PROOF, seed_of_this_run
from tests.hostile.attacker import ATTACKS
from tests.hostile.siege import Plan, besiege
from tests.hostile.verdict import Bounds, broken, figures

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1_200)]

BUILDS = ("source", "installed") if os.environ.get("PENSTOCK_BROKER_PYTHON") else ("source",)
SAMPLED_ATTACKS = 4
SAMPLED_MIX = 3
TRIES = 1 if IS_PROOF else 3
"""A bound that is missing is broken in every try. A lost record is never tried again."""
BOUNDS = Bounds() if IS_PROOF else Bounds(slack_ms=500.0)
PLAN = (
    Plan(seed=seed_of_this_run(), unloaded_seconds=30.0, seconds=15.0)
    if IS_PROOF
    else Plan(seed=seed_of_this_run(), unloaded_seconds=4.0, seconds=4.0, scale=0.25)
)


def chosen() -> tuple[str, ...]:
    """Every attack in a proof, else those that the seed draws."""
    names = list(ATTACKS)
    return tuple(
        random.Random(PLAN.seed).sample(names, len(names) if IS_PROOF else SAMPLED_ATTACKS)
    )


def judge(plan: Plan, bounds: Bounds) -> None:
    for _ in range(TRIES):
        found = besiege(plan)
        for line in figures(found):
            print(f"hostile {line}")
        problems = broken(found, bounds)
        if not problems or found.ledger["violations"]:
            break
    assert problems == [], f"PENSTOCK_SEED={plan.seed}"


@pytest.mark.parametrize("build", BUILDS)
def test_attacks_one_by_one(build: str) -> None:
    judge(dataclasses.replace(PLAN, attacks=chosen(), from_source=build == "source"), BOUNDS)


def test_a_mix_of_attacks() -> None:
    names = random.Random(PLAN.seed + 1).sample(list(ATTACKS), SAMPLED_MIX)
    judge(dataclasses.replace(PLAN, attacks=tuple(names), is_mixed=True), BOUNDS)
