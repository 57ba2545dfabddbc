"""Tables of partial updates against a dictionary, in both formats and both ways of upserts.

A change has a random part of its row's columns, and every batch has a new driver; some batches are
repeated. With `sequence_by` changes arrive out of order and twice.
"""

import json
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

from penstock.spark.tables.definition.ddl import parse_ddl
from penstock.spark.tables.files.data_files import write_files
from penstock.spark.tables.formats.port import LayoutChangedError
from penstock.spark.tables.run.changes import whole_rows
from penstock.spark.tables.run.changes.whole_rows import SeveralRowsError
from penstock.spark.tables.values.cdc import carried_columns
from penstock.spark.tables.values.json.values import JsonValues
from tests.spark.cdc.partial_world import Row, World, rows_in
from tests.spark.tables.change_batches import written_changes
from tests.spark.tables.table_kinds import commit_of, taken
from tests.spark.tables.value_world import ValueWorld

pytestmark = pytest.mark.slow

DDL = (
    "id bigint, name string, big decimal(20,2), tags array<string>, place struct<x: int, y: int>, "
    "at timestamp"
)
NAMES = ("name", "big", "tags", "place", "at")


def again(world: ValueWorld, values: Sequence[object], keys: Sequence[bytes]) -> None:
    """The same offsets once more, by another driver."""
    world.offset -= len(values)
    world.commit(values, keys=keys)


def patch(chance: random.Random, number: int) -> Row:
    """Some columns, some of them null."""
    row = {
        "name": f"name {number}",
        "big": number,
        "tags": [f"tag {number}"],
        "place": {"x": number},
        "at": f"2026-01-01T00:00:{number % 60:02}Z",
    }
    chosen = chance.sample(NAMES, chance.choice([0, 1, 1, 2, 4, 5]))
    return {name: None if chance.random() < 0.3 else row[name] for name in chosen}


def stored(rows: dict[int, Row], world: ValueWorld) -> dict[int, Row]:
    """The rows with the values as the table's columns have them."""
    whole = [{"id": key, **row} for key, row in rows.items()]
    for one in whole:
        one["place"] = None if one["place"] is None else {"y": None, **one["place"]}
    values = pa.array([json.dumps(one).encode() for one in whole], pa.binary())
    read = JsonValues(parse_ddl(world.ddl)).parse(values)
    assert not read.rejects
    return {one.pop("id"): one for one in read.rows.to_pylist()}


@pytest.mark.parametrize("seed", [1, 2])
def test_patches_equal_a_dictionary(
    make: World, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_rows, "_PART_ROWS", 3)
    patched_history(make, seed)


def test_without_the_stored_rows(make: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        whole_rows, "_rows_of", lambda _table, _keys, columns: columns.empty_table()
    )
    with pytest.raises(AssertionError):
        patched_history(make, 1)


def test_without_the_difference_of_absent_and_null(
    make: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carried_columns, "_fields", lambda _payload, _path: NAMES)
    with pytest.raises(AssertionError):
        patched_history(make, 1)


def patched_history(make: World, seed: int) -> None:
    """Batches of random patches; fails unless the table has the rows of a dictionary."""
    chance = random.Random(seed)
    world = make(DDL)
    model: dict[int, Row] = {}
    number = 0
    for _ in range(10):
        values: list[Row | None] = []
        keys = []
        for _ in range(chance.choice([1, 3, 20])):
            number += 1
            key = chance.randrange(8)
            keys.append(str(key).encode())
            if chance.random() < 0.15:
                values.append(None)
                model.pop(key, None)
                continue
            change = patch(chance, number)
            values.append({"id": key, **change})
            model[key] = model.get(key, dict.fromkeys(NAMES)) | change
        world.commit(values, keys=keys)
        if chance.random() < 0.4:
            again(world, values, keys)
        assert rows_in(world, NAMES) == stored(model, world)
    assert world.reasons() == {}


def test_patches_out_of_order_equal_a_dictionary(make: World) -> None:
    """A change older than one of its key that arrived before it is left out as a whole."""
    chance = random.Random(3)
    world = make(
        "id bigint, version bigint, is_gone boolean, name string, big bigint",
        {"sequence_by": "version", "deleted_when": "is_gone"},
    )
    names = ("version", "name", "big")
    log: list[Row] = []
    for version in range(150):
        change: Row = {"id": chance.randrange(6), "version": version}
        if chance.random() < 0.15:
            change["is_gone"] = True
        for name, value in (("name", f"name {version}"), ("big", version)):
            if chance.random() < 0.5:
                change[name] = value if chance.random() < 0.7 else None
        log.append(change)
    placed = [(at + chance.uniform(0, 6), one) for at, one in enumerate(log)]
    placed += [(at + chance.uniform(0, 6), one) for at, one in placed if chance.random() < 0.15]
    records = [one for _, one in sorted(placed, key=lambda found: found[0])]
    model: dict[int, Row] = {}
    newest: dict[int, int] = {}
    while records:
        size = chance.choice([1, 5, 40])
        batch, records = records[:size], records[size:]
        for one in batch:
            key = one["id"]
            if one["version"] < newest.get(key, -1):
                continue
            newest[key] = one["version"]
            if one.get("is_gone"):
                model.pop(key, None)
                continue
            change = {name: one[name] for name in names if name in one}
            model[key] = model.get(key, dict.fromkeys(names)) | change
        world.commit(batch)
        assert rows_in(world, names) == model
    assert world.reasons() == {}


