"""Tables of partial updates: in both formats, and both ways of upserts."""

from collections.abc import Callable, Sequence
from typing import Any

from tests.spark.cdc.events import Record
from tests.spark.tables.value_world import ValueWorld

Row = dict[str, Any]
World = Callable[..., ValueWorld]


def write(world: ValueWorld, records: Sequence[Record]) -> None:
    world.commit([one.value for one in records], keys=[one.key for one in records])


def rows_in(world: ValueWorld, names: Sequence[str]) -> dict[int, Row]:
    found = world.rows.read().select(["id", *names]).to_pylist()
    rows = {one.pop("id"): one for one in found}
    assert len(rows) == len(found), "a key is there twice"
    return rows
