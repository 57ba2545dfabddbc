"""Regular expressions over topic names have RE2's syntax and bounds."""

import subprocess
import sys

import pytest

from penstock.coordinator.groups import regular_expressions
from penstock.coordinator.groups.refused import RefusedError
from penstock.protocol.error_codes import ErrorCode

NAMES = ["orders", "orders-1", "old-orders", "invoices"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("orders", {"orders"}),
        ("orders.*", {"orders", "orders-1"}),
        (".*", set(NAMES)),
        (r"(?i)ORDERS", {"orders"}),
        (r"orders-\d", {"orders-1"}),
        ("o|orders", {"orders"}),
        ("nothing", set()),
    ],
)
def test_the_whole_name_must_match(expression: str, expected: set[str]) -> None:
    assert regular_expressions.matching(expression, NAMES) == expected


@pytest.mark.parametrize(
    "expression", ["(", "[", "*", r"(a)\1", "(?=a)", "(?<!a)b", "((a{100}){100}){100}", "a" * 5_000]
)
def test_what_re2_does_not_take_is_refused(expression: str) -> None:
    with pytest.raises(RefusedError) as refused:
        regular_expressions.check(expression)
    assert refused.value.error_code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "is not a valid regular expression" in refused.value.message


def test_an_expression_that_backtracks_elsewhere_is_quick() -> None:
    assert regular_expressions.matching("(a+)+b", ["a" * 249]) == frozenset()


def test_the_library_is_not_loaded_before_it_is_needed() -> None:
    code = "import sys; import penstock.coordinator.groups.shard; sys.exit('re2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
