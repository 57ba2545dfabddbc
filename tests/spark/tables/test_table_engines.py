"""Tables that our committer wrote, read by engines that know nothing of us, compared row by row.

DuckDB reads with its own extensions, Spark with the jars of Delta and Iceberg (Iceberg's tables by
their SQL catalog), Arrow the files that the formats' libraries list. The tables are partitioned in
several ways, their columns grow, are nested and (in Iceberg) widened while they are written, and
they are compacted in between.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow

from penstock.spark.decode.buffers import HEADERS
from penstock.spark.tables.definition.model import Metadata
from penstock.spark.tables.files.data_files import write_files
from penstock.spark.tables.files.file_partitions import PartitionField, Transform
from penstock.spark.tables.values.columns import metadata_columns, with_metadata
from tests.oracle.spark_jars import delta_jars, iceberg_jars
from tests.oracle.table_engines import engine_python
from tests.spark.tables.table_kinds import (
    SCHEMA,
    DeltaKind,
    IcebergKind,
    commit_of,
    rows_of,
    taken,
)

pytestmark = pytest.mark.spark

APP = Path(__file__).parent / "engine_app.py"
READ_SECONDS_MAX = 240
TARGET_BYTES = 2**20
PARTITIONED: Mapping[str, Sequence[PartitionField]] = {
    "whole": (),
    "day": (PartitionField("_kafka_timestamp", Transform.DAY),),
    "hour_month": (
        PartitionField("_kafka_timestamp", Transform.HOUR),
        PartitionField("_kafka_timestamp", Transform.MONTH),
    ),
    "values": (PartitionField("_kafka_partition"), PartitionField("name")),
    "metadata": (PartitionField("_kafka.timestamp", Transform.DAY),),
    "year": (PartitionField("_kafka_timestamp", Transform.YEAR),),
    "transforms": (
        PartitionField("_kafka_timestamp", Transform.BUCKET, 3),
        PartitionField("_kafka_offset", Transform.TRUNCATE, 50),
        PartitionField("name", Transform.BUCKET, 2),
        PartitionField("_kafka.key", Transform.TRUNCATE, 5),
    ),
}
DETAIL = pa.struct(
    [("tags", pa.list_(pa.string())), ("at", pa.struct([("x", pa.int64()), ("y", pa.int32())]))]
)
PRICES = pa.map_(pa.string(), pa.float64())
FIRST = pa.schema([*SCHEMA, *metadata_columns(Metadata.STRUCT)])
GROWN = (
    FIRST.append(pa.field("city", pa.string()))
    .append(pa.field("detail", DETAIL))
    .append(pa.field("prices", PRICES))
)
ICEBERG_ONLY = ("transforms",)
NAMES = [
    f"{name}_{part}"
    for name in ("delta", "iceberg")
    for part in PARTITIONED
    if name == "iceberg" or part not in ICEBERG_ONLY
]
Row = dict[str, Any]


@dataclass(frozen=True)
class Written:
    """A table, its location, and its required rows."""

    kind: DeltaKind | IcebergKind
    rows: list[Row]


def with_struct(partition: int, start: int, end: int, **columns: pa.Array) -> pa.RecordBatch:
    """Rows with the metadata of their records twice: in flat columns and in a struct."""
    rows = rows_of(partition, start, end, **columns)
    names = ("topic", "partition", "offset", "timestamp")
    flat = {name: rows.column(f"_kafka_{name}") for name in names}
    keys = pa.array([f"key {n}".encode() for n in range(start, end)])
    headers = pa.array([[{"key": "trace", "value": b"1"}]] * rows.num_rows, HEADERS)
    source = pa.RecordBatch.from_pydict({**flat, "key": keys, "headers": headers})
    return with_metadata(rows, source, Metadata.STRUCT)


def grown_rows(partition: int, start: int, end: int, *, amounts: pa.DataType) -> pa.RecordBatch:
    """Rows with every column there is in the end."""
    numbers = range(start, end)
    details = [
        None if n % 3 == 0 else {"tags": ["a", None][: n % 3], "at": {"x": 2**40 + n, "y": None}}
        for n in numbers
    ]
    prices = [None if n % 4 == 0 else [("chf", n / 8), ("eur", None)] for n in numbers]
    big = 2**40 if amounts == pa.int64() else 0
    return with_struct(
        partition,
        start,
        end,
        amount=pa.array([big + n for n in numbers], amounts),
        city=pa.array([None if n % 2 else f"Zürich {n}" for n in numbers]),
        detail=pa.array(details, DETAIL),
        prices=pa.array(prices, PRICES),
    )


def write(kind: DeltaKind | IcebergKind, fields: Sequence[PartitionField]) -> Written:
    """Four commits, a schema that grows, and two compactions in between."""
    table = kind.create(fields)
    driver, state = taken(table, "run-a")
    amounts = pa.int32() if isinstance(kind, DeltaKind) else pa.int64()
    columns = [field.with_type(amounts) if field.name == "amount" else field for field in GROWN]
    grown = pa.schema(columns)
    expected: list[Row] = []
    for start in (0, 40, 80, 120):
        spans = ((0, start, start + 40), (1, start // 4, start // 4 + 10))
        batches = [
            with_struct(*one) if start < 80 else grown_rows(*one, amounts=amounts) for one in spans
        ]
        schema = table.schema() if start < 80 else grown
        layout = table.layout(schema)
        files = [one for batch in batches for one in write_files([batch], layout, "task")]
        state = table.append(commit_of(state, driver, *spans), files, schema)
        expected += [row for batch in batches for row in batch.to_pylist()]
        if start in (40, 80):
            state = table.compact(state, target_bytes=TARGET_BYTES).state
    return Written(kind, [dict.fromkeys(GROWN.names) | row for row in expected])


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Written]:
    """Every table, by format and by how it is partitioned."""
    found = {}
    for part, fields in PARTITIONED.items():
        for kind_of in (IcebergKind,) if part in ICEBERG_ONLY else (DeltaKind, IcebergKind):
            kind = kind_of(tmp_path_factory.mktemp(part), schema=FIRST)
            found[f"{kind.name}_{part}"] = write(kind, fields)
    return found


def metadata_file(kind: IcebergKind) -> str:
    """The newest metadata of an Iceberg table: what stands for it where there is no catalog."""
    with load_catalog("default", **kind.catalog) as catalog:
        return catalog.load_table("shop.orders").metadata_location.removeprefix("file://")


def job(name: str, kind: DeltaKind | IcebergKind) -> dict[str, str]:
    """What an engine is told of a table."""
    if isinstance(kind, DeltaKind):
        return {"name": name, "format": "delta", "location": kind.uri}
    return {
        "name": name,
        "format": "iceberg",
        "location": metadata_file(kind),
        "database": str(kind.folder / "catalog.db"),
        "warehouse": kind.catalog["warehouse"],
        "table": "shop.orders",
    }


def complaints(text: str) -> str:
    """What an engine said, without the places in its code, of which Java names hundreds."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("at ")]
    return "\n".join(lines)[-4000:]