def test_a_deletion_and_a_patch(make: World) -> None:
    world = make("id bigint, name string, big bigint")
    world.commit([{"id": 1, "name": "a", "big": 1}, {"id": 2, "name": "b", "big": 2}])
    world.commit([None, {"id": 1, "big": 3}, {"id": 3, "big": 4}], keys=[b"1", b"1", b"3"])
    names = ("name", "big")
    expected = {
        1: {"name": None, "big": 3},
        2: {"name": "b", "big": 2},
        3: {"name": None, "big": 4},
    }
    assert rows_in(world, names) == expected
    world.commit([None, None], keys=[b"1", b"3"])
    world.commit([{"id": 1, "name": "c"}])
    assert rows_in(world, names) == {1: {"name": "c", "big": None}, 2: expected[2]}


def test_a_required_column_has_to_be_carried(make: World) -> None:
    world = make("id bigint, name string NOT NULL, big bigint")
    world.commit([{"id": 1, "name": "a", "big": 1}])
    world.commit([{"id": 1, "big": 2}, {"id": 2, "big": 2}, {"id": 1, "name": "b"}])
    assert rows_in(world, ("name", "big")) == {1: {"name": "b", "big": 1}}
    assert list(world.reasons()) == [1, 2]


def test_a_patch_without_its_key_is_a_reject(make: World) -> None:
    world = make("id bigint, name string")
    world.commit([{"name": "a"}, {"id": None, "name": "a"}, {"id": 1}])
    assert rows_in(world, ("name",)) == {1: {"name": None}}
    assert list(world.reasons()) == [0, 1]


