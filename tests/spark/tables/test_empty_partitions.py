"""Empty texts by which a table is partitioned: Delta would read them as null, Iceberg does not."""

from pathlib import Path

import pytest

from tests.spark.tables.value_world import ValueWorld

BY_COUNTRY = {"partition_by": ["country"]}
KEYED = {"mode": "upsert", "partition_by": ["country"]}
DDL = "id bigint, country string, name string"
VALUES = [
    {"id": 1, "country": "", "name": ""},
    {"id": 2, "country": "DE", "name": ""},
    {"id": 3, "country": None, "name": ""},
]


def test_in_delta_such_a_row_is_a_reject(tmp_path: Path) -> None:
    world = ValueWorld(tmp_path, "delta", DDL, BY_COUNTRY)
    world.commit(VALUES)
    assert world.held("id", "country", "name") == [(2, "DE", ""), (3, None, "")]
    assert list(world.reasons()) == [0]
    assert "column 'country' holds an empty text" in world.reasons()[0]


@pytest.mark.parametrize(
    ("format_", "table"),
    [("iceberg", BY_COUNTRY), ("iceberg", {}), ("delta", {})],
    ids=["iceberg, partitioned", "iceberg", "delta"],
)
def test_elsewhere_it_is_a_row_as_it_is(
    tmp_path: Path, format_: str, table: dict[str, list[str]]
) -> None:
    world = ValueWorld(tmp_path, format_, DDL, table)
    world.commit(VALUES)
    assert world.held("id", "country") == [(1, ""), (2, "DE"), (3, None)]
    assert world.reasons() == {}


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_an_upsert_by_another_key(tmp_path: Path, format_: str) -> None:
    world = ValueWorld(tmp_path, format_, DDL, {**KEYED, "key": ["id"]})
    world.commit([{"id": 1, "country": "DE", "name": "a"}, {"id": 2, "country": "FR", "name": "b"}])
    world.commit([{"id": 1, "country": "", "name": "c"}, {"id": 2, "country": None, "name": "d"}])
    if format_ == "delta":
        # As with every reject, the row stays as it was.
        assert world.held("id", "country", "name") == [(1, "DE", "a"), (2, None, "d")]
        assert list(world.reasons()) == [2]
    else:
        assert world.held("id", "country", "name") == [(1, "", "c"), (2, None, "d")]
        assert world.reasons() == {}


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_an_upsert_by_the_column_itself(tmp_path: Path, format_: str) -> None:
    world = ValueWorld(tmp_path, format_, DDL, {**KEYED, "key": ["country"]})
    world.commit([{"id": 1, "country": ""}, {"id": 2, "country": "DE"}])
    world.commit([{"id": 3, "country": ""}])
    expected = {"delta": [(2, "DE")], "iceberg": [(2, "DE"), (3, "")]}
    assert world.held("id", "country") == expected[format_]
    # A deletion finds the existing row: in Delta there is never one.
    world.commit([None], keys=[b""])
    assert world.held("id", "country") == [(2, "DE")]
    assert sorted(world.reasons()) == ([0, 2] if format_ == "delta" else [])
