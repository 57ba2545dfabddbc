"""Folders with odd names: a table's files lie where its format's own library looks for them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import fs
from pyiceberg.catalog import load_catalog

from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.files.data_files import open_directory, write_files
from penstock.spark.tables.formats.opening import make_table
from tests.spark.tables.change_batches import SCHEMA, change_rows, written_changes
from tests.spark.tables.pipeline_world import World
from tests.spark.tables.table_kinds import commit_of, taken

pytestmark = pytest.mark.slow

ODD = ["a b", "a%20b", "ü", "a+b", "a&b=c", "100%", "a:b"]
"""Names of folders that both formats take in a URI."""


def definition(folder: Path, format_: str, warehouse: str) -> PipelineDefinition:
    catalog = {"warehouse": warehouse}
    if format_ == "iceberg":
        catalog |= {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"}
    world = World(folder, format_, "127.0.0.1:1", "orders")
    return world.definition(table={"catalog": catalog})


def read(made: PipelineDefinition) -> list[Any]:
    """By the format's own library, with the warehouse as the definition has it."""
    catalog = dict(made.table.catalog)
    if made.table.format.value == "delta":
        found = DeltaTable(f"{catalog['warehouse']}/shop/orders").to_pyarrow_table()
    else:
        with load_catalog("default", **catalog) as opened:
            found = opened.load_table("shop.orders").scan().to_arrow()
    return sorted(found["id"].to_pylist())


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
@pytest.mark.parametrize(
    ("start", "name"),
    [*(("file://", name) for name in ODD), *(("", name) for name in ("a b", "ü", "a#b", "a?b"))],
)
def test_files_lie_where_the_format_looks(
    tmp_path: Path, format_: str, start: str, name: str
) -> None:
    made = definition(tmp_path, format_, f"{start}{tmp_path}/{name}")
    table = make_table(made.table, "shop.orders", SCHEMA)
    driver, state = taken(table, "run-a")
    for number in range(3):
        rows = pa.RecordBatch.from_pylist([{"id": number}], schema=SCHEMA)
        files = write_files([rows], table.layout(SCHEMA), "task")
        state = table.append(commit_of(state, driver, (0, number, number + 1)), files)
    assert read(made) == [0, 1, 2]
    changes = written_changes(table, change_rows([(1, None), (7, 7)], 3))
    state = table.upsert(commit_of(state, driver, (0, 3, 5)), changes)
    assert read(made) == [0, 2, 7]
    table.compact(state, target_bytes=2**20)
    assert read(made) == [0, 2, 7]
    assert [row for batch in table.scan(["id"]) for row in batch.to_pylist()]
    table.remove_orphans(older_than_ms=0)
    assert read(made) == [0, 2, 7]
    table.close()
    places = {one.name for one in tmp_path.iterdir()} - {"catalog.db"}
    assert len(places) == 1, "and nowhere else"


@pytest.mark.parametrize(
    ("format_", "warehouse", "told"),
    [
        ("iceberg", "file:///data/a#b", "follows '#'"),
        ("iceberg", "s3://bucket/a?b", "follows '?'"),
        ("iceberg", "/data/a\nb", "control character"),
        ("delta", "file:///data/a#b", "follows '#'"),
        ("delta", "s3://bucket/a?b", "follows '?'"),
        ("delta", "s3://bucket/a%20b", "'%20'"),
        ("delta", "/data/a%20b", "'%20'"),
        ("delta", "file:///data/a%2520b", "'%20'"),
        ("delta", "/data/a[b]", r"'\['"),
        ("delta", "file:///data/a%5Eb", r"'\^'"),
        ("delta", "/data/a|b", r"'\|'"),
        ("delta", "/data/a\\b", "does not find again"),
    ],
)
def test_what_cannot_be_found_again_is_refused(
    tmp_path: Path, format_: str, warehouse: str, told: str
) -> None:
    with pytest.raises(DefinitionError, match=told) as refused:
        definition(tmp_path, format_, warehouse)
    assert refused.value.key == "table.catalog.warehouse"


def test_a_remote_location_is_taken_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Remote:
        @staticmethod
        def from_uri(uri: str) -> tuple[object, str]:
            asked.append(uri)
            return object(), "bucket"

    monkeypatch.setattr(fs, "FileSystem", Remote)
    open_directory("s3://bucket/a b/c%20d/ü/data")
    open_directory("abfs://container@account.dfs.core.windows.net/data")
    assert asked == [
        "s3://bucket/a%20b/c%2520d/%C3%BC/data",
        "abfs://container@account.dfs.core.windows.net/data",
    ]


@pytest.mark.parametrize("directory", ["/w/a%20b/", "file:///w/a%20b", "file:/w/a%20b"])
def test_a_local_location_is_taken_as_it_is_written(directory: str) -> None:
    filesystem, root = open_directory(directory)
    assert isinstance(filesystem, fs.LocalFileSystem)
    assert root == "/w/a%20b"
