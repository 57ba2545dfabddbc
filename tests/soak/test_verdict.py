"""The verdict of a soak: each broken promise is reported, and a good run has none."""

import dataclasses
from collections.abc import Callable

import pytest

from tests.soak.verdict import Bounds, Findings, broken, figures, low_points, slope

BOUNDS = Bounds(memory_mb_per_hour=30.0, memory_mb=400.0, times_slower=2.0, slack_ms=0.0)


def phases(loaded_ms: float) -> dict[str, dict[str, float]]:
    return {"unloaded": {"p99_ms": 1.0}, "loaded": {"p99_ms": loaded_ms}}


def good() -> Findings:
    """A run that kept every promise."""
    seen = {
        "refused": 7,
        "unread_answers": 2,
        "unfinished_request": 3,
        "frame_length": 4,
        "malformed": 5,
        "unsupported_api": 6,
        "MESSAGE_TOO_LARGE": 8,
        "KAFKA_STORAGE_ERROR": 9,
    }
    return Findings(
        minutes=30.0,
        rss_samples=[(float(second), 80.0 + second % 7) for second in range(100, 1_000)],
        metrics={
            'connections_refused_total{reason="all"}': 3.0,
            'connections_refused_total{reason="address"}': 4.0,
            'connections_timed_out_total{reason="unread_answers"}': 2.0,
            'connections_timed_out_total{reason="unfinished_request"}': 3.0,
            'connections_timed_out_total{reason="idle"}': 0.0,
            'protocol_errors_total{reason="frame_length"}': 4.0,
            'protocol_errors_total{reason="malformed"}': 5.0,
            'protocol_errors_total{reason="unsupported_api"}': 6.0,
            'produce_refused_batches_total{error="MESSAGE_TOO_LARGE"}': 8.0,
            'produce_refused_batches_total{error="KAFKA_STORAGE_ERROR"}': 10.0,
            'reads_paused_total{reason="unfinished_bytes"}': 1.0,
            "config_reloads_applied_total": 29.0,
            "handler_failures_total": 0.0,
        },
        producer={
            "phases": phases(1.9),
            "refused": {"KAFKA_STORAGE_ERROR": 1},
            "unexpected": [],
        },
        reader={"phases": phases(1.5), "refused": {}, "unexpected": []},
        ledger={"acknowledged": 9, "violations": 0, "told": ""},
        real={
            "totals": "5 records acknowledged",
            "unsettled": 0,
            "given_up": [],
            "violations": 0,
            "told": "",
            "seen": 14,
            "unseen": 0,
            "not_shown": {"classic": 0, "consumer": 0},
            "transactions_committed": 2,
            "transactions_aborted": 1,
            "moves_wrong": 0,
            "errors": {},
            "unexpected": [],
        },
        abuse={"seen": seen, "done": {}, "unexpected": []},
        full_refusals=[5, 5],
        rewrites=29,
    )


def test_a_good_run_has_nothing_broken() -> None:
    assert broken(good(), BOUNDS) == []
    line = figures(good())
    assert line.startswith("soak of 30 minutes: 9 records")
    assert "45 things refused or dropped" in line
    assert "29 changes of settings (29 applied)" in line


FAULTS: dict[str, Callable[[Findings], object]] = {
    "lost": lambda found: found.ledger.update(violations=1, told="lost: one"),
    "librdkafka: lost": lambda found: found.real.update(violations=1, told="lost: one"),
    "gave up": lambda found: found.real.update(given_up=["one"]),
    "not shown": lambda found: found.real.update(not_shown={"classic": 1}),
    "consumers saw 13 records and not 1": lambda found: found.real.update(seen=13, unseen=1),
    "consumers saw 0": lambda found: found.real.update(seen=0),
    "transactions": lambda found: found.real.update(moves_wrong=1),
    "did not run": lambda found: found.real.update(transactions_committed=0),
    "refused: clients saw 8": lambda found: found.abuse["seen"].update(refused=8),
    "malformed: never happened": lambda found: (
        found.abuse["seen"].update(malformed=0),
        found.metrics.pop('protocol_errors_total{reason="malformed"}'),
    ),
    "idle: clients saw 0": lambda found: found.metrics.update(
        {'connections_timed_out_total{reason="idle"}': 1.0}
    ),
    "had to wait": lambda found: found.metrics.pop('reads_paused_total{reason="unfinished_bytes"}'),
    "no such metric": lambda found: found.metrics.pop("handler_failures_total"),
    "a defect": lambda found: found.metrics.update({"handler_failures_total": 1.0}),
    "refuse twice": lambda found: found.full_refusals.pop(),
    "28 reloads": lambda found: found.metrics.update({"config_reloads_applied_total": 28.0}),
    "produce: p99": lambda found: found.producer.update(phases=phases(2.1)),
    "produce: no request was answered without load": lambda found: found.producer["phases"].pop(
        "unloaded"
    ),
    "fetch: no request was answered under load": lambda found: found.reader["phases"].pop("loaded"),
    "fetch: p99": lambda found: found.reader.update(phases=phases(2.1)),
    "abuse: ['odd']": lambda found: found.abuse.update(unexpected=["odd"]),
    "MB/h": lambda found: found.rss_samples.extend([(2_000.0, 120.0), (2_100.0, 130.0)]),
    "500 MB": lambda found: found.rss_samples.append((100.5, 500.0)),
}


@pytest.mark.parametrize("told", FAULTS)
def test_each_broken_promise_is_told(told: str) -> None:
    found = good()
    FAULTS[told](found)
    problems = broken(found, BOUNDS)
    assert len(problems) == 1, problems
    assert told in problems[0]


def test_an_end_that_is_not_clean_is_told() -> None:
    assert broken(dataclasses.replace(good(), exit_code=-9), BOUNDS) == ["the broker ended with -9"]


def test_a_real_client_that_was_turned_away_explains_a_difference() -> None:
    found = good()
    found.metrics['connections_refused_total{reason="all"}'] += 6
    assert broken(found, BOUNDS)
    found.real["errors"]["_ALL_BROKERS_DOWN"] = 1
    assert broken(found, BOUNDS) == []


def test_the_slope_is_that_of_the_low_points() -> None:
    assert slope([(0.0, 5.0), (10.0, 6.0), (20.0, 7.0)]) == pytest.approx(0.1)
    assert slope([(3.0, 5.0)]) == 0.0
    waves = [(0.0, 50.0), (5.0, 90.0), (21.0, 95.0), (30.0, 51.0), (41.0, 52.0)]
    assert low_points(waves) == [(0.0, 50.0), (30.0, 51.0), (41.0, 52.0)]
