"""Delta tables that Spark converted from Parquet or cloned from another table.

Their first entry came after version -1. Files of a shallow clone lie in the other table.
"""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.spark.tables.formats.delta.reading import DeltaReader
from penstock.spark.tables.formats.opening import open_table
from penstock.spark.tables.formats.port import TableRefusedError
from tests.spark.tables.foreign_delta import (
    CREATED_MS,
    PLAIN,
    append_entry,
    create_foreign,
    protocol_of,
)
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
    pipeline.commit({"id": 2, "amount": 20.0}, {"id": 3, "amount": 3.0})
    facts = DeltaReader(str(world.table), {}).facts()
    assert facts.snapshot_count == DeltaTable(world.table).version() + 1
    assert [one.pipeline for one in facts.commits] == ["orders", "orders"]
    rows = {
        "append": [(1, 1.0), (2, 2.0), (2, 20.0), (3, 3.0)],
        "upsert": [(1, 1.0), (2, 20.0), (3, 3.0)],
    }[mode]
    assert world.rows("id", "amount") == rows
    assert facts.row_count == len(rows)


def cloned(world: ForeignWorld, source: Path) -> list[str]:
    """As `SHALLOW CLONE` does it: the files by their whole names; they are returned."""
    write_deltalake(source, HELD)
    write_deltalake(source, HELD, mode="append")
    create_foreign(world.table, protocol_of(writer=2), fields=PLAIN)
    names = [f"file:{one}" for one in DeltaTable(source).file_uris()]
    parts = {"partitionValues": {}, "modificationTime": CREATED_MS, "dataChange": True}
    adds = [
        {"add": {"path": one, "size": Path(one.removeprefix("file:")).stat().st_size, **parts}}
        for one in names
    ]
    append_entry(world.table, 1, *adds)
    return names


def test_files_of_the_cloned_table_are_left_alone(tmp_path: Path) -> None:
    """A compaction looked for them in the folder of the clone, and failed each time."""
    world = ForeignWorld(tmp_path)
    names = cloned(world, tmp_path / "source")
    pipeline = world.start()
    pipeline.commit({"id": 3, "amount": 3.0})
    pipeline.commit({"id": 4, "amount": 4.0})
    table = open_table(world.definition.table, world.name)
    assert table.compact(table.load(), target_bytes=2**20).removed_count == 2
    assert set(names) < {one.path for one in table.live_files()}
    assert world.rows("id", "amount") == [(1, 1.0)] * 2 + [(2, 2.0)] * 2 + [(3, 3.0), (4, 4.0)]
    assert DeltaTable(tmp_path / "source").version() == 1


def test_an_upsert_into_rows_of_the_cloned_table_is_refused_as_that(tmp_path: Path) -> None:
    """It was tried 20 times, and the reason was that others commit all the time."""
    world = ForeignWorld(tmp_path, mode="upsert")
    cloned(world, tmp_path / "source")
    pipeline = world.start()
    with pytest.raises(TableRefusedError, match="is a shallow clone"):
        pipeline.commit({"id": 2, "amount": 20.0})
    assert world.rows("id", "amount") == [(1, 1.0)] * 2 + [(2, 2.0)] * 2
    assert DeltaTable(tmp_path / "source").version() == 1
