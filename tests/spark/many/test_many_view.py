"""The lines of a run with many tables: totals, failures with their next attempt, brokers away."""

from penstock.spark.tables.inspection.many_view import FAILURES_SHOWN_MAX, ManyView
from penstock.spark.tables.inspection.run_view import RunView
from penstock.spark.tables.run.events import BatchDone, MaintenanceDone


def done(records: int = 10, *, at_ms: int = 60_000, was_skipped: bool = False) -> BatchDone:
    return BatchDone(
        batch_id=0,
        records=records,
        rows=records - 1,
        rejects=1,
        expectations={},
        files=2,
        file_bytes=100,
        commit_ms=5,
        duration_ms=9,
        newest_timestamp_ms=at_ms - 500,
        committed_at_ms=at_ms,
        was_skipped=was_skipped,
    )


def new_view() -> ManyView:
    return ManyView("shop", "shop.{entity}", began_ms=0)


def line() -> RunView:
    return RunView("shop.orders", "shop.orders", interval_ms=1_000)


def fields(view: ManyView, now_ms: int = 60_000) -> dict[str, str]:
    return {one.label: one.text for one in view.fields(now_ms)}


def test_batches_of_all_tables_are_added_up() -> None:
    view = new_view()
    one, two = line(), line()
    assert "9 rows" in view.batch_done("orders", one, done())
    view.batch_done("items", two, done(20))
    view.batch_done("items", two, done(20, was_skipped=True))
    view.looked(0, 3, 1)
    view.looked(1, 4, 2)
    found = fields(view)
    assert found["topics"] == "7, 3 with new records at the last look"
    assert found["tables"].startswith("2 ")
    assert found["total"] == "30 records, 28 rows"
    assert found["rate"] == "0 records/s"
    assert view.end_line() == "shop: 2 tables, 3 batches, 30 records: 28 rows, 2 rejects"


def test_the_rate_is_that_of_the_last_minute() -> None:
    view = new_view()
    view.batch_done("a", line(), done(600, at_ms=10_000))
    assert fields(view, 10_000)["rate"] == "60 records/s"
    assert fields(view, 60_000)["rate"] == "10 records/s"
    assert fields(view, 80_000)["rate"] == "0 records/s"


def test_a_failure_names_its_topic_and_the_next_attempt() -> None:
    view = new_view()
    text = view.topic_failed("orders", "the store\x1b is away.", 2.5)
    assert text == "shop  orders failed: the store  is away; next attempt in 2.5 s"
    assert "ends until the next start" in view.topic_failed("items", "no", None)
    assert fields(view)["failed"].startswith("2: items: no; orders: the store")
    view.batch_done("orders", line(), done())
    assert list(view.failures) == ["items"]


def test_many_failures_are_counted() -> None:
    view = new_view()
    for number in range(FAILURES_SHOWN_MAX + 3):
        view.topic_failed(f"t{number}", "x" * 1_000, 1.0)
    assert fields(view)["failed"].endswith("; 3 more")
    assert len(fields(view)["failed"]) < 2_000


def test_a_broker_that_is_away_is_one_line() -> None:
    view = new_view()
    assert "no broker answers: refused" in view.broker_away("refused")
    assert view.broker_away("refused") == ""
    assert "tries again" in fields(view)["state"]
    assert "answers again" in view.looked(0, 1, 0)
    assert view.looked(0, 1, 0) == ""


def test_maintenance_without_work_has_no_line() -> None:
    idle = MaintenanceDone(0, 0, 0, 0, 1, 10, None, 1.0, table="shop.orders")
    assert new_view().maintenance_done(line(), idle) == ""
    busy = MaintenanceDone(8, 1, 0, 0, 1, 10, None, 1.0, table="shop.orders")
    assert "8 files into 1" in new_view().maintenance_done(line(), busy)
