"""Removed rules of queues, push, up pipes and local tables are found by the tests of their part.

CI tries one rule of each part; `tools/prove.py --only edge-rules` tries all.
"""

import pytest

from tests.edge_rules.removed_delivery_rules import RULES, finding

CHOSEN = ("pending_is_kept", "credit", "counted_gaps", "rows_with_positions")


@pytest.mark.simulate
@pytest.mark.parametrize("name", CHOSEN)
def test_a_removed_rule_is_found(name: str) -> None:
    assert finding(name) is not None, f"all tests of {RULES[name].tests} pass without {name}"
