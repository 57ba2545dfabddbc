"""Upserts into Delta tables with times as Spark writes them: kept, or the table is refused.

The files have no schema of Arrow's, as those of Spark: with it `deltalake` reads INT96 right.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.spark.tables.formats.port import TableRefusedError
from tests.spark.tables.foreign_delta import append_entry, column, create_foreign, protocol_of
from tests.spark.tables.foreign_world import ForeignWorld

MOMENT = pa.timestamp("us", "UTC")
INSIDE = pa.list_(pa.struct([("at", MOMENT)]))
FIELDS = [column("id"), column("amount", "double"), column("at", "timestamp")]
FAR = datetime(9999, 12, 31, tzinfo=UTC)
EARLY = datetime(1582, 10, 4, tzinfo=UTC)
NEAR = datetime(2026, 1, 1, tzinfo=UTC)
NESTED = {
    "type": "array",
    "elementType": {"type": "struct", "fields": [column("at", "timestamp")]},
    "containsNull": True,
}


def filled(
    world: ForeignWorld, at: datetime, inside: datetime, stats: object = None, *, is_int96: bool
) -> None:
    """Two rows in a file as Spark writes it."""
    lines = {"name": "lines", "type": NESTED, "nullable": True, "metadata": {}}
    create_foreign(world.table, protocol_of(writer=2), fields=[*FIELDS, lines])
    rows = {
        "id": pa.array([1, 2], pa.int64()),
        "amount": pa.array([1.0, 2.0]),
        "at": pa.array([at, None], MOMENT),
        "lines": pa.array([[{"at": inside}, None], None], INSIDE),
    }
    place = world.table / "spark.parquet"
    pq.write_table(
        pa.table(rows), place, use_deprecated_int96_timestamps=is_int96, store_schema=False
    )
    add: dict[str, Any] = {
        "path": place.name,
        "partitionValues": {},
        "size": place.stat().st_size,
        "modificationTime": 1,
        "dataChange": True,
        "stats": json.dumps({"numRecords": 2, **(stats if isinstance(stats, dict) else {})}),
    }
    append_entry(world.table, 1, {"add": add})


@pytest.mark.parametrize(
    ("at", "inside", "named"),
    [(FAR, NEAR, "'at'"), (EARLY, NEAR, "'at'"), (NEAR, FAR, r"'lines\..*at'")],
)
def test_times_that_a_merge_would_change_refuse_the_table(
    tmp_path: Path, at: datetime, inside: datetime, named: str
) -> None:
    """9999-12-31 was 1816-03-29 in the rows beside the one that was changed."""
    world = ForeignWorld(tmp_path, mode="upsert")
    filled(world, at, inside, is_int96=True)
    pipeline = world.start()
    with pytest.raises(TableRefusedError, match=rf"INT96.*column {named}"):
        pipeline.commit({"id": 2, "amount": 20.0})
    appending = ForeignWorld(tmp_path / "other")
    filled(appending, at, inside, is_int96=True)
    appending.start().commit({"id": 2, "amount": 20.0})


@pytest.mark.parametrize(("at", "is_int96"), [(NEAR, True), (FAR, False), (EARLY, False)], ids=str)
def test_other_times_are_kept(tmp_path: Path, at: datetime, *, is_int96: bool) -> None:
    world = ForeignWorld(tmp_path, mode="upsert")
    filled(world, at, at, is_int96=is_int96)
    pipeline = world.start()
    pipeline.commit({"id": 2, "amount": 20.0})
    pipeline.commit({"id": 3, "amount": 3.0})
    assert world.rows("id", "at")[0] == (1, at)


def test_bounds_of_the_log_count_only_inside_of_what_can_be_kept(tmp_path: Path) -> None:
    for folder, end in (("near", "2026-01-01T00:00:00.000Z"), ("far", "9999-12-31T00:00:00.000Z")):
        world = ForeignWorld(tmp_path / folder, mode="upsert")
        at = NEAR if folder == "near" else FAR
        bounds = {name: {"at": end} for name in ("minValues", "maxValues")}
        filled(world, at, NEAR, bounds, is_int96=True)
        pipeline = world.start()
        if folder == "near":
            pipeline.commit({"id": 2, "amount": 20.0})
            continue
        with pytest.raises(TableRefusedError, match="INT96"):
            pipeline.commit({"id": 2, "amount": 20.0})
