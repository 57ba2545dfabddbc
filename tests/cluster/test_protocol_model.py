"""The model of replication keeps its promises, and each rule that is removed from it is missed.

`PENSTOCK_PROTOCOL_SEEDS` sets the number of seeds: without it, fast tests run 10 of 1,000 steps,
and the search for removed rules (marker `model`) has 100.
"""

import os
from collections import Counter

import pytest

from tests.cluster.protocol_model import Model, Rule, ViolationError

SEEDS = int(os.environ.get("PENSTOCK_PROTOCOL_SEEDS", "10"))
IS_LONG = "PENSTOCK_PROTOCOL_SEEDS" in os.environ
STEPS = 3_000 if IS_LONG else 1_000
SEARCHED_SEEDS = SEEDS if IS_LONG else 100
FIRST_SEED: dict[Rule, int] = {
    Rule.REPORT_SYNCED: 0,
    Rule.NODES: 0,
    Rule.CUT_BY_EPOCH: 0,
    Rule.FREEZE: 0,
    Rule.SIZE_MIN: 1,
    Rule.ELR_EMPTIED: 1,
    Rule.EPOCH_START: 20,
    Rule.ELR_EMPTIED_BY_MIN: 1,
    Rule.MAXIMAL_ISR: 7,
    Rule.RESTART_RAISES_EPOCH: 327,
    Rule.OWN_ANSWER: 2_660,
}
"""The first seed whose 3,000 steps miss the rule."""


@pytest.mark.timeout(900)
def test_the_protocol_keeps_its_promises() -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        model = Model(seed)
        try:
            model.run(STEPS)
        except ViolationError as error:
            raise AssertionError(f"seed {seed}, {STEPS} steps: {error}") from error
        counts += model.counts
    # The faults happened.
    for kind in ("crash", "wipe", "election", "expire", "isr change", "isr change refused"):
        assert counts[kind] > 0, counts
    assert counts["acknowledged"] > 5 * SEEDS


def test_a_seed_has_one_history() -> None:
    first, second = Model(7), Model(7)
    for model in (first, second):
        model.run(500)
    assert first.store.history == second.store.history
    assert first.acknowledged == second.acknowledged


@pytest.mark.parametrize("rule", Rule)
def test_a_removed_rule_is_missed(rule: Rule) -> None:
    seed = FIRST_SEED[rule]
    with pytest.raises(ViolationError):
        Model(seed, rule).run(3_000)
    Model(seed).run(3_000)


@pytest.mark.timeout(900)
@pytest.mark.model
@pytest.mark.parametrize("rule", Rule)
def test_the_first_seeds_of_the_table(rule: Rule) -> None:
    def is_missed(seed: int) -> bool:
        try:
            Model(seed, rule).run(3_000)
        except ViolationError:
            return True
        return False

    found = next((seed for seed in range(SEARCHED_SEEDS) if is_missed(seed)), None)
    assert found == (FIRST_SEED[rule] if FIRST_SEED[rule] < SEARCHED_SEEDS else None)