def test_a_new_column_is_null_in_rows_that_no_patch_sets(make: World) -> None:
    world = make("id bigint, name string")
    world.commit([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    world.ddl = "id bigint, name string, note string"
    world.commit([{"id": 1, "note": "n"}, {"id": 3, "name": "c"}])
    assert rows_in(world, ("name", "note")) == {
        1: {"name": "a", "note": "n"},
        2: {"name": "b", "note": None},
        3: {"name": "c", "note": None},
    }
    world.ddl = "id bigint, note string"  # a column that values no longer have is kept
    world.commit([{"id": 1, "note": "m"}])
    assert rows_in(world, ("name", "note"))[1] == {"name": "a", "note": "m"}


def test_values_are_taken_from_more_than_an_array_of_texts_holds() -> None:
    """An array of texts has up to 2 GiB; a batch may have more."""
    chunk = pa.array(["a", "x" * 2**28, None])
    column = pa.chunked_array([chunk] * 9)
    taken_ = whole_rows._taken(column, pa.array([26, 0, None, 24, 3, 0]))
    assert taken_.to_pylist() == [None, "a", None, "a", "a", "a"]
    empty = pa.chunked_array([], pa.string())
    assert whole_rows._taken(empty, pa.array([None, None], pa.int64())).to_pylist() == [None, None]


@pytest.mark.parametrize("make", ["iceberg", "merge_on_read"], indirect=True)
def test_a_key_that_the_same_batch_widens(make: World) -> None:
    """The table cannot have the new keys, and has the others in its narrower type."""
    world = make("id int, name string, big bigint")
    world.commit([{"id": 1, "name": "a", "big": 1}])
    world.ddl = "id bigint, name string, big bigint"
    world.commit([{"id": 2**40, "name": "b"}, {"id": 1, "big": 2}])
    assert rows_in(world, ("name", "big")) == {
        1: {"name": "a", "big": 2},
        2**40: {"name": "b", "big": None},
    }


def test_a_row_moves_with_its_partition(make: World) -> None:
    world = make("id bigint, city string, big bigint", partition_by=["city"])
    world.commit([{"id": one, "city": "a", "big": one} for one in range(3)])
    world.commit([{"id": 0, "city": "b"}, {"id": 1, "big": 9}])
    assert rows_in(world, ("city", "big")) == {
        0: {"city": "b", "big": 0},
        1: {"city": "a", "big": 9},
        2: {"city": "a", "big": 2},
    }


def test_several_rows_of_a_key_are_an_error(make: World) -> None:
    """Nothing says which of them has the values that are kept."""
    world = make("id bigint, name string, big bigint", metadata="none")
    table = world.rows.open()
    driver, state = taken(table, "run-x", "other")
    rows = [{"id": 1, "name": one, "big": 1} for one in "ab"]
    batch = pa.RecordBatch.from_pylist(rows, pa.schema([*table.schema()]).remove_metadata())
    files = write_files([batch], table.layout(table.schema()), "other")
    table.append(commit_of(state, driver, (7, 0, 2)), files)
    with pytest.raises(SeveralRowsError, match="2 rows with id = 1"):
        world.commit([{"id": 2, "name": "c"}, {"id": 1, "big": 2}])
    world.commit([{"id": 2, "name": "c"}])
    assert (2, "c") in world.held("id", "name")


def test_a_row_that_changes_meanwhile_is_read_again(
    make: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another pipeline changes the row between its reading and the commit."""
    world = make("id bigint, name string, big bigint", metadata="none")
    world.commit([{"id": 1, "name": "a", "big": 1}])
    written = whole_rows._written
    other = {"id": 1, "name": "other", "big": 9, "_change_deleted": False}
    other |= {"_change_topic": "orders", "_change_partition": 7, "_change_offset": 0}
    left = [other]

    def meanwhile(*given: Any) -> Any:  # noqa: ANN401 - of any function
        found = written(*given)
        if left:
            table = world.rows.open()
            driver, state = taken(table, "run-x", "other")
            changes = written_changes(table, [left.pop()])
            table.upsert(commit_of(state, driver, (7, 0, 1)), changes)
        return found

    monkeypatch.setattr(whole_rows, "_written", meanwhile)
    world.commit([{"id": 1, "big": 2}])
    assert rows_in(world, ("name", "big")) == {1: {"name": "other", "big": 2}}


def change_table(world: ValueWorld, schema: pa.Schema, *rows: Row) -> None:
    """Another writer gives the table these columns, and rows."""
    table = world.rows.open()
    driver, state = taken(table, "run-x", "other")
    names = ["_change_topic", "_change_partition", "_change_offset", "_change_deleted"]
    record = dict(zip(names, ["orders", 7, 0, False], strict=True))
    changes = written_changes(table, [one | record for one in rows], schema=schema)
    table.upsert(commit_of(state, driver, (7, 0, len(rows))), changes, schema)


def test_a_column_that_another_writer_adds_meanwhile_is_kept(make: World) -> None:
    """The batch was planned, and its files were written, before the column was there."""
    world = make("id bigint, name string, big bigint", metadata="none")
    world.commit([{"id": 1, "name": "a", "big": 1}, {"id": 2, "name": "b", "big": 1}])
    columns = pa.schema([*world.rows.open().schema(), pa.field("note", pa.string())])
    row = {"id": 1, "name": "a", "big": 1, "note": "mine"}
    world.commit([{"id": 1, "big": 2}], meanwhile=lambda: change_table(world, columns, row))
    assert rows_in(world, ("name", "big", "note")) == {
        1: {"name": "a", "big": 2, "note": "mine"},
        2: {"name": "b", "big": 1, "note": None},
    }


def replace_name(world: ValueWorld) -> None:
    """The owner drops the column `name`; in Delta it gets another type."""
    if world.format == "iceberg":
        catalog = load_catalog("default", **world.rows.catalog)  # type: ignore[attr-defined]
        with catalog.load_table("shop.orders").update_schema(
            allow_incompatible_changes=True
        ) as update:
            update.delete_column("name")
        catalog.close()
        return
    rows = pa.table({"id": pa.array([1]), "name": pa.array([5]), "big": pa.array([1])})
    at = world.rows.uri  # type: ignore[attr-defined]
    write_deltalake(at, rows, mode="overwrite", schema_mode="overwrite")


def test_a_column_that_is_replaced_meanwhile(make: World) -> None:
    """A value would be lost, or converted: the text '7' is a number in the new column."""
    world = make("id bigint, name string, big bigint", metadata="none")
    world.commit([{"id": 1, "name": "a", "big": 1}])
    with pytest.raises(LayoutChangedError, match="other columns than the table has by now"):
        world.commit([{"id": 1, "name": "7"}], meanwhile=lambda: replace_name(world))


@pytest.mark.parametrize("make", ["delta"], indirect=True)
def test_a_constraint_that_is_added_meanwhile(make: World) -> None:
    """The changes were not judged by it."""
    world = make("id bigint, name string, big bigint", metadata="none")
    world.commit([{"id": 1, "name": "a", "big": 1}])

    def constrain() -> None:
        DeltaTable(world.rows.uri).alter.add_constraint({"small": "big < 10"})  # type: ignore[attr-defined]

    with pytest.raises(LayoutChangedError, match="judged by other constraints"):
        world.commit([{"id": 1, "name": "b"}], meanwhile=constrain)


def test_the_key_of_the_record(make: World) -> None:
    world = make(
        "id bigint, name string, big bigint",
        key=["_kafka_key"],
        metadata="flat",
        partial_updates=True,
    )
    world.commit([{"name": "a", "big": 1}, {"big": 2}, {"name": "b"}], keys=[b"x", b"x", b"y"])
    world.commit([{"name": "c"}, None, {"big": 5}, {}], keys=[b"x", b"y", b"y", b"z"])
    found = world.held("_kafka_key", "name", "big", "_kafka_offset")
    assert found == [(b"x", "c", 2, 3), (b"y", None, 5, 5), (b"z", None, None, 6)]
