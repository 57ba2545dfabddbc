"""Verdicts of the comparison: targets met, missed, and those on which the rounds disagree."""

import pytest

from benchmarks.report import (
    BEGIN_MARK,
    END_MARK,
    Sample,
    judge,
    judge_all,
    markdown,
    put_between_marks,
)
from benchmarks.targets import TARGETS, Bound, Target
from benchmarks.variants import KAFKA_UNSYNCED, PENSTOCK_DURABLE, Variant

RATIO = Bound(1.2, is_ratio=True, at_least=True)


def target(bound: Bound | None) -> Target:
    return Target("text", "load", "mb_per_s", "MB/s", KAFKA_UNSYNCED, PENSTOCK_DURABLE, bound)


def samples(variant: Variant, *values: float) -> list[Sample]:
    return [
        Sample("load", variant, number, {"mb_per_s": value}, others_busy=0.0)
        for number, value in enumerate(values, 1)
    ]


@pytest.mark.parametrize(
    ("penstock", "verdict"),
    [((130, 140, 150), "met"), ((90, 100, 110), "MISSED"), ((110, 140, 150), "met ~")],
)
def test_a_ratio_is_judged_by_medians_and_marked_when_rounds_disagree(
    penstock: tuple[float, ...], verdict: str
) -> None:
    measured = samples(KAFKA_UNSYNCED, 100, 100, 100) + samples(PENSTOCK_DURABLE, *penstock)
    line = judge(measured, target(RATIO))
    assert line.verdict == verdict
    assert line.ratio == pytest.approx(sorted(penstock)[1] / 100)


def test_an_absolute_bound_does_not_look_at_kafka() -> None:
    bound = Bound(80, is_ratio=False, at_least=False)
    measured = samples(KAFKA_UNSYNCED, 1) + samples(PENSTOCK_DURABLE, 79)
    assert judge(measured, target(bound)).verdict == "met"
    assert judge(samples(PENSTOCK_DURABLE, 81), target(bound)).verdict == "MISSED"


def test_a_side_that_did_not_run_is_said_so() -> None:
    line = judge(samples(KAFKA_UNSYNCED, 100), target(RATIO))
    assert line.verdict == "not measured"
    assert line.penstock is None


def test_a_line_without_a_bound_is_shown_and_not_judged() -> None:
    measured = samples(KAFKA_UNSYNCED, 100) + samples(PENSTOCK_DURABLE, 50)
    line = judge(measured, target(None))
    assert line.verdict == ""
    assert line.ratio == 0.5


def test_only_what_ran_is_listed() -> None:
    measured = [Sample("fetch-1m", KAFKA_UNSYNCED, 1, {"mb_per_s": 1, "cpu_s_per_gb": 1}, 0.0)]
    listed = {line.target.workload for line in judge_all(measured)}
    assert listed == {"fetch-1m"}
    assert "fetch-1m" in {one.workload for one in TARGETS}


def test_the_readme_keeps_what_is_outside_the_marks() -> None:
    document = f"before\n{BEGIN_MARK}\nold\n{END_MARK}\nafter\n"
    line = judge(samples(KAFKA_UNSYNCED, 100), target(RATIO))
    written = put_between_marks(document, markdown([line], ["a note"]))
    assert written.startswith("before\n")
    assert written.endswith("after\n")
    assert "old" not in written
    assert "- a note" in written
    assert put_between_marks(written, "new").count("new") == 1
