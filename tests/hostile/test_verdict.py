"""The verdict reports each promise that is broken, and nothing about a siege that kept them all."""

import copy
from collections.abc import Callable

import pytest

from tests.hostile.verdict import (
    Bounds,
    Findings,
    Phase,
    broken,
    figures,
    not_measured,
    summary,
    table,
)

BOUNDS = Bounds(slack_ms=0.0)


def quiet() -> Findings:
    """A siege by one attack in which every promise was kept."""
    spread = {"count": 500, "p50_ms": 1.0, "p99_ms": 4.0, "max_ms": 9.0}
    report = {
        "phases": {"unloaded": {**spread, "p99_ms": 3.0}, "bombs": spread},
        "refused": {},
        "unexpected": [],
    }
    return Findings(
        phases={"bombs": Phase(longest_pause_ms=20.0, memory_mb=300.0, sent={"bombs": 40})},
        produce=report,
        fetch=copy.deepcopy(report),
        ledger={"acknowledged": 500, "violations": 0, "told": ""},
        metrics={"handler_failures_total": 0.0},
        stop_seconds=1.0,
    )


def long_pause(found: Findings) -> None:
    found.phases["bombs"].longest_pause_ms = 51.0


def much_memory(found: Findings) -> None:
    found.phases["bombs"].memory_mb = 1_475.0


def no_attack(found: Findings) -> None:
    found.phases["bombs"].sent["bombs"] = 0


def slow_produce(found: Findings) -> None:
    found.produce["phases"]["bombs"]["p99_ms"] = 9.1


def slow_fetch(found: Findings) -> None:
    found.fetch["phases"]["bombs"]["p99_ms"] = 9.1


def few_answers(found: Findings) -> None:
    found.fetch["phases"]["bombs"]["count"] = 49


def no_answers(found: Findings) -> None:
    del found.produce["phases"]["bombs"]


def broken_neighbour(found: Findings) -> None:
    found.fetch["unexpected"].append("AnswerLostError")


def lost_record(found: Findings) -> None:
    found.ledger.update(violations=1, told="record 7 is missing")


def nothing_produced(found: Findings) -> None:
    found.ledger["acknowledged"] = 0


def defect(found: Findings) -> None:
    found.metrics["handler_failures_total"] = 1.0


def late_stop(found: Findings) -> None:
    found.stop_seconds = 5.1


def bad_exit(found: Findings) -> None:
    found.exit_code = -9


def test_kept_promises_are_not_reported() -> None:
    assert broken(quiet(), BOUNDS) == []
    assert len(figures(quiet())) == 3


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        (long_pause, "bombs: the loop paused for 51 ms of CPU, more than 50 ms"),
        (much_memory, "bombs: memory of 1475 MB, more than 1474 MB"),
        (no_attack, "bombs: sent nothing"),
        (slow_produce, "produce, bombs: p99 of 9.1 ms, more than 9.0 ms"),
        (slow_fetch, "fetch, bombs: p99 of 9.1 ms, more than 9.0 ms"),
        (few_answers, "fetch, bombs: the neighbour was hardly served"),
        (no_answers, "produce, bombs: the neighbour was hardly served"),
        (broken_neighbour, "fetch: AnswerLostError"),
        (lost_record, "acknowledged records: record 7 is missing"),
        (nothing_produced, "the well-behaved producer had nothing acknowledged"),
        (defect, "1 requests met a defect of the broker"),
        (late_stop, "SIGTERM took 5.1 s, more than 5 s"),
        (bad_exit, "the broker ended with -9"),
    ],
)
def test_a_broken_promise_is_reported(change: Callable[[Findings], None], reported: str) -> None:
    found = quiet()
    change(found)
    (problem,) = broken(found, BOUNDS)
    assert problem.startswith(reported)


def test_an_attack_whose_requests_wait_has_sent_something() -> None:
    found = quiet()
    no_attack(found)
    found.phases["bombs"].errors["bombs"] = {"TimeoutError: timed out": 3}
    assert not broken(found, BOUNDS)


def test_a_p99_on_a_busy_host_is_reported_as_not_measured() -> None:
    found = quiet()
    slow_fetch(found)
    count = found.fetch["phases"]["bombs"]["count"]
    found.fetch["disturbed"] = {"bombs": count // 100}
    assert len(broken(found, BOUNDS)) == 1, "a hundredth may be left out"
    assert not_measured(found, BOUNDS) == []
    found.fetch["disturbed"] = {"bombs": count // 100 + 1}
    assert broken(found, BOUNDS) == []
    (text,) = not_measured(found, BOUNDS)
    assert text.startswith("fetch, bombs: the host took the processor in")
    del found.produce["phases"]["unloaded"]
    assert broken(found, BOUNDS) == []


def test_the_summary_leaves_out_what_the_host_disturbed() -> None:
    slow, busy = quiet(), quiet()
    slow_fetch(slow)
    busy.produce["disturbed"] = {"unloaded": 10_000}
    assert summary("source", [quiet(), slow, busy], BOUNDS) == (
        "summary of source: 3 sieges, longest pause 20 ms of CPU, memory at most 300 MB, SIGTERM "
        "at most 1.0 s, 1500 records acknowledged and 0 lost; 4 of 5 measured p99 at most 3 times "
        "the unloaded value, the highest 3.0 times"
    )


def test_the_table_says_which_p99_the_host_decided() -> None:
    found = quiet()
    found.fetch["disturbed"] = {"bombs": 50}
    assert table({"bombs": found}, BOUNDS) == [
        "| bombs | 20 | 4.0 (3.0) | not measured | 300 | 1.0 |"
    ]
