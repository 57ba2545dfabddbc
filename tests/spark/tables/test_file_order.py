"""The order of rows in files: by Iceberg's rules, whole files, and what a receipt says of it."""

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.spark.errors import OptionError
from penstock.spark.tables.files import data_files
from penstock.spark.tables.files.data_files import FileLayout, write_files
from penstock.spark.tables.files.file_order import SortField, in_order, require_sortable
from tests.spark.tables.table_kinds import SCHEMA, rows_of

FLOATS = [1.5, None, -math.inf, 0.0, math.nan, -0.0, math.inf, -2.5]
ASCENDING = [None, -math.inf, -2.5, -0.0, 0.0, 1.5, math.inf, math.nan]


def shown(values: list[Any]) -> list[str]:
    return [str(one) for one in values]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_floats_are_in_their_total_order(kind: pa.DataType) -> None:
    rows = pa.table({"x": pa.array(FLOATS, kind)})
    up = in_order(rows, [SortField("x")])
    assert shown(up["x"].to_pylist()) == shown(ASCENDING)
    down = in_order(rows, [SortField("x", is_descending=True, nulls_first=False)])
    assert shown(down["x"].to_pylist()) == shown(ASCENDING[::-1])


def test_nulls_are_where_the_field_says() -> None:
    rows = pa.table({"x": ["b", None, "a"]})
    orders = {
        (True, True): [None, "b", "a"],
        (True, False): ["b", "a", None],
        (False, True): [None, "a", "b"],
        (False, False): ["a", "b", None],
    }
    for (is_descending, nulls_first), wanted in orders.items():
        found = in_order(rows, [SortField("x", is_descending, nulls_first)])
        assert found["x"].to_pylist() == wanted


def test_several_columns_and_fields_of_structs() -> None:
    rows = pa.table(
        {
            "city": ["b", "a", "b", "a", None],
            "is_paid": [True, True, False, False, None],
            "_kafka": [{"offset": n} for n in range(5)],
        }
    )
    fields = [SortField("city"), SortField("is_paid"), SortField("_kafka.offset", True, False)]
    found = in_order(rows, fields)
    assert [one["offset"] for one in found["_kafka"].to_pylist()] == [4, 3, 1, 2, 0]
    ties = in_order(rows, [SortField("city")])
    assert [one["offset"] for one in ties["_kafka"].to_pylist()] == [4, 1, 3, 0, 2]


@pytest.mark.parametrize(
    ("column", "problem"), [("nothing", "no column 'nothing'"), ("tags", "has no order")]
)
def test_a_column_without_an_order_is_named(column: str, problem: str) -> None:
    schema = pa.schema([("tags", pa.list_(pa.string()))])
    with pytest.raises(OptionError, match=problem):
        require_sortable([SortField(column)], schema)


def test_a_whole_file_is_sorted_and_its_row_groups_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "ROW_GROUP_ROWS", 40)
    sort = (SortField("_kafka_offset", is_descending=True, nulls_first=False),)
    layout = FileLayout(str(tmp_path), SCHEMA, sort=sort)
    batches = [rows_of(0, start, start + 20) for start in (60, 0, 40, 20, 80)]
    (receipt,) = write_files(batches, layout, "task")
    assert receipt.sort == sort
    assert receipt.row_count == 100
    found = pq.ParquetFile(tmp_path / receipt.path)
    assert found.read()["_kafka_offset"].to_pylist() == list(range(99, -1, -1))
    at = SCHEMA.get_field_index("_kafka_offset")
    groups = [found.metadata.row_group(n).column(at).statistics for n in range(3)]
    assert [(one.min, one.max) for one in groups] == [(60, 99), (20, 59), (0, 19)]


def test_a_file_that_is_sorted_in_parts_is_not_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "SORTED_BYTES_MAX", 1)
    layout = FileLayout(str(tmp_path), SCHEMA, sort=(SortField("amount"),))
    (receipt,) = write_files([rows_of(0, 0, 9), rows_of(0, 9, 18)], layout, "task")
    assert receipt.sort == ()
    found = pq.ParquetFile(tmp_path / receipt.path)
    for number in range(2):
        part = found.read_row_group(number)["amount"].to_pylist()
        assert part == sorted(part)
