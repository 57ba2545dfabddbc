"""Each bound removed from the broker makes an attack succeed (marker `chaos`).

A short siege of a broker that `unguarded` has changed: the verdict must have the sentence that the
bound prevents. Pauses are CPU time, so a busy machine changes nothing. CI removes one of the
bounds; PENSTOCK_PROOF=1 removes each in turn. `test_hostile` is the same with all of them.
"""

from typing import Final

import pytest

from tests.crash.rounds import IS_PROOF
from tests.hostile.siege import Plan, besiege
from tests.hostile.verdict import Bounds, broken

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

ATTACKS: Final = {
    "batches-on-loop": "bombs",
    "endless-turns": "wide-produce",
    "decoding-on-loop": "wide-fetch",
    "encoding-on-loop": "wide-metadata",
    "no-slices": "wide-admin",
    "whole-commits": "wide-commits",
    "full-collections": "wide-admin",
}
"""The attack that each bound holds off."""
CHOSEN: Final = tuple(ATTACKS) if IS_PROOF else ("encoding-on-loop",)
SECONDS: Final = 12.0 if IS_PROOF else 4.0


@pytest.mark.parametrize("bound", CHOSEN)
def test_without_the_bound_the_attack_succeeds(bound: str) -> None:
    attack = ATTACKS[bound]
    plan = Plan(attacks=(attack,), seconds=SECONDS, unloaded_seconds=2.0, without=bound)
    problems = broken(besiege(plan), Bounds())
    told = [problem for problem in problems if problem.startswith(f"{attack}: the loop paused")]
    assert told, problems
    print(f"guard {bound} (hostile): {told[0]}")
