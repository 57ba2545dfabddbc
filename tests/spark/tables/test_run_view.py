"""The live view: its lines follow from the events and the time alone."""

from dataclasses import replace

from penstock.spark.tables.inspection.run_view import RunView
from penstock.spark.tables.run.events import BatchDone, MaintenanceDone

BATCH = BatchDone(
    batch_id=7,
    records=1_000,
    rows=990,
    rejects=10,
    expectations={"positive": 4, "small": 0},
    files=2,
    file_bytes=4_096,
    commit_ms=45,
    duration_ms=500,
    newest_timestamp_ms=98_800,
    committed_at_ms=100_000,
    lags={"orders": 12},
)
CARE = MaintenanceDone(
    compacted_files=9,
    written_files=1,
    expired_snapshots=3,
    removed_orphans=2,
    live_files=4,
    live_bytes=3 * 2**20,
    oldest_snapshot_ms=1,
    duration_ms=80,
)


def view() -> RunView:
    return RunView("orders", "shop.orders", interval_ms=1_000)


def shown(one: RunView, now_ms: int) -> dict[str, str]:
    return {field.label: field.text for field in one.fields(now_ms)}


def test_before_the_first_batch() -> None:
    one = view()
    assert shown(one, 0) == {"state": "starts Spark"}
    late = RunView("orders", "shop.orders", interval_ms=1_000, began_ms=1_000)
    assert shown(late, 13_000) == {"state": "starts Spark, 12.0 s"}
    assert one.title == "orders → shop.orders"
    assert one.started("in_task", ["a", "b"]) == "orders  runs in_task: a; b"
    assert shown(one, 0) == {"state": "waits for its first batch"}
    assert one.title == "orders → shop.orders (in_task)"


def test_all_that_is_asked_for_is_there() -> None:
    one = view()
    one.batch_done(BATCH)
    one.maintenance_done(CARE, 100_000)
    assert shown(one, 100_500) == {
        "state": "batch 7, committed 500 ms ago",
        "rate": "1,000 records/s in the last minute",
        "lag": "orders 12",
        "freshness": "1.2 s",
        "commit": "45 ms; 500 ms for the whole batch",
        "files": "2 written; at the last maintenance 4 in the table, 3.0 MiB",
        "rejects": "10 (1.00%); rules broken: positive 4",
        "maintenance": "9 files into 1, 3 snapshots expired, 2 orphans removed, 500 ms ago",
        "total": "1,000 records, 990 rows",
    }


def test_the_rate_is_that_of_the_last_minute() -> None:
    one = view()
    one.batch_done(replace(BATCH, committed_at_ms=1_000, records=60_000))
    one.batch_done(replace(BATCH, committed_at_ms=100_000))
    assert one.rate(100_500) == 1_000
    assert one.rate(400_000) == 0


def test_a_pipeline_that_stands_still_says_so() -> None:
    one = view()
    one.batch_done(BATCH)
    assert "nothing since" not in shown(one, 102_000)["state"]
    assert "nothing since" in shown(one, 104_000)["state"]
    one.batch_done(replace(BATCH, lags={"orders": 0}))
    assert "nothing since" not in shown(one, 900_000)["state"]
    assert shown(one, 900_000)["lag"] == "0"


def test_lines_for_a_log() -> None:
    one = view()
    assert one.batch_line(BATCH) == (
        "orders  batch 7  990 rows  10 rejects  2,000 records/s  lag orders 12  freshness 1.2 s  "
        "commit 45 ms  2 files  broken: positive 4"
    )
    assert one.maintenance_line(CARE) == (
        "orders  maintenance of shop.orders  9 files into 1, 3 snapshots expired, 2 orphans removed"
    )
    few = replace(CARE, compacted_files=0, expired_snapshots=1, table="shop.orders__dlq")
    assert one.maintenance_line(replace(few, removed_orphans=0)) == (
        "orders  maintenance of shop.orders__dlq  1 snapshot expired"
    )
    assert one.maintenance_line(replace(few, expired_snapshots=0, removed_orphans=0)) == ""
    assert "tried again: busy" in one.maintenance_line(replace(CARE, problem="busy"))
    one.batch_done(BATCH)
    assert one.end_line() == ("orders: 1 batch, 1,000 records: 990 rows in shop.orders, 10 rejects")


def test_the_care_of_rejects_is_not_that_of_the_rows() -> None:
    one = view()
    one.batch_done(BATCH)
    one.maintenance_done(replace(CARE, table="shop.orders"), 100_000)
    one.maintenance_done(replace(CARE, table="shop.orders__dlq", live_files=77), 100_000)
    assert "4 in the table" in shown(one, 100_500)["files"]


def test_upserts_are_changes() -> None:
    one = RunView("orders", "shop.orders", interval_ms=1_000, row_word="change")
    one.batch_done(BATCH)
    assert "990 changes in shop.orders" in one.end_line()
    assert "990 changes" in one.batch_line(BATCH)


def test_a_broker_that_is_away_is_shown_until_it_is_back() -> None:
    one = view()
    one.started("in_task", [])
    one.batch_done(BATCH)
    refused = "localhost:1: connection refused"
    assert one.broker_away(refused, 101_000) == (
        "orders  no broker answers: localhost:1: connection refused; tries again"
    )
    assert one.broker_away(refused, 104_000) == ""
    fields = shown(one, 126_000)
    assert fields["state"] == f"no broker answers since 25.0 s ({refused}); tries again"
    assert fields["lag"] == "not known"
    assert one.broker_seen({"orders": 3}, 131_000) == (
        "orders  the broker answers again, after 30.0 s; lag orders 3"
    )
    assert one.broker_seen({"orders": 4}, 134_000) == ""
    assert shown(one, 134_000)["lag"] == "orders 4"
    assert "committed" in shown(one, 134_000)["state"]


def test_a_stop_is_shown() -> None:
    one = view()
    one.batch_done(BATCH)
    one.is_stopping = True
    assert shown(one, 100_000)["state"].startswith("stopping")


def test_what_was_there_already_is_not_counted_twice() -> None:
    one = view()
    one.batch_done(replace(BATCH, was_skipped=True))
    assert one.totals.rows == 0
    assert "already" in one.batch_line(replace(BATCH, was_skipped=True))


def test_lines_are_bounded_and_clean() -> None:
    lags = {f"topic-{number}": 1 for number in range(50)}
    line = view().batch_line(replace(BATCH, lags=lags))
    assert "and 45 more" in line
    assert RunView("a\x1b[2J", "t", interval_ms=1).title.isprintable()


def test_a_restart_is_shown_until_the_query_runs_again() -> None:
    one = view()
    one.started("in_task", ["no function"])
    line = one.restarts("restart 1 of 10 in 1.0 s (spark): gone\x1b[2J" + "x" * 2_000)
    assert line.startswith("orders  restart 1 of 10 in 1.0 s (spark): gone")
    assert line.isprintable()
    assert len(line) < 1_000
    assert shown(one, 0)["state"].startswith("restart 1 of 10")
    one.started("in_task", ["no function"])
    assert shown(one, 0)["state"] == "waits for its first batch"
