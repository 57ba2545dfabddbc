"""Tables that are dropped, renamed or recreated while a pipeline runs: it stops, with the reason.

A Delta table is a folder: another table there has entries of the same numbers, so a commit behind a
number was accepted, and its note claimed rows that the new table does not have.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField

from penstock.core.errors import PenstockError
from penstock.spark.tables.formats.port import TableReplacedError
from tests.spark.tables.foreign_delta import (
    PLAIN,
    FieldJson,
    append_entry,
    column,
    metadata_action,
)
from tests.spark.tables.foreign_world import ForeignPipeline, ForeignWorld

pytestmark = pytest.mark.slow

ROWS = pa.table({"id": [1, 2], "amount": [1.0, 2.0]})
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "amount", DoubleType(), required=False),
)
modes = pytest.mark.parametrize("mode", ["append", "upsert"])


def running(world: ForeignWorld) -> ForeignPipeline:
    write_deltalake(world.table, ROWS)
    pipeline = world.start()
    pipeline.commit({"id": 3})
    pipeline.commit({"id": 4})
    return pipeline


@modes
@pytest.mark.parametrize("more", [-2, 0, 1, 3])
def test_another_delta_table_in_the_same_folder(tmp_path: Path, mode: str, more: int) -> None:
    """With fewer versions, as many, or more than the pipeline has read."""
    world = ForeignWorld(tmp_path, mode=mode)
    pipeline = running(world)
    count = DeltaTable(world.table).version() + 1 + more
    shutil.rmtree(world.table)
    for n in range(count):
        write_deltalake(world.table, pa.table({"id": [n], "amount": [0.0]}), mode="append")
    with pytest.raises(TableReplacedError, match="Start the pipeline again"):
        pipeline.commit({"id": 5})
    assert DeltaTable(world.table).version() == count - 1
    assert world.rows("id") == [(n,) for n in range(count)]


@modes
def test_a_delta_table_that_is_gone(tmp_path: Path, mode: str) -> None:
    world = ForeignWorld(tmp_path, mode=mode)
    pipeline = running(world)
    world.table.rename(world.table.with_name("other"))
    with pytest.raises(TableReplacedError):
        pipeline.commit({"id": 5})
    assert not (world.table / "_delta_log").exists()


@modes
def test_a_delta_table_that_was_copied_back_is_the_same(tmp_path: Path, mode: str) -> None:
    """Times of files change, the id of the table does not."""
    world = ForeignWorld(tmp_path, mode=mode)
    pipeline = running(world)
    shutil.copytree(world.table, tmp_path / "copy", copy_function=shutil.copyfile)
    shutil.rmtree(world.table)
    shutil.copytree(tmp_path / "copy", world.table, copy_function=shutil.copyfile)
    pipeline.commit({"id": 5})
    assert world.rows("id") == [(n,) for n in range(1, 6)]


def test_a_delta_table_whose_log_was_cut_is_the_same(tmp_path: Path) -> None:
    """The entry that was read last is gone, and the table goes on."""
    world = ForeignWorld(tmp_path)
    pipeline = running(world)
    last = DeltaTable(world.table).version()
    for _ in range(3):
        write_deltalake(world.table, pa.table({"id": [9]}), mode="append", schema_mode="merge")
    DeltaTable(world.table).create_checkpoint()
    (world.table / "_delta_log" / f"{last:020d}.json").unlink()
    pipeline.commit({"id": 5})
    assert (5,) in world.rows("id")


def recreate(catalog: Catalog) -> None:
    catalog.drop_table("shop.orders")
    catalog.create_table("shop.orders", SCHEMA)


CHANGES: dict[str, Callable[[Catalog], object]] = {
    "created anew": recreate,
    "dropped": lambda catalog: catalog.drop_table("shop.orders"),
    "renamed": lambda catalog: catalog.rename_table("shop.orders", "shop.other"),
}


@modes
@pytest.mark.parametrize("change", CHANGES)
def test_an_iceberg_table(tmp_path: Path, mode: str, change: str) -> None:
    """It was an error of the library, without a remedy."""
    world = ForeignWorld(tmp_path, mode=mode, format="iceberg")
    options = dict(world.definition.table.catalog)
    with load_catalog("default", **options) as catalog:
        catalog.create_namespace("shop")
        catalog.create_table("shop.orders", SCHEMA)
    pipeline = world.start()
    pipeline.commit({"id": 3})
    with load_catalog("default", **options) as catalog:
        CHANGES[change](catalog)
    with pytest.raises(TableReplacedError, match="Start the pipeline again"):
        pipeline.commit({"id": 5})
    if change == "created anew":
        assert world.rows("id") == []


# --- Another schema in the same table ---


def replace_schema(world: ForeignWorld, fields: Sequence[FieldJson], parts: Sequence[str]) -> None:
    """As `CREATE OR REPLACE TABLE` does it: no rows, other columns, the same log."""
    table = DeltaTable(world.table)
    files = pa.table(table.get_add_actions(flatten=True))["path"].to_pylist()
    action = metadata_action(fields, {})
    action["metaData"] |= {"id": str(table.metadata().id), "partitionColumns": list(parts)}
    removed = [
        {"remove": {"path": one, "dataChange": True, "deletionTimestamp": 1}} for one in files
    ]
    append_entry(world.table, table.version() + 1, action, *removed)


@modes
def test_a_delta_table_that_lost_a_column_gets_it_again(tmp_path: Path, mode: str) -> None:
    """Files with a column that the table does not have were committed; an upsert failed."""
    world = ForeignWorld(tmp_path, mode=mode)
    pipeline = running(world)
    replace_schema(world, PLAIN, ())
    pipeline.commit({"id": 5, "amount": 5.0})
    assert world.rows("id", "amount") == [(5, 5.0)]
    (kafka,) = world.rows("_kafka")
    assert kafka[0]["offset"] == 2
    log = sorted((world.table / "_delta_log").glob("*.json"))
    assert "_kafka" in log[-2].read_text(), "before the files"


@modes
@pytest.mark.parametrize(
    ("fields", "parts", "error"),
    [
        ((column("id"), column("amount", "string")), (), "amount' is string in the table"),
        ((column("id"), column("Amount", "double")), (), "only in its case"),
        (PLAIN, ("id",), "is partitioned by"),
        ((*PLAIN, column("z", nullable=False)), (), "'z' is required"),
    ],
    ids=["type", "case", "partitions", "required"],
)
def test_a_delta_table_with_a_schema_that_does_not_fit_any_more(
    tmp_path: Path, mode: str, fields: Sequence[FieldJson], parts: Sequence[str], error: str
) -> None:
    """A file of another type, and files outside of the partitions, whose rows read NULL there."""
    world = ForeignWorld(tmp_path, mode=mode)
    pipeline = running(world)
    replace_schema(world, fields, parts)
    version = DeltaTable(world.table).version()
    with pytest.raises(PenstockError, match=error):
        pipeline.commit({"id": 5, "amount": 5.0})
    assert DeltaTable(world.table).version() == version
