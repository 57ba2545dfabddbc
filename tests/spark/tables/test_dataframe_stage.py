"""Rows that Spark passes on, without Spark: times, keys, rules and rejects."""

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame

from penstock.spark.tables.definition.ddl import parse_ddl
from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.definition.model import METADATA_FIELDS, Action, Expectation, Metadata
from penstock.spark.tables.files.data_files import FileLayout
from penstock.spark.tables.files.file_partitions import PartitionField, Transform
from penstock.spark.tables.files.upsert import changes_schema
from penstock.spark.tables.formats.rejects import REJECTS
from penstock.spark.tables.run.dataframe_stage import (
    StageOrder,
    StageReport,
    _write_rows,
    transformed,
)
from penstock.spark.tables.run.spark_rules import answer_name
from tests.spark.tables.value_world import GOOD_US, records

ZONE = "America/New_York"
COLUMNS = parse_ddl("id bigint, at timestamp")
RULE = Expectation("rule", "n > 0", Action.QUARANTINE)


def order_for(folder: Path, **more: Any) -> StageOrder:  # noqa: ANN401
    given = {
        "rows": FileLayout(str(folder / "rows"), COLUMNS),
        "rejects": FileLayout(str(folder / "rejects"), REJECTS),
        "expectations": (),
        "pipeline": "orders",
        "key": (),
        "metadata": Metadata.FLAT,
    }
    return StageOrder(**{**given, **more})


def staged(order: StageOrder, *batches: pa.RecordBatch) -> StageReport:
    [answer] = _write_rows(order, iter(batches))
    report = pickle.loads(answer.column("report")[0].as_py())
    assert isinstance(report, StageReport)
    return report


def rows_of(
    ids: list[int | None], answers: list[bool | None] | None = None, *, start: int = 0
) -> pa.RecordBatch:
    """Rows as Spark hands them on, in the zone of its session, an hour into a day of UTC."""
    source = records([{}] * len(ids), start=start)
    columns = {
        "id": pa.array(ids, pa.int64()),
        "at": pa.array([GOOD_US + 3_600_000_000] * len(ids), pa.timestamp("us", ZONE)),
        **{f"_kafka_{name}": source.column(name) for name in METADATA_FIELDS},
        "_value": source.column("value"),
    }
    columns["_kafka_timestamp"] = columns["_kafka_timestamp"].cast(pa.timestamp("us", ZONE))
    if answers is not None:
        columns[answer_name(0)] = pa.array(answers, pa.bool_())
    return pa.RecordBatch.from_pydict(columns)


def read(folder: Path, report: StageReport, name: str) -> list[dict[str, Any]]:
    files = report.files if name == "rows" else report.reject_files
    return [
        row for one in files for row in pq.ParquetFile(folder / name / one.path).read().to_pylist()
    ]


class Returned(DataFrame):
    """The result of a function, with its columns alone."""

    columns = ("id", "_kafka", "_commit_version")  # type: ignore[assignment]


def test_a_function_cannot_return_a_column_of_a_change_feed() -> None:
    """It is asked at the start and for each batch: nothing else sees the columns of a function."""
    frame = object.__new__(Returned)

    def enlarge(rows: DataFrame) -> DataFrame:
        return rows

    with pytest.raises(SchemaError, match=r"enlarge\(\) returns: the column '_commit_version'"):
        transformed(frame, enlarge)
    assert transformed(frame, None) is frame


def test_the_day_of_a_partition_is_not_the_sessions(tmp_path: Path) -> None:
    fields = tuple(
        PartitionField("at", one) for one in (Transform.DAY, Transform.HOUR, Transform.MONTH)
    )
    layout = FileLayout(str(tmp_path / "rows"), COLUMNS, fields)
    report = staged(order_for(tmp_path, rows=layout), rows_of([1]))
    days = GOOD_US // 86_400_000_000
    assert [one.partition for one in report.files] == [(days, days * 24 + 1, 56 * 12)]


def test_a_record_of_several_broken_rows_is_one_reject(tmp_path: Path) -> None:
    order = order_for(tmp_path, expectations=(RULE,))
    batch = rows_of([1, 2], [False, False])
    twice = batch.take(pa.array([0, 0, 1, 1]))
    report = staged(order, twice, batch, rows_of([3], [False], start=2))
    assert (report.rows, report.rejects, report.broken) == (0, 3, {"rule": 7})
    found = read(tmp_path, report, "rejects")
    assert [one["offset"] for one in found] == [0, 1, 2]
    assert {one["message"] for one in found} == {"rule: n > 0"}


def test_a_reject_is_asked_no_rule(tmp_path: Path) -> None:
    """As in a task: see the test of the same name there."""
    layout = FileLayout(str(tmp_path / "rows"), changes_schema(COLUMNS))
    for action in (Action.DROP, Action.FAIL, Action.QUARANTINE):
        rule = Expectation("rule", "n > 0", action)
        order = order_for(tmp_path, rows=layout, key=("id",), expectations=(rule,))
        report = staged(order, rows_of([None, 1], [False, True]))
        assert (report.rows, report.rejects, report.broken) == (1, 1, {"rule": 0})
        assert report.failed == ()
        [reject] = read(tmp_path, report, "rejects")
        assert reject["error_class"] == "missing_value"


def test_rejects_by_a_rule_are_those_of_their_rows(tmp_path: Path) -> None:
    """Numbers are those of the batch also after a row of it was a reject."""
    layout = FileLayout(str(tmp_path / "rows"), changes_schema(COLUMNS))
    order = order_for(tmp_path, rows=layout, key=("id",), expectations=(RULE,))
    report = staged(order, rows_of([None, 1, 2, 3], [True, True, False, None]))
    assert (report.rows, report.rejects) == (2, 2)
    assert [one["offset"] for one in read(tmp_path, report, "rejects")] == [0, 2]
    assert [one["id"] for one in read(tmp_path, report, "rows")] == [1, 3]
