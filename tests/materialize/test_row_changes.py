"""Rows are those of the compacted partition, for any records and any division into portions."""

import json
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.materialize.row_changes import Changes, Row, column_of, kind_of, row_json
from penstock.records.record import Header, Record
from tests.materialize.topic_model import Event, Rows, compacted, encoded

KEYS = st.one_of(st.none(), st.binary(max_size=2), st.sampled_from([b"a", b"b", b"\0", b"\xff"]))
VALUES = st.one_of(st.none(), st.binary(max_size=4))


@given(st.lists(st.tuples(KEYS, VALUES)), st.integers(1, 5))
def test_rows_are_those_of_the_compacted_partition(
    pairs: list[tuple[bytes | None, bytes | None]], portion_size: int
) -> None:
    records = [Record(key, value, offset=at) for at, (key, value) in enumerate(pairs)]
    rows: Rows = {}
    skipped = 0
    for start in range(0, len(records), portion_size):
        changes = Changes(3)
        changes.add(records[start : start + portion_size])
        for row in changes.upserts():
            rows[encoded(row.key), row.partition] = (encoded(row.value), row.offset)
        for key, partition in changes.deletes():
            rows.pop((encoded(key), partition), None)
        skipped += changes.skipped
    events = [Event(3, at, key, value) for at, (key, value) in enumerate(pairs)]
    assert rows == compacted(events)
    assert skipped == sum(key is None for key, _ in pairs)


@given(st.binary(), st.binary())
def test_different_bytes_are_different_columns_in_sqlite(first: bytes, second: bytes) -> None:
    with sqlite3.connect(":memory:") as connection:
        (equal,) = connection.execute(
            "SELECT ? = ?", (column_of(first), column_of(second))
        ).fetchone()
    connection.close()
    assert bool(equal) == (first == second)
    assert encoded(column_of(first)) == first


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ('{"a": 1}', "json"),
        ("12.50", "json"),
        ("NaN", "text"),
        ("plain", "text"),
        ("", "text"),
        ("[" * 100_000, "text"),
        (b"\xff", "bytes"),
    ],
    ids=["object", "number", "not a number", "plain", "empty", "deep", "binary"],
)
def test_kind_of_a_value(value: str | bytes, kind: str) -> None:
    assert kind_of(value) == kind


def test_json_of_a_row_keeps_digits_and_binary_parts() -> None:
    headers = Changes(0)
    headers.add([Record(b"k", b"v", (Header("n", b"\xff"), Header("m", None)), offset=1)])
    (row,) = headers.upserts()
    assert json.loads(row_json(row))["headers"] == [["n", {"base64": "/w=="}], ["m", None]]
    text = row_json(Row(b"\xff", 0, '{"price": 1.10}', 5, 7, None))
    assert '"value":{"price": 1.10}' in text
    assert json.loads(text)["key"] == {"base64": "/w=="}
    assert json.loads(row_json(Row("k", 0, b"\xff", 5, 7, None)))["value"] == "/w=="
    assert json.loads(row_json(Row("k", 0, 'say "hi"', 5, 7, None)))["value"] == 'say "hi"'
