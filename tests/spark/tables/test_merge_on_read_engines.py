"""Tables that were upserted by position deletes, read by engines that know nothing of us.

DuckDB reads with its own extension, Spark with the jar of Iceberg. The required rows are those of a
dictionary. Tables have partitions, rows that move between them, a schema that grows, delete files
that were absorbed, files without a row left, and a compaction in between.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from penstock.spark.tables.files.file_partitions import PartitionField, Transform
from tests.oracle.spark_jars import iceberg_jars
from tests.oracle.table_engines import engine_python
from tests.spark.tables.change_batches import (
    SCHEMA,
    Model,
    applied,
    change_rows,
    written_changes,
)
from tests.spark.tables.table_kinds import MergeOnReadKind, commit_of, taken
from tests.spark.tables.test_table_engines import APP, READ_SECONDS_MAX, complaints, job

pytestmark = pytest.mark.spark

PARTITIONED: Mapping[str, Sequence[PartitionField]] = {
    "whole": (),
    "day": (PartitionField("_kafka_timestamp", Transform.DAY),),
    "a_column": (PartitionField("amount"),),
    "a_bucket": (PartitionField("id", Transform.BUCKET, 4),),
}
NAMES = [f"{part}_{state}" for part in PARTITIONED for state in ("written", "compacted")]
WIDER = pa.schema([*SCHEMA, pa.field("city", pa.string())])


def write(kind: MergeOnReadKind, partitions: Sequence[PartitionField], *, compacted: bool) -> Model:
    """Six upserts with keys that come again; return the required rows."""
    table = kind.create(partitions)
    driver, state = taken(table, "run-a")
    model: Model = {}
    for number, at in enumerate(range(0, 120, 20)):
        schema = SCHEMA if number < 3 else WIDER
        batch = [((at + n * 7) % 50, None if n % 9 == 8 else (at + n) % 4) for n in range(20)]
        if number == 2:  # a file of the first batch has no row left
            batch = [(key % 50, 3) for key in range(0, 140, 7)]
        rows = change_rows(batch, at, schema=schema)
        changes = written_changes(table, rows, schema=schema)
        state = table.upsert(commit_of(state, driver, (0, at, at + 20)), changes, schema)
        model = applied(model, rows, schema)
        if compacted and number in (3, 5):
            state = table.compact(state, target_bytes=2**20).state
    return model


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[MergeOnReadKind, Model]]:
    """Every table with its rows."""
    found = {}
    for part, fields in PARTITIONED.items():
        for state in ("written", "compacted"):
            kind = MergeOnReadKind(tmp_path_factory.mktemp(part), schema=SCHEMA)
            found[f"{part}_{state}"] = kind, write(kind, fields, compacted=state == "compacted")
    return found


@pytest.fixture(scope="module", params=["duckdb", "spark"])
def read_by(
    request: pytest.FixtureRequest,
    tables: dict[str, tuple[MergeOnReadKind, Model]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A folder with the rows that an engine read, one Arrow file for each table."""
    folder = tmp_path_factory.mktemp(request.param)
    done = subprocess.run(
        [engine_python(), str(APP), str(folder), request.param],
        input=json.dumps([job(name, kind) for name, (kind, _) in tables.items()]),
        env={
            **os.environ,
            "ENGINE_JARS": ",".join(map(str, iceberg_jars())),
            "ENGINE_FORMATS": "iceberg",
            "PYTHONPATH": "",
        },
        capture_output=True,
        text=True,
        timeout=READ_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, complaints(done.stderr)
    return folder


def in_order(rows: Sequence[dict[str, object]]) -> list[str]:
    """The rows as text, in one order."""
    names = [name for name in WIDER.names if name != "_kafka_timestamp"]
    return sorted(json.dumps({name: one.get(name) for name in names}) for one in rows)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_another_engine_reads_the_rows_of_the_dictionary(
    name: str, tables: dict[str, tuple[MergeOnReadKind, Model]], read_by: Path
) -> None:
    with pa.memory_map(str(read_by / f"{name}.arrow")) as source:
        found = pa.ipc.open_file(source).read_all().to_pylist()
    kind, model = tables[name]
    assert in_order(found) == in_order(list(model.values()))
    table = kind.open()
    table.load()
    assert sum(one.row_count for one in table.live_files()) == len(model)
    scanned = [row for batch in table.scan(WIDER.names) for row in batch.to_pylist()]
    assert in_order(scanned) == in_order(found)
    if name.endswith("written"):
        with load_catalog("default", **kind.catalog) as catalog:
            deletes = catalog.load_table("shop.orders").inspect.delete_files()
        assert deletes.num_rows > 0, "the rows of the test were deleted by position"
