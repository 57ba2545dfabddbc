"""Files and receipts of tasks: partitions, ids, statistics, failures."""

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.spark.errors import OptionError
from penstock.spark.tables.files import data_files
from penstock.spark.tables.files.data_files import FileLayout, write_files
from penstock.spark.tables.files.file_partitions import (
    PartitionField,
    Transform,
    read_partition_fields,
    require_partitionable,
    split_rows,
    text_of,
    values_of,
)
from penstock.spark.tables.formats.delta.actions import add_action
from tests.spark.tables.table_kinds import SCHEMA, rows_of

DAY = PartitionField("_kafka_timestamp", Transform.DAY)


def layout(folder: Path, *fields: PartitionField) -> FileLayout:
    return FileLayout(str(folder), SCHEMA, fields)


def test_a_receipt_says_what_is_in_the_file_and_can_be_sent(tmp_path: Path) -> None:
    (receipt,) = write_files([rows_of(0, 0, 10), rows_of(0, 10, 15)], layout(tmp_path), "task")
    assert pickle.loads(pickle.dumps(receipt)) == receipt
    path = tmp_path / receipt.path
    assert receipt.row_count == 15
    assert receipt.size_bytes == path.stat().st_size
    assert receipt.metadata().num_rows == 15
    assert receipt.metadata().num_row_groups == 1
    assert pq.read_table(path)["_kafka_offset"].to_pylist() == list(range(15))


def test_no_rows_are_no_files(tmp_path: Path) -> None:
    assert write_files([], layout(tmp_path), "task") == []


def test_rows_of_two_days_go_to_two_files(tmp_path: Path) -> None:
    receipts = write_files([rows_of(0, 0, 200)], layout(tmp_path, DAY), "task")
    days = [(date(2026, 1, 31) - date(1970, 1, 1)).days, (date(2026, 2, 1) - date(1970, 1, 1)).days]
    assert [one.partition for one in receipts] == [(days[0],), (days[1],)]
    assert [one.row_count for one in receipts] == [90, 110]
    assert receipts[0].path.startswith("_kafka_timestamp_day=2026-01-31/task-")


def test_columns_that_the_partition_says_are_left_out(tmp_path: Path) -> None:
    field = PartitionField("_kafka_partition")
    plan = FileLayout(str(tmp_path), SCHEMA, (field,), frozenset({"_kafka_partition"}))
    receipts = write_files([rows_of(0, 0, 5), rows_of(1, 0, 7)], plan, "task")
    assert {one.partition: one.row_count for one in receipts} == {(0,): 5, (1,): 7}
    assert "_kafka_partition" not in pq.ParquetFile(tmp_path / receipts[0].path).schema_arrow.names


def test_a_full_file_is_closed_and_the_next_one_begun(tmp_path: Path) -> None:
    plan = FileLayout(str(tmp_path), SCHEMA, file_bytes_target=1)
    receipts = write_files([rows_of(0, n, n + 1) for n in range(3)], plan, "task")
    assert [one.row_count for one in receipts] == [1, 1, 1]
    assert len({one.path for one in receipts}) == 3


def test_open_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "OPEN_FILES_MAX", 2)
    rows = [rows_of(n % 3, n, n + 1) for n in range(9)]
    receipts = write_files(rows, layout(tmp_path, PartitionField("_kafka_partition")), "task")
    assert sum(one.row_count for one in receipts) == 9
    assert len(receipts) > 3


def test_a_task_that_fails_gives_no_receipt(tmp_path: Path) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield rows_of(0, 0, 10)
        raise RuntimeError("the broker is gone")

    with pytest.raises(RuntimeError, match="gone"):
        write_files(rows(), layout(tmp_path), "task")


def test_a_file_uri_is_a_directory(tmp_path: Path) -> None:
    plan = FileLayout(f"file://{tmp_path}/deep/er", SCHEMA)
    (receipt,) = write_files([rows_of(0, 0, 3)], plan, "task")
    assert (tmp_path / "deep" / "er" / receipt.path).exists()


