"""Times that no reader can show: rejects with a reason, never the end of a pipeline.

A table of cases for both formats. Limits are the years 1 to 9999 in UTC, both included.
"""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.spark.tables.table_kinds import DeltaKind
from tests.spark.tables.value_world import GOOD_US, ValueWorld

pytestmark = pytest.mark.slow

FORMATS = ("delta", "iceberg")
LAST = "9999-12-31T23:59:59.999999Z"
FIRST = "0001-01-01T00:00:00Z"
SHOWN = {
    "the last one": LAST,
    "the last one, from behind UTC": "9999-12-31T18:59:59.999-05:00",
    "the first one": FIRST,
    "the first one, from before UTC": "0001-01-01T01:00:00+01:00",
    "the last second as a number": 253402300799,
    "the first second as a number": -62135596800,
}
NOT_SHOWN = {
    "after the last year, by its zone": "9999-12-31T23:59:59-05:00",
    "before the first year, by its zone": "0001-01-01T00:00:00+01:00",
    "a second too late": 253402300800,
    "a second too early": -62135596801,
    "milliseconds for seconds": 1_700_000_000_000,
    "as far as 64 bits go": 9_223_372_036_854,
}
BEYOND_US = 1_700_000_000_000_000_000
"""What a producer gives that counts microseconds where Kafka counts milliseconds."""
DAY = {"partition_by": ["day(_kafka.timestamp)"]}


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("value", SHOWN.values(), ids=SHOWN)
def test_a_time_at_the_edge_is_a_row(tmp_path: Path, format_: str, value: object) -> None:
    world = ValueWorld(tmp_path, format_, "id bigint, at timestamp")
    world.commit([{"id": 1, "at": value}, {"id": 2, "at": "2026-01-01T00:00:00Z"}])
    assert world.reasons() == {}
    years = {found.year for _, found in world.held("id", "at")}
    assert years in ({2026, 9999}, {2026, 1})


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("value", NOT_SHOWN.values(), ids=NOT_SHOWN)
def test_a_time_that_cannot_be_shown_is_a_reject(
    tmp_path: Path, format_: str, value: object
) -> None:
    world = ValueWorld(tmp_path, format_, "id bigint, at timestamp")
    world.commit([{"id": 1, "at": value}, {"id": 2, "at": "2026-01-01T00:00:00Z"}])
    assert [one for (one,) in world.held("id")] == [2]
    assert list(world.reasons()) == [0]
    assert "column 'at'" in world.reasons()[0]
    assert "years 1 to 9999" in world.reasons()[0]


NESTED = {
    "struct": ("s struct<at:timestamp>", {"s": {"at": 253402300800}}),
    "list": ("l array<timestamp>", {"l": [0, 253402300800]}),
    "map": ("m map<string,timestamp>", {"m": {"a": 0, "b": 253402300800}}),
    "lists of structs": (
        "l array<struct<at:array<timestamp>>>",
        {"l": [{"at": [0]}, {"at": [0, 253402300800]}]},
    ),
}


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize(("ddl", "bad"), NESTED.values(), ids=NESTED)
def test_times_inside_of_columns_count_too(
    tmp_path: Path, format_: str, ddl: str, bad: dict[str, object]
) -> None:
    world = ValueWorld(tmp_path, format_, f"id bigint, {ddl}")
    good = [{"id": number} for number in range(5)]
    world.commit([*good, {"id": 5, **bad}, {"id": 6}])
    assert [one for (one,) in world.held("id")] == [0, 1, 2, 3, 4, 6]
    assert list(world.reasons()) == [5]


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("transform", ["day", "hour", "month"])
def test_partitions_of_times_at_the_edge(tmp_path: Path, format_: str, transform: str) -> None:
    world = ValueWorld(
        tmp_path, format_, "id bigint, at timestamp", {"partition_by": [f"{transform}(at)"]}
    )
    world.commit([{"id": number, "at": one} for number, one in enumerate((FIRST, LAST, 1 << 40))])
    assert world.held("id", "at") == [
        (0, datetime(1, 1, 1, tzinfo=UTC)),
        (1, datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
    ]
    assert list(world.reasons()) == [2]
    if format_ == "delta" and isinstance(world.rows, DeltaKind):
        texts = {str(one) for (one,) in world.held(f"at_{transform}")}
        assert {one[:4] for one in texts} == {"0001", "9999"}


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("table", [{}, DAY], ids=["plain", "by day"])
def test_a_record_with_such_a_timestamp_is_a_reject(
    tmp_path: Path, format_: str, table: dict[str, list[str]]
) -> None:
    world = ValueWorld(tmp_path, format_, "id bigint", table)
    times = [GOOD_US, BEYOND_US, -BEYOND_US, BEYOND_US]
    world.commit([{"id": 0}, {"id": 1}, {"id": 2}, b"no JSON"], times)
    assert world.held("id") == [(0,)]
    reasons = world.reasons()
    assert sorted(reasons) == [1, 2, 3]
    assert "1700000000000000 ms" in reasons[1]
    assert "-1700000000000000 ms" in reasons[2]
    assert reasons[3].startswith("the value is not JSON")
    assert "1700000000000000 ms" in reasons[3], "the only place that still says it"
    assert world.rejects.read()["timestamp"].to_pylist() == [None] * 3
    values = {row["offset"]: row["value"] for row in world.rejects.read().to_pylist()}
    assert values[1] == b'{"id": 1}', "the record is whole"


@pytest.mark.parametrize("format_", FORMATS)
def test_it_can_be_put_in_again_without_its_timestamp(tmp_path: Path, format_: str) -> None:
    world = ValueWorld(tmp_path, format_, "id bigint", DAY)
    world.commit([{"id": 0}, {"id": 1}], [GOOD_US, BEYOND_US])
    world.replay()
    assert world.reasons() == {}
    assert world.held("id", "_kafka")[1][1]["timestamp"] is None
    assert len(world.held("id")) == 2


@pytest.mark.parametrize("format_", FORMATS)
def test_a_table_without_metadata_does_not_mind_timestamps(tmp_path: Path, format_: str) -> None:
    world = ValueWorld(tmp_path, format_, "id bigint", {"metadata": "none"})
    world.commit([{"id": 0}, {"id": 1}], [GOOD_US, BEYOND_US])
    assert world.held("id") == [(0,), (1,)]
    assert world.reasons() == {}


@pytest.mark.parametrize("format_", FORMATS)
def test_a_deletion_with_such_a_timestamp_or_key(tmp_path: Path, format_: str) -> None:
    keyed = {"mode": "upsert", "key": ["id"]}
    world = ValueWorld(tmp_path / "ids", format_, "id bigint", keyed)
    world.commit([{"id": 0}, {"id": 1}])
    world.commit([None], [BEYOND_US], [b"1"])
    assert world.held("id") == [(0,)]
    world = ValueWorld(
        tmp_path / "times", format_, "at timestamp", {"mode": "upsert", "key": ["at"]}
    )
    world.commit([{"at": 0}, None], None, [b"k", b"253402300800"])
    assert len(world.held("at")) == 1
    assert "years 1 to 9999" in world.reasons()[1]
