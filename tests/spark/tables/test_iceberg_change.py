"""A change of an Iceberg table computes its resulting metadata once."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table, Transaction

from penstock.spark.tables.formats.iceberg.change import Change


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("shop")
    yield catalog.create_table("shop.orders", pa.schema([("id", pa.int64())]))
    catalog.close()


def test_metadata_is_worked_out_once_for_what_is_staged(table: Table) -> None:
    change = Change(table)
    before = change.table_metadata
    assert change.table_metadata is before
    change.set_properties({"a": "1"})
    after = change.table_metadata
    assert change.table_metadata is after
    assert (before.properties.get("a"), after.properties["a"]) == (None, "1")


def test_it_is_what_pyiceberg_says(table: Table) -> None:
    ours, theirs = Change(table), Transaction(table)
    for change in (ours, theirs):
        change.set_properties({"a": "1"})
        change.update_schema().union_by_name(pa.schema([("more", pa.string())])).commit()
        change.set_properties({"b": "2"})
    expected = theirs.table_metadata
    assert ours.table_metadata.properties == expected.properties
    assert ours.table_metadata.schema() == expected.schema()


def test_a_table_that_was_committed_meanwhile_is_looked_at_anew(table: Table) -> None:
    change = Change(table)
    assert "a" not in change.table_metadata.properties
    with table.transaction() as other:
        other.set_properties({"a": "1"})
    assert change.table_metadata.properties["a"] == "1"