@pytest.mark.parametrize(
    ("transform", "value", "text"),
    [
        (Transform.DAY, 20484, "2026-01-31"),
        (Transform.HOUR, 20484 * 24 + 22, "2026-01-31-22"),
        (Transform.MONTH, 56 * 12, "2026-01"),
    ],
)
def test_times_in_partitions_are_icebergs(transform: Transform, value: int, text: str) -> None:
    at = pa.array(
        [datetime(2026, 1, 31, 22, 59, 59, 999_999, UTC), None], pa.timestamp("us", "UTC")
    )
    assert values_of(at, transform).to_pylist() == [value, None]
    assert text_of(value, transform) == text
    assert text_of(None, transform) is None


def test_times_before_1970_are_rounded_down() -> None:
    at = pa.array([datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    assert [values_of(at, one).to_pylist() for one in (Transform.DAY, Transform.HOUR)] == [
        [-1],
        [-1],
    ]
    assert values_of(at, Transform.MONTH).to_pylist() == [-1]
    assert text_of(-1, Transform.DAY) == "1969-12-31"
    assert text_of(-1, Transform.MONTH) == "1969-12"


def test_rows_are_split_by_several_columns_with_nulls() -> None:
    rows = pa.RecordBatch.from_pydict({"a": [1, None, 1, None, 2], "b": ["x", "y", "x", "z", None]})
    found = {
        key: part.num_rows
        for key, part in split_rows(rows, [PartitionField("a"), PartitionField("b")])
    }
    assert found == {(1, "x"): 2, (None, "y"): 1, (None, "z"): 1, (2, None): 1}


def test_partition_expressions() -> None:
    assert read_partition_fields(["day(_kafka_timestamp)", "country"]) == (
        DAY,
        PartitionField("country"),
    )
    for wrong in ("week(x)", "day(x", "day()", "day(a)b"):
        with pytest.raises(OptionError, match="partition_by"):
            read_partition_fields([wrong])
    with pytest.raises(OptionError, match="twice"):
        read_partition_fields(["a", "a"])


@pytest.mark.parametrize(
    "field", [PartitionField("nobody"), PartitionField("name", Transform.DAY), PartitionField("f")]
)
def test_columns_that_cannot_be_partitioned_by_are_told(field: PartitionField) -> None:
    with pytest.raises(OptionError, match="partition_by"):
        require_partitionable([field], SCHEMA.append(pa.field("f", pa.float64())))


def test_statistics_for_delta_never_exclude_a_value(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("at", pa.timestamp("us", "UTC")),
            ("text", pa.string()),
            ("number", pa.int64()),
            ("f", pa.float64()),
            ("raw", pa.binary()),
        ]
    )
    rows = pa.RecordBatch.from_pydict(
        {
            "at": [
                datetime(2026, 1, 1, 0, 0, 0, 1_001, UTC),
                datetime(2026, 1, 2, microsecond=1, tzinfo=UTC),
            ],
            "text": ["a" * 50, "ü" * 50],
            "number": [None, -(2**60)],
            "f": [1.5, 2.5],
            "raw": [b"\xff", None],
        },
        schema=schema,
    )
    (receipt,) = write_files([rows], FileLayout(str(tmp_path), schema), "task")
    action = add_action(receipt, (), 7)
    found = json.loads(action.stats)
    assert found["numRecords"] == 2
    assert found["minValues"]["at"] == "2026-01-01T00:00:00.001Z"
    assert found["maxValues"]["at"] == "2026-01-02T00:00:00.001Z"
    assert found["minValues"]["text"] == "a" * 32
    assert found["maxValues"]["text"] > "ü" * 50
    assert found["minValues"]["number"] == found["maxValues"]["number"] == -(2**60)
    assert found["nullCount"] == {"at": 0, "text": 0, "number": 1, "f": 0, "raw": 1}
    assert "raw" not in found["minValues"]


def test_rows_are_split_by_a_field_of_a_struct(tmp_path: Path) -> None:
    """A null struct is a null partition, and the partition has a name that Delta can have."""
    kafka = pa.array([{"partition": 1}, {"partition": 2}, None, {"partition": 1}])
    rows = pa.RecordBatch.from_pydict({"n": pa.array([0, 1, 2, 3]), "_kafka": kafka})
    field = PartitionField("_kafka.partition")
    assert (field.name, field.is_derived) == ("_kafka_partition", True)
    receipts = write_files([rows], FileLayout(str(tmp_path), rows.schema, (field,)), "task")
    found = {one.partition: pq.read_table(tmp_path / one.path)["n"].to_pylist() for one in receipts}
    assert found == {(1,): [0, 3], (2,): [1], (None,): [2]}
