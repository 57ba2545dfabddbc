"""Debezium's placeholders in tables of partial updates: stored values are kept, in both formats."""

import pytest

from tests.spark.cdc.events import FIELDS, GEOMETRY, Record, event, flat, geometry
from tests.spark.cdc.partial_world import Row, World, rows_in, write

pytestmark = pytest.mark.slow

PLACEHOLDER = "__debezium_unavailable_value"


def put(key: int, lsn: int, op: str = "u", **columns: object) -> Record:
    row = {"id": key, "name": PLACEHOLDER, "data": PLACEHOLDER.encode(), **columns}
    return event(op, row, lsn, fields=[FIELDS[0], FIELDS[1], FIELDS[3], FIELDS[9]])


def test_a_value_that_was_not_sent_is_kept(make: World) -> None:
    world = make(
        "id bigint, name string, big bigint, data binary",
        {"envelope": "debezium", "sequence_by": "source.lsn"},
    )
    write(world, [put(1, 10, "c", name="long", big=1, data=b"bytes")])
    write(world, [put(1, 20, big=2), put(1, 30, name=None, big=3)])
    names = ("name", "big", "data")
    assert rows_in(world, names) == {1: {"name": None, "big": 3, "data": b"bytes"}}
    write(world, [put(1, 40, name="new", big=4), put(1, 50, big=5, data=None)])
    assert rows_in(world, names) == {1: {"name": "new", "big": 5, "data": None}}
    write(world, [put(1, 45, name="late", big=0)])
    assert rows_in(world, names) == {1: {"name": "new", "big": 5, "data": None}}
    gone = event("d", {"id": 1}, 60, fields=FIELDS[:1])
    write(world, [gone, put(1, 70, "c", name="again", big=7, data=b""), put(1, 80, big=8)])
    assert rows_in(world, names) == {1: {"name": "again", "big": 8, "data": b""}}
    assert world.reasons() == {}


def test_a_geometry_that_was_not_sent_is_kept(make: World) -> None:
    """Its placeholder is a field of a struct, and `srid` has a value beside it."""
    ddl = "id bigint, big bigint, shape struct<wkb: binary, srid: int>"
    world = make(ddl, {"envelope": "debezium", "sequence_by": "source.lsn"})
    fields = [FIELDS[0], FIELDS[3], GEOMETRY]

    def put(lsn: int, shape: Row | None, op: str = "u", key: int = 1) -> Record:
        return event(op, {"id": key, "big": lsn, "shape": shape}, lsn, fields=fields)

    unsent = geometry(PLACEHOLDER.encode())
    point, line = {"wkb": b"point", "srid": 4326}, {"wkb": b"line", "srid": None}
    names = ("big", "shape")
    write(world, [put(10, geometry(b"point"), "c")])
    write(world, [put(20, unsent)])
    assert rows_in(world, names) == {1: {"big": 20, "shape": point}}
    write(world, [put(30, geometry(b"line", None)), put(40, unsent)])
    assert rows_in(world, names) == {1: {"big": 40, "shape": line}}
    write(world, [put(50, None), put(60, unsent)])
    assert rows_in(world, names) == {1: {"big": 60, "shape": None}}
    assert world.reasons() == {}
    write(world, [put(70, unsent, "c", key=2)])
    assert rows_in(world, names) == {1: {"big": 60, "shape": None}}
    assert len(world.reasons()) == 1


def test_a_new_row_with_a_placeholder_is_a_reject(make: World) -> None:
    """PostgreSQL sends it for a row whose key has changed: the value is in the row of the old."""
    world = make("id bigint, name string, big bigint", {"envelope": "debezium"})
    write(world, [put(1, 10, "c", big=1), put(2, 11, "c", name="a", big=1)])
    assert rows_in(world, ("name",)) == {2: {"name": "a"}}
    assert "each column of a new row" in world.reasons()[0]


def test_flat_rows_keep_values_that_were_not_sent(make: World) -> None:
    world = make(
        "id bigint, name string, big bigint",
        {"envelope": "debezium_flat", "sequence_by": "__lsn"},
    )
    write(world, [flat({"id": 1, "name": "long", "big": 1}, 10)])
    write(world, [flat({"id": 1, "name": PLACEHOLDER, "big": 2}, 20), flat({"id": 1}, 30)])
    assert rows_in(world, ("name", "big")) == {1: {"name": "long", "big": 2}}
