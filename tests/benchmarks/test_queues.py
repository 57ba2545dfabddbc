"""The output of ShareConsumerPerformance becomes a rate without the start of the consumers."""

import pytest

from benchmarks.queues import parse, rate_of, read_progress, targets

PRINTED = """\
start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms
2026-11-18 12:42:23:171, 2026-11-18 12:42:24:000, 0.0000, 0.0000, 0.0000, 0, 829@1
2026-11-18 12:42:23:171, 2026-11-18 12:42:25:000, 0.9451, 6.2526, 6556.2914, 1000, 1829@2
2026-11-18 12:42:25:000, 2026-11-18 12:42:26:500, 49.9086, 34.3323, 36000.0000, 52333, 110@2
2026-11-18 12:42:22:891, 2026-11-18 12:42:27:000, 57.2205, 15.6426, 16402.4057, 61000, 3658
""".replace("@", " for share consumer ")


def test_the_rate_begins_with_the_first_records() -> None:
    progress = read_progress(PRINTED)
    assert [one.records for one in progress] == [0, 1000, 52333, 61000]
    assert rate_of(progress) == pytest.approx(30_000)


def test_a_run_that_is_too_short_has_no_rate() -> None:
    with pytest.raises(SystemExit, match="raise --records"):
        rate_of(read_progress(PRINTED)[-1:])


def test_each_workload_has_a_target() -> None:
    options = parse(["compare"])
    rates = [one for one in targets(options) if one.value == "records_per_s"]
    assert {one.workload for one in rates} == {
        "queue-1-1",
        "queue-32-1",
        "queue-1-12",
        "queue-32-12",
    }
    assert all(one.bound is not None and one.bound.holds(1.0) for one in rates)
