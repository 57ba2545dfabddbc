"""The table of a broker's cost in a test: medians, p95, and missed targets."""

import pytest

from benchmarks.testing_start import COLD, HEADINGS, markdown, misses, p95, rows


@pytest.mark.parametrize(
    ("values", "expected"), [([5.0], 5.0), ([1, 3, 2], 3), (list(range(1, 21)), 19)]
)
def test_p95_is_one_of_the_values(values: list[float], expected: float) -> None:
    assert p95(values) == expected


def test_a_line_compares_medians() -> None:
    ours = {"start": [20.0, 10.0, 90.0], COLD: [300.0]}
    lines = rows(ours, {"start": [4_000.0]})
    assert lines == [
        ("start", "20.0 (90.0)", "4,000.0 (4,000.0)", "0.005 x"),
        (COLD, "300.0 (300.0)", "", ""),
    ]
    table = markdown(lines, ["a note"]).splitlines()
    assert table[0] == f"| {' | '.join(HEADINGS)} |"
    assert table[-1] == "- a note"


def test_a_median_above_the_limit_is_a_miss() -> None:
    assert misses({"start": [10, 151, 400], "stop": [1]}) == ["start: 151 ms, at most 150 ms"]
    assert not misses({"start": [10, 20, 400], "stop": [1]})
