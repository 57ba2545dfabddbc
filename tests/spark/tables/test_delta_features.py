"""Delta tables that `deltalake` created, with every feature that it can set: written or refused.

The quick half of the contract with tables of others; `test_table_contracts` is the other, with
Spark. The tables are read back by `deltalake` and, file by file, by DuckDB.
"""

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake

from penstock.spark.tables.formats.delta.protocol import PASSIVE
from penstock.spark.tables.formats.port import TableRefusedError
from tests.spark.tables.foreign_world import ForeignWorld

pytestmark = pytest.mark.slow

FEATURES = [name for name in vars(TableFeatures) if name[0].isupper()]
NAMES = {
    "AppendOnly": "appendOnly",
    "ChangeDataFeed": "changeDataFeed",
    "CheckConstraints": "checkConstraints",
    "ColumnMapping": "columnMapping",
    "DeletionVectors": "deletionVectors",
    "GeneratedColumns": "generatedColumns",
    "Invariants": "invariants",
    "TimestampWithoutTimezone": "timestampNtz",
    "V2Checkpoint": "v2Checkpoint",
    "VariantType": "variantType",
    "VariantTypePreview": "variantType-preview",
}
"""Of features that ask nothing until they are used, as the protocol spells them."""


def created(folder: Path, mode: str) -> ForeignWorld:
    world = ForeignWorld(folder, "id bigint, amount double", mode)
    rows = pa.table({"id": [1, 2], "amount": [1.0, 2.0]})
    write_deltalake(world.table, rows)
    return world


def test_every_feature_of_the_library_is_known_here() -> None:
    """A version of `deltalake` that can set more has to be looked at."""
    assert len(FEATURES) == 16
    assert set(NAMES.values()) == PASSIVE


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_is_written_right_or_refused(tmp_path: Path, name: str, mode: str) -> None:
    world = created(tmp_path, mode)
    # Nanoseconds are refused by the library without the other one.
    needed = ["TimestampWithoutTimezone"] if name == "TimestampNanos" else []
    for one in (*needed, name):
        DeltaTable(world.table).alter.add_feature(
            getattr(TableFeatures, one), allow_protocol_versions_increase=True
        )
    before = DeltaTable(world.table).version()
    if name not in NAMES:
        with pytest.raises(TableRefusedError, match=r"cannot be written \("):
            world.start()
        assert DeltaTable(world.table).version() == before
        return
    pipeline = world.start()
    pipeline.commit({"id": 2, "amount": 20.0}, {"id": 3, "amount": 3.0})
    pipeline.commit({"id": 4, "amount": 4.0})
    rows = {
        "append": [(1, 1.0), (2, 2.0), (2, 20.0), (3, 3.0), (4, 4.0)],
        "upsert": [(1, 1.0), (2, 20.0), (3, 3.0), (4, 4.0)],
    }[mode]
    assert world.rows("id", "amount") == rows
    files = DeltaTable(world.table).file_uris()
    relation = duckdb.read_parquet(files, union_by_name=True)
    assert sorted(relation.select("id, amount").fetchall()) == rows


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("name", ["_change_type", "_commit_version", "_commit_timestamp"])
def test_a_feed_that_a_column_hides_is_refused(tmp_path: Path, name: str, mode: str) -> None:
    world = ForeignWorld(tmp_path, "id bigint, amount double", mode)
    rows = pa.table({"id": [1, 2], "amount": [1.0, 2.0], name: ["a", "b"]})
    write_deltalake(world.table, rows, configuration={"delta.enableChangeDataFeed": "true"})
    with pytest.raises(TableRefusedError, match=rf"changeDataFeed.*{name}"):
        world.start()
    assert DeltaTable(world.table).version() == 0


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_change_data_feed_has_every_change(tmp_path: Path, mode: str) -> None:
    world = ForeignWorld(tmp_path, "id bigint, amount double", mode)
    rows = pa.table({"id": [1, 2], "amount": [1.0, 2.0]})
    write_deltalake(world.table, rows, configuration={"delta.enableChangeDataFeed": "true"})
    world.start().commit({"id": 2, "amount": 20.0}, {"id": 3, "amount": 3.0})
    found = pa.table(DeltaTable(world.table).load_cdf(starting_version=1).read_all())
    kinds = zip(found["id"].to_pylist(), found["_change_type"].to_pylist(), strict=True)
    assert (
        sorted(kinds)
        == {
            "append": [(2, "insert"), (3, "insert")],
            "upsert": [(2, "update_postimage"), (2, "update_preimage"), (3, "insert")],
        }[mode]
    )