@pytest.fixture(scope="module", params=["duckdb", "spark"])
def read_by(
    request: pytest.FixtureRequest,
    tables: dict[str, Written],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A folder with what an engine read, one Arrow file for each table."""
    folder = tmp_path_factory.mktemp(request.param)
    jars = ",".join(str(jar) for jar in (*delta_jars("4.1"), *iceberg_jars()))
    done = subprocess.run(
        [engine_python(), str(APP), str(folder), request.param],
        input=json.dumps([job(name, one.kind) for name, one in tables.items()]),
        env={**os.environ, "ENGINE_JARS": jars, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=READ_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, complaints(done.stderr)
    return folder


def plain(value: object) -> object:
    """A value as every engine gives it: a map may come as a dictionary or as pairs."""
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, date):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return {key: plain(one) for key, one in value}
    return [plain(one) for one in value] if isinstance(value, list) else value


def in_order(rows: Sequence[Row], names: Sequence[str] = GROWN.names) -> list[Row]:
    """In one order, with our columns alone: Delta has those of its partitions, too."""
    ours = [{name: plain(row[name]) for name in names} for row in rows]
    return sorted(ours, key=lambda row: json.dumps(row, sort_keys=True))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_another_engine_reads_every_row(
    name: str, tables: dict[str, Written], read_by: Path
) -> None:
    with pa.memory_map(str(read_by / f"{name}.arrow")) as source:
        found = pa.ipc.open_file(source).read_all()
    names = GROWN.names
    assert set(names) <= set(found.schema.names)
    assert found.schema.field("_kafka_timestamp").type.tz is not None
    assert in_order(found.to_pylist(), names) == in_order(tables[name].rows, names)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_arrow_reads_every_row_of_the_files_that_are_listed(
    name: str, tables: dict[str, Written]
) -> None:
    kind = tables[name].kind
    if isinstance(kind, DeltaKind):
        found = DeltaTable(kind.uri).to_pyarrow_dataset().to_table()
    else:
        with load_catalog("default", **kind.catalog) as catalog:
            scan = catalog.load_table("shop.orders").scan()
            files = [task.file.file_path.removeprefix("file://") for task in scan.plan_files()]
            found = ds.dataset(files, schema=schema_to_pyarrow(scan.projection())).to_table()
    assert in_order(found.to_pylist()) == in_order(tables[name].rows)
