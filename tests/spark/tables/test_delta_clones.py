"""Delta tables that Spark converted from Parquet: their first entry came after version -1."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.spark.tables.delta_reading import DeltaReader
from tests.spark.tables.foreign_world import ForeignWorld

MODES = ("append", "upsert")
HELD = pa.table({"id": [1, 2], "amount": [1.0, 2.0]})


def converted(world: ForeignWorld) -> None:
    """As `CONVERT TO DELTA` writes its entry."""
    write_deltalake(world.table, HELD)
    entry = world.table / "_delta_log" / f"{0:020d}.json"
    text = entry.read_text()
    assert text.count('"commitInfo":{') == 1
    entry.write_text(text.replace('"commitInfo":{', '"commitInfo":{"readVersion":-1,'))


@pytest.mark.parametrize("mode", MODES)
def test_a_table_that_was_converted_is_written(tmp_path: Path, mode: str) -> None:
    world = ForeignWorld(tmp_path, mode=mode)
    converted(world)
    with pytest.raises(Exception, match="invalid value: integer `-1`"):
        DeltaTable(world.table).history()  # which is why the entries are read by us
    pipeline = world.start()
    pipeline.bring({"id": 2, "amount": 20.0}, {"id": 3, "amount": 3.0})
    facts = DeltaReader(str(world.table), {}).facts()
    assert facts.snapshot_count == DeltaTable(world.table).version() + 1
    assert [one.pipeline for one in facts.commits] == ["orders", "orders"]
    rows = {
        "append": [(1, 1.0), (2, 2.0), (2, 20.0), (3, 3.0)],
        "upsert": [(1, 1.0), (2, 20.0), (3, 3.0)],
    }[mode]
    assert world.rows("id", "amount") == rows
    assert facts.row_count == len(rows)
