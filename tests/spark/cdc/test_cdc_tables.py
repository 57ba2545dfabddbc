"""Debezium's events in tables of both formats, batch by batch, each batch by a new driver."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.spark.cdc.events import FIELDS, Record, event, flat, tombstone
from tests.spark.tables.value_world import ValueWorld

pytestmark = pytest.mark.slow

DDL = "id bigint, name string"
SHORT = FIELDS[:2]


@pytest.fixture(params=["delta", "iceberg"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> ValueWorld:
    return sequenced(tmp_path, request.param)


def sequenced(folder: Path, kind: str, **value: object) -> ValueWorld:
    """Both tables of a pipeline of events."""
    given: dict[str, object] = {
        "envelope": "debezium",
        "sequence_by": ["source.lsn", "transaction.total_order"],
    }
    return ValueWorld(
        folder, kind, DDL, {"mode": "upsert", "key": ["id"]}, value={**given, **value}
    )


def put(key: int, name: str | None, lsn: int, op: str = "u", order: int | None = None) -> Record:
    return event(op, {"id": key, "name": name}, lsn, order=order, fields=SHORT)


def gone(key: int, lsn: int) -> Record:
    return event("d", {"id": key}, lsn, fields=SHORT)


def commit(world: ValueWorld, records: Sequence[Record]) -> None:
    world.commit([one.value for one in records], keys=[one.key for one in records])


def test_a_snapshot_and_changes(world: ValueWorld) -> None:
    commit(world, [put(key, "first", 100, "r") for key in range(1, 5)])
    deletion = gone(2, 110)
    # A changed key is a deletion and a creation at one position in the log.
    moved = [gone(3, 120), tombstone(gone(3, 120)), put(30, "first", 120, "c")]
    commit(world, [put(1, "new", 105), deletion, tombstone(deletion), *moved])
    assert world.held("id", "name") == [(1, "new"), (30, "first"), (4, "first")]
    assert world.reasons() == {}


def test_an_older_change_does_nothing(world: ValueWorld) -> None:
    """In the same batch, in a later one, and after a deletion."""
    commit(world, [put(1, "b", 20), put(1, "a", 10), gone(2, 20), put(2, "a", 10)])
    assert world.held("id", "name") == [(1, "b")]
    commit(world, [put(1, "old", 15), put(2, "old", 15), gone(1, 19), put(3, "new", 5)])
    assert world.held("id", "name") == [(1, "b"), (3, "new")]
    commit(world, [put(1, "c", 21), put(2, "c", 21)])
    assert world.held("id", "name") == [(1, "c"), (2, "c"), (3, "new")]
    commit(world, [gone(2, 22), gone(1, 20)])
    commit(world, [put(2, "old", 21, order=9)])
    assert world.held("id", "name") == [(1, "c"), (3, "new")]


def test_at_one_position_the_later_offset_counts(world: ValueWorld) -> None:
    commit(world, [put(1, "a", 10), put(1, "b", 10)])
    assert world.held("id", "name") == [(1, "b")]
    commit(world, [put(1, "c", 10)])
    assert world.held("id", "name") == [(1, "c")]
    commit(world, [put(1, "e", 10, order=2), put(1, "d", 10, order=1)])
    assert world.held("id", "name") == [(1, "e")]
    commit(world, [gone(1, 11), put(1, "f", 11, "c")])
    assert world.held("id", "name") == [(1, "f")]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_replay_leaves_out_what_is_older(tmp_path: Path, kind: str) -> None:
    """Rejects of a rule that was wrong: one is older than its row, one than a deletion."""
    world = sequenced(tmp_path, kind)
    bad = [put(1, None, 10), put(2, None, 10), put(3, "x", 10)]
    world.ddl = "id bigint, name string NOT NULL"
    commit(world, bad)
    assert set(world.reasons()) == {0, 1}
    commit(world, [put(1, "new", 20), gone(2, 20)])
    world.ddl = DDL
    world.replay()
    assert world.held("id", "name") == [(1, "new"), (3, "x")]
    assert world.reasons() == {}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_flat_rows_in_a_table(tmp_path: Path, kind: str) -> None:
    world = sequenced(tmp_path, kind, envelope="debezium_flat", sequence_by="__lsn")
    commit(world, [flat({"id": 1, "name": "a"}, 10), flat({"id": 2, "name": "a"}, 10)])
    commit(world, [flat({"id": 1}, 12, deleted=True), flat({"id": 2, "name": "b"}, 11)])
    commit(world, [flat({"id": 1, "name": "old"}, 11)])
    assert world.held("id", "name") == [(2, "b")]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_events_without_a_sequence_follow_the_offsets(tmp_path: Path, kind: str) -> None:
    world = ValueWorld(
        tmp_path, kind, DDL, {"mode": "upsert", "key": ["id"]}, value={"envelope": "debezium"}
    )
    commit(world, [put(1, "a", 20), put(2, "a", 20), put(1, "b", 10)])
    commit(world, [gone(2, 5), put(3, "c", 1)])
    assert world.held("id", "name") == [(1, "b"), (3, "c")]
    assert "_sequence" not in world.rows.read().schema.names


def test_a_key_of_two_columns(tmp_path: Path) -> None:
    for kind in ("delta", "iceberg"):
        world = ValueWorld(
            tmp_path / kind,
            kind,
            DDL,
            {"mode": "upsert", "key": ["name", "id"]},
            value={"envelope": "debezium", "sequence_by": "source.lsn"},
        )
        key = {"id": 1, "name": "a"}
        row = {"id": 1, "name": "a"}
        commit(world, [event("c", row, 5, key=key), event("d", row, 6, key=key)])
        commit(world, [event("u", row, 5, key=key), event("c", {**row, "id": 2}, 7, key=key)])
        assert world.held("id", "name") == [(2, "a")]
