"""A column that had values and has none any more is counted in the note, shown and logged once."""

import logging
from pathlib import Path

import pytest

from penstock.spark.tables.commit.note import CommitNote, NoteKind, read_note, write_note
from penstock.spark.tables.values.empty_columns import (
    EMPTY_COLUMNS_MAX,
    EMPTY_ROWS_LOGGED,
    NEVER,
    emptied,
    empty_after,
    newly_emptied,
)
from tests.spark.tables.value_world import ValueWorld

pytestmark = pytest.mark.slow

formats = pytest.mark.parametrize("format_", ["delta", "iceberg"])


def noted(world: ValueWorld) -> dict[str, int]:
    return dict(world.rows.open().load().notes["orders"].empty_columns or {})


@formats
def test_a_renamed_field_is_noticed(
    tmp_path: Path, format_: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It emptied its column silently. A column that never had values says nothing."""
    world = ValueWorld(tmp_path, format_, "id bigint, amount double, city string")
    world.commit([{"id": n, "amount": 1.0} for n in range(3)])
    assert noted(world) == {"city": NEVER}
    with caplog.at_level(logging.WARNING):
        world.commit([{"id": n, "total": 1.0} for n in range(60)])
        assert noted(world) == {"amount": 60, "city": NEVER}
        assert not caplog.records
        for _ in range(2):
            world.commit([{"id": n, "total": 1.0} for n in range(60)])
    assert [one.getMessage().split(",")[0] for one in caplog.records] == [
        "Column 'amount' had values"
    ]
    assert noted(world)["amount"] == 180
    world.commit([{"id": 1, "amount": None}, {"id": 2, "amount": 2.0}])
    assert noted(world) == {"city": NEVER}


@formats
def test_commits_without_rows_change_nothing(tmp_path: Path, format_: str) -> None:
    """Of bad records nothing is known, and a driver that acquires the table commits none."""
    world = ValueWorld(tmp_path, format_, "id bigint, amount double")
    world.commit([b"bad"])
    assert world.rows.open().load().notes["orders"].empty_columns is None
    world.commit([{"id": 1}])
    assert noted(world) == {"amount": NEVER}
    world.commit([{"id": 2, "amount": 1.0}])
    world.commit([{"id": 3}])
    world.commit([b"bad"])
    assert noted(world) == {"amount": 1}


@formats
def test_a_column_that_comes_with_the_commit_never_had_a_value(
    tmp_path: Path, format_: str
) -> None:
    world = ValueWorld(tmp_path, format_, "id bigint")
    world.commit([{"id": 1}])
    world.ddl = "id bigint, amount double"
    world.commit([{"id": 2}])
    world.commit([{"id": 3}])
    assert noted(world) == {"amount": NEVER}
    assert "amount" in world.rows.open().schema().names


def test_an_upsert_looks_at_values_and_not_at_deletions(tmp_path: Path) -> None:
    keyed = {"mode": "upsert", "key": ["id"]}
    world = ValueWorld(tmp_path, "delta", "id bigint, amount double", keyed)
    world.commit([{"id": 1, "amount": 1.0}])
    world.commit([None], keys=[b'{"id": 1}'])
    assert noted(world) == {}
    world.commit([{"id": 2}])
    assert noted(world) == {"amount": 1}


def test_the_table_of_bad_records_has_no_such_note(tmp_path: Path) -> None:
    world = ValueWorld(tmp_path, "delta", "id bigint, amount double")
    world.commit([{"id": 1}, b"bad"])
    assert world.rejects.open().load().notes["orders"].empty_columns is None


def test_a_note_keeps_them() -> None:
    note = CommitNote("orders", NoteKind.BATCH, "run", 1, 1, empty_columns={"a": NEVER, "b": 7})
    assert read_note(write_note(note)) == note
    assert "empty_columns" not in write_note(CommitNote("orders", NoteKind.BATCH, "run", 1, 1))


def test_a_sparse_schema_is_not_watched() -> None:
    many = {f"c{n}": False for n in range(EMPTY_COLUMNS_MAX + 1)}
    assert empty_after({}, many, 5) is None
    assert empty_after(None, {"c0": False}, 5) == {"c0": NEVER}


def test_a_column_is_logged_once() -> None:
    before, after = {"a": EMPTY_ROWS_LOGGED - 1, "b": NEVER}, {"a": EMPTY_ROWS_LOGGED, "b": NEVER}
    assert emptied(after) == {"a": EMPTY_ROWS_LOGGED}
    assert list(newly_emptied(before, after)) == [("a", EMPTY_ROWS_LOGGED)]
    assert list(newly_emptied(after, {"a": EMPTY_ROWS_LOGGED + 1})) == []
