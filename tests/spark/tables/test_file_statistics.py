"""Statistics of files: no reader skips an existing row because of them.

NaN is greater than all numbers in Spark and DuckDB, and Parquet leaves it out of its bounds. Files
of other writers may have times that Python does not have.
"""

import json
import math
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from penstock.spark.tables.files import data_files as writing
from penstock.spark.tables.files.data_files import FileReceipt, write_files
from penstock.spark.tables.files.upsert import DELETED
from penstock.spark.tables.formats.delta.actions import add_action
from penstock.spark.tables.formats.delta.table import DeltaLakeTable
from penstock.spark.tables.formats.delta.upsert import merge
from penstock.spark.tables.formats.iceberg.files import data_files
from penstock.spark.tables.formats.iceberg.table import IcebergTable
from tests.spark.tables.table_kinds import DeltaKind, IcebergKind

NAN = math.nan
FLOATS = {
    "numbers": ([1.0, 2.0], (1.0, 2.0), 0),
    "numbers and null": ([1.0, None], (1.0, 1.0), 0),
    "NaN behind": ([1.0, NAN], None, 1),
    "NaN before": ([NAN, 1.0], None, 1),
    "NaN alone": ([NAN, NAN], None, 2),
    "NaN and null": ([NAN, None], None, 1),
    "infinity": ([1.0, math.inf], None, 0),
    "nulls": ([None, None], None, 0),
}
"""Values, the bounds that may be told, and how many are NaN."""
YEAR_55_000_US = 1_700_000_000_000_000_000


def delta_statistics(receipt: FileReceipt) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(add_action(receipt, (), 0).stats)
    return found


def written(
    folder: Path, format_: str, batches: list[pa.RecordBatch]
) -> tuple[list[FileReceipt], Any]:
    """The receipts of these rows, and the table that they were written for."""
    folder.mkdir(exist_ok=True)
    kind_of = DeltaKind if format_ == "delta" else IcebergKind
    table = kind_of(folder, schema=batches[0].schema).create()
    return write_files(batches, table.layout(table.schema()), "task"), table


