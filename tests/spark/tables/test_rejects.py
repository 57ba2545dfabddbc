"""The table of bad records and the circuit breaker."""

import datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.decode.columns import spark_schema
from penstock.spark.tables.commit.circuit_breaker import BATCHES_MAX, CircuitBreaker
from penstock.spark.tables.definition.ddl import to_ddl
from penstock.spark.tables.formats.rejects import REJECTS, reject_rows
from penstock.spark.tables.values.parser import MESSAGE_CHARACTERS_MAX, ErrorClass, Reject

TIME = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


def records(*, include_headers: bool) -> pa.RecordBatch:
    rows = [
        {
            "key": None,
            "value": b"v%d" % number,
            "topic": "orders",
            "partition": 3,
            "offset": 100 + number,
            "timestamp": TIME,
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"x"}],
        }
        for number in range(5)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=spark_schema(include_headers=include_headers))


@pytest.mark.parametrize("include_headers", [True, False])
def test_a_row_has_the_whole_record_and_the_reason(include_headers: bool) -> None:
    rejects = [
        Reject(1, ErrorClass.MALFORMED, "no JSON\x00" + "x" * 2 * MESSAGE_CHARACTERS_MAX),
        Reject(4, ErrorClass.TYPE_MISMATCH, "id", schema_id=7),
    ]
    rows = reject_rows(
        records(include_headers=include_headers), rejects, pipeline="orders", attempt=2
    )
    assert rows.schema == REJECTS
    first, second = rows.to_pylist()
    assert second == {
        "topic": "orders",
        "partition": 3,
        "offset": 104,
        "timestamp": TIME,
        "key": None,
        "value": b"v4",
        "headers": [{"key": "h", "value": b"x"}] if include_headers else None,
        "error_class": "type_mismatch",
        "message": "id",
        "schema_id": 7,
        "pipeline": "orders",
        "attempt": 2,
    }
    assert first["offset"] == 101
    assert first["schema_id"] is None
    assert len(first["message"]) == MESSAGE_CHARACTERS_MAX
    assert "\x00" not in first["message"]


def test_no_reject_is_no_row() -> None:
    rows = reject_rows(records(include_headers=False), [], pipeline="orders")
    assert (rows.num_rows, rows.schema) == (0, REJECTS)


def test_the_schema_is_one_that_a_table_can_have() -> None:
    assert to_ddl(REJECTS).startswith("topic string, partition int, offset bigint")


def test_the_breaker_opens_above_the_share_and_not_before_the_window() -> None:
    breaker = CircuitBreaker(share_max=0.5, window_records=10)
    assert not breaker.is_open
    breaker = breaker.after(9, 9)
    assert not breaker.is_open
    breaker = breaker.after(1, 1)
    assert breaker.is_open
    assert "100.0%" in breaker.reason("shop.orders__dlq")
    assert "shop.orders__dlq" in breaker.reason("shop.orders__dlq")
    assert not breaker.after(10, 5).is_open
    assert breaker.after(10, 6).is_open


def test_more_rejects_than_records_are_all_records() -> None:
    """A function makes several rows of a record, in several tasks."""
    breaker = CircuitBreaker(share_max=0.5, window_records=100).after(4, 12).after(20, 0)
    assert breaker.share == 4 / 24


@pytest.mark.parametrize(
    ("records", "rejects", "is_open_early", "is_open_at_end"),
    [
        (0, 0, False, False),
        (1, 1, False, True),  # the run wrote nothing
        (2, 1, False, False),
        (3, 2, False, False),
        (9, 8, False, False),
        (9, 9, False, True),
        (10, 5, False, False),
        (10, 6, True, True),
        (999, 999, True, True),
    ],
)
def test_a_run_that_ends_is_judged_by_what_it_had(
    records: int, rejects: int, *, is_open_early: bool, is_open_at_end: bool
) -> None:
    breaker = CircuitBreaker(share_max=0.5, window_records=1_000).after(records, rejects)
    assert breaker.is_open_early is is_open_early
    assert breaker.is_open_at_end is is_open_at_end
    assert not breaker.is_open
    assert not CircuitBreaker(1.0, 1_000).after(records, rejects).is_open_at_end, "no limit"


def test_the_messages_name_value_limit_and_next_step() -> None:
    breaker = CircuitBreaker(share_max=0.5, window_records=1_000).after(8, 2).after(12, 10)
    start = "60.0% of the last 20 records could not be written, and value.reject_share_max allows "
    for text in (breaker.reason_at_end("shop.orders__dlq"), breaker.reason_before_commit({})):
        assert text.startswith(f"{start}50.0%. ")
        assert "raise the limit" in text
    assert "the next run continues after them" in breaker.reason_at_end("shop.orders__dlq")
    assert "Nothing of the last batch was committed" in breaker.reason_before_commit({"late": 10})
    assert "late 10. The next run repeats" in breaker.reason_before_commit({"late": 10})


def test_old_batches_are_forgotten() -> None:
    breaker = CircuitBreaker(share_max=0.1, window_records=100).after(1_000, 1_000)
    assert breaker.is_open
    breaker = breaker.after(100, 0)
    assert not breaker.is_open
    assert breaker.records == 100


@given(st.lists(st.integers(0, 20).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))))
def test_the_breaker_looks_at_the_newest_batches(batches: list[tuple[int, int]]) -> None:
    breaker = CircuitBreaker(share_max=0.3, window_records=50)
    for count, bad in batches:
        breaker = breaker.after(count, bad)
    seen = bad_seen = 0
    for count, bad in reversed(batches):
        if seen >= 50:
            break
        seen, bad_seen = seen + count, bad_seen + bad
    assert breaker.records == seen
    assert breaker.is_open == (seen >= 50 and bad_seen / seen > 0.3)


def test_the_breaker_stays_small() -> None:
    breaker = CircuitBreaker(share_max=0.3, window_records=1_000_000)
    for number in range(3 * BATCHES_MAX):
        breaker = breaker.after(1, number % 2)
    assert len(breaker.batches) <= BATCHES_MAX
    assert (breaker.records, breaker.share) == (3 * BATCHES_MAX, 0.5)