def iceberg_files(receipts: list[FileReceipt], table: IcebergTable) -> list[Any]:
    inner = table._table
    return data_files(receipts, inner.metadata, inner.schema(), "file:///nowhere")


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize(("values", "bounds", "nan_count"), FLOATS.values(), ids=FLOATS)
def test_bounds_of_floats(
    tmp_path: Path,
    kind: pa.DataType,
    values: list[float | None],
    bounds: tuple[float, float] | None,
    nan_count: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = pa.RecordBatch.from_arrays(
        [pa.array([1, 2], pa.int64()), pa.array(values, kind)], names=["id", "x"]
    )
    [receipt], _ = written(tmp_path / "delta", "delta", [rows])
    found = delta_statistics(receipt)
    told = (found["minValues"].get("x"), found["maxValues"].get("x"))
    assert told == (bounds or (None, None))
    assert found["minValues"]["id"] == 1, "other columns keep theirs"
    assert found["numRecords"] == 2

    receipts, table = written(tmp_path / "iceberg", "iceberg", [rows])
    [file] = iceberg_files(receipts, table)
    number = table._table.schema().find_field("x").field_id
    assert file.nan_value_counts[number] == nan_count
    assert (number in file.upper_bounds) == (nan_count == 0 and any(values))
    assert (number in file.lower_bounds) == (number in file.upper_bounds)
    assert not caplog.records, "pyiceberg warns of columns without statistics"


def test_a_receipt_that_does_not_know_of_nan_has_no_bounds_of_floats(tmp_path: Path) -> None:
    rows = pa.RecordBatch.from_pydict({"id": [1], "x": [1.0]})
    [receipt], _ = written(tmp_path, "delta", [rows])
    unknown = FileReceipt(receipt.path, 1, receipt.size_bytes, (), receipt.footer)
    assert delta_statistics(receipt)["maxValues"] == {"id": 1, "x": 1.0}
    assert delta_statistics(unknown)["maxValues"] == {"id": 1}


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
@pytest.mark.parametrize("group_rows", [1, 262_144])
def test_readers_of_parquet_find_nan(
    tmp_path: Path, format_: str, group_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file that is begun without NaN has bounds, so the rows with NaN go to another one.
    monkeypatch.setattr(writing, "ROW_GROUP_ROWS", group_rows)
    nested = [{"y": 1.0}, {"y": NAN}, {"y": 1.0}]
    batches = [
        pa.RecordBatch.from_pylist([{"id": number, "x": x, "s": s}])
        for number, (x, s) in enumerate(zip([1.0, 2.0, NAN], nested, strict=True))
    ]
    receipts, table = written(tmp_path, format_, batches)
    assert sum(one.row_count for one in receipts) == 3
    assert len(receipts) == (1 if group_rows > 1 else 3)
    directory = table.layout(table.schema()).directory.removeprefix("file://")
    files = [f"{directory}/{one.path}" for one in receipts]
    for condition, expected in {"x > 5": [2], "s.y > 5": [1], "x < 2": [0]}.items():
        question = f"SELECT id FROM read_parquet({files}) WHERE {condition}"
        found = duckdb.execute(question).fetchall()
        assert [one for (one,) in found] == expected, condition
    for name, receipt in zip(files, receipts, strict=True):
        assert pq.read_metadata(name).num_rows == receipt.row_count
    if format_ == "delta":
        assert isinstance(table, DeltaLakeTable)
        assert all("s.y" not in delta_statistics(one)["maxValues"] for one in receipts)
        return
    numbers = [table._table.schema().find_field(one).field_id for one in ("x", "s.y")]
    for file, receipt in zip(iceberg_files(receipts, table), receipts, strict=True):
        counts = dict(receipt.nan_counts)
        told = {one: file.nan_value_counts[one] for one in numbers}
        assert told == {numbers[0]: counts["x"], numbers[1]: counts["s.y"]}
        # For nested columns pyiceberg returns counts alone.
        assert (numbers[0] in file.upper_bounds) == (counts["x"] == 0)
        assert numbers[1] not in file.upper_bounds


@pytest.mark.parametrize("has_nested", [True, False])
@pytest.mark.parametrize("way", ["compaction", "merge"])
def test_readers_find_nan_in_files_that_are_written_again(
    tmp_path: Path, way: str, has_nested: bool
) -> None:
    def rows(*found: tuple[int, float]) -> pa.Table:
        columns: dict[str, Any] = {"id": [one for one, _ in found], "x": [x for _, x in found]}
        if has_nested:
            columns |= {"s": [{"y": x} for _, x in found]}
        return pa.table(columns)

    write_deltalake(tmp_path, rows((0, 1.0), (1, 2.0)))
    write_deltalake(tmp_path, rows((2, NAN)), mode="append")
    table = DeltaTable(tmp_path)
    if way == "compaction":
        ours = DeltaLakeTable(str(tmp_path))
        done = ours.compact(ours.load(), target_bytes=10**8)
        assert (done.removed_count, done.added_count) == (2, 1)
    else:
        changes = rows((0, NAN), (1, 2.0)).append_column(DELETED, pa.array([False, False]))
        merge(table, changes, ["id"], CommitProperties())
    files = DeltaTable(tmp_path).file_uris()
    expected = [2] if way == "compaction" else [0, 2]
    for condition in ["x > 5", *(["s.y > 5"] if has_nested else [])]:
        question = f"SELECT id FROM read_parquet({files}) WHERE {condition} ORDER BY id"
        assert [one for (one,) in duckdb.execute(question).fetchall()] == expected
    told = pa.table(DeltaTable(tmp_path).get_add_actions(flatten=True)).to_pylist()
    assert max(one["max.id"] for one in told) == 2, "other columns keep theirs"
    newest = max(told, key=lambda one: one["modification_time"])
    assert newest.get("max.x") is None


TIMES = {
    "in range": ([0, 1_500], ("1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00.002Z")),
    "the last one": (
        [0, 253_402_300_799_999_999],
        ("1970-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999999Z"),
    ),
    "after the last year": ([0, YEAR_55_000_US], None),
    "before the first year": ([-YEAR_55_000_US, 0], None),
}


@pytest.mark.parametrize(("times_us", "bounds"), TIMES.values(), ids=TIMES)
@pytest.mark.parametrize("zone", ["UTC", None])
def test_bounds_of_times(
    tmp_path: Path, times_us: list[int], bounds: tuple[str, str] | None, zone: str | None
) -> None:
    rows = pa.RecordBatch.from_arrays(
        [pa.array([1, 2], pa.int64()), pa.array(times_us, pa.timestamp("us", zone))],
        names=["id", "at"],
    )
    [receipt], _ = written(tmp_path / "delta", "delta", [rows])
    found = delta_statistics(receipt)
    told = (found["minValues"].get("at"), found["maxValues"].get("at"))
    if bounds is not None and zone is None:
        bounds = (bounds[0].rstrip("Z"), bounds[1].rstrip("Z"))
    assert told == (bounds or (None, None))
    assert found["nullCount"] == {"id": 0, "at": 0}

    receipts, table = written(tmp_path / "iceberg", "iceberg", [rows])
    [file] = iceberg_files(receipts, table)
    number = table._table.schema().find_field("at").field_id
    is_shown = max(map(abs, times_us)) < YEAR_55_000_US
    assert (number in file.upper_bounds) == (number in file.lower_bounds) == is_shown
    assert file.null_value_counts[number] == 0


def test_bounds_of_dates(tmp_path: Path) -> None:
    days = pa.array([-719_163, 2_932_897], pa.int32()).cast(pa.date32())
    rows = pa.RecordBatch.from_arrays([pa.array([1, 2], pa.int64()), days], names=["id", "on"])
    [receipt], _ = written(tmp_path / "delta", "delta", [rows])
    assert delta_statistics(receipt)["maxValues"] == {"id": 2}
    receipts, table = written(tmp_path / "iceberg", "iceberg", [rows])
    [file] = iceberg_files(receipts, table)
    assert list(file.upper_bounds) == [table._table.schema().find_field("id").field_id]
