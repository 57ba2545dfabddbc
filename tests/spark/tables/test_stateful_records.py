"""A stateful pipeline's source, without Spark: late and future records, one report a range."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.spark.errors import CheckpointError, DataLossError
from penstock.spark.loss.data_loss import Loss, LossKind, data_loss_error
from penstock.spark.offsets import PartitionPosition, StreamOffset, write_offset
from penstock.spark.planning import OffsetRange, ReadTask
from penstock.spark.tables.commit.note import PartitionRange
from penstock.spark.tables.definition.model import LateRecords, StateSettings
from penstock.spark.tables.files.data_files import FileLayout
from penstock.spark.tables.run.plan_file import BatchPlan, PlanFile
from penstock.spark.tables.run.stateful.batch_times import BatchTimes, times_of
from penstock.spark.tables.run.stateful.lost_records import with_stateful_remedy
from penstock.spark.tables.run.stateful.records import (
    REPORT,
    RangeReport,
    StatePlan,
    pack_state_plan,
    rows_of,
    unpack_report,
)
from penstock.spark.tables.run.stateful.results import Reports, UnreadRangeError
from penstock.spark.tables.run.stateful.state_source import StateReader
from penstock.spark.tables.tasks.orders import TaskOrder
from penstock.spark.tables.tasks.report import TaskReport
from penstock.spark.tables.values.columns import VALUE
from tests.spark.tables.value_world import TOPIC, ValueWorld, records

ABOUT = TaskReport(0, PartitionRange(TOPIC, 0, 0, 9), "t1", "c1")
WATERMARK_MS = 1_767_225_660_000
"""A minute into 2026."""
DAY_MS = 86_400_000
TIMES = BatchTimes(WATERMARK_MS, WATERMARK_MS)


def plan_for(folder: Path, late: LateRecords = LateRecords.REJECT) -> StatePlan:
    world = ValueWorld(folder, "delta", "at timestamp, n int")
    task = world.prepared().plans.task
    rows = FileLayout(task.rows.directory, pa.schema([*task.rows.schema, VALUE]))
    whole = replace(task, rows=rows, is_staged=True, keeps_record=True)
    return StatePlan(whole, StateSettings("at", 60_000, late))


def read(
    plan: StatePlan, values: Sequence[object], times: BatchTimes = TIMES
) -> tuple[list[int], RangeReport, list[dict[str, Any]]]:
    """The numbers of the rows, the report, and the rejects."""
    found = list(rows_of(iter([records(values)]), plan, times, ABOUT))
    assert all(one.schema == plan.schema for one in found)
    *batches, last = found
    assert all(one.column(REPORT).null_count == one.num_rows for one in batches)
    [packed] = last.column(REPORT).to_pylist()
    report = unpack_report(packed)
    folder = plan.task.rejects.directory
    rejects = [
        row
        for one in report.task.reject_files
        for row in pq.ParquetFile(f"{folder}/{one.path}").read().to_pylist()
    ]
    return [n for one in batches for n in one.column("n").to_pylist()], report, rejects


def value(second: float, n: int) -> dict[str, object]:
    return {"at": f"2026-01-01T00:0{int(second // 60)}:{second % 60:09.6f}Z", "n": n}


VALUES = [
    value(59, 1),
    value(60, 2),  # at exactly the watermark
    value(60.000001, 3),
    {"n": 4},
    value(90.9999, 5),
    b"not json",
]


def test_late_records_are_rejects_with_a_reason(tmp_path: Path) -> None:
    numbers, report, rejects = read(plan_for(tmp_path), VALUES)
    assert numbers == [3, 5]
    assert (report.late_count, report.newest_event_ms) == (2, 1_767_225_690_999)
    assert (report.task.records, report.task.rows, report.task.rejects) == (6, 2, 4)
    by_offset = {one["offset"]: one for one in rejects}
    assert {at: one["error_class"] for at, one in by_offset.items()} == {
        0: "late",
        1: "late",
        3: "missing_value",
        5: "malformed",
    }
    assert by_offset[1]["message"] == (
        "'at' is 2026-01-01 00:01:00.000000Z, and the watermark 2026-01-01 00:01:00.000000Z"
    )
    assert by_offset[5]["value"] == b"not json"


def test_late_records_may_be_dropped_and_are_counted(tmp_path: Path) -> None:
    numbers, report, rejects = read(plan_for(tmp_path, LateRecords.DROP), VALUES)
    assert numbers == [3, 5]
    assert report.late_count == 2
    assert sorted(one["error_class"] for one in rejects) == ["malformed", "missing_value"]


def test_a_range_without_records_in_time_has_no_event_time(tmp_path: Path) -> None:
    numbers, report, _ = read(plan_for(tmp_path), [value(1, 1)])
    assert (numbers, report.late_count, report.newest_event_ms) == ([], 1, None)
    numbers, report, rejects = read(plan_for(tmp_path / "other"), [])
    assert (numbers, report.task.records, rejects) == ([], 0, [])


def test_records_before_1970_are_late_for_spark_too(tmp_path: Path) -> None:
    values = [{"at": "1970-01-01T00:00:00Z", "n": 1}, {"at": "1970-01-01T00:00:00.000001Z", "n": 2}]
    numbers, report, _ = read(plan_for(tmp_path), values, BatchTimes(0, 0))
    assert (numbers, report.late_count) == ([2], 1)


@pytest.mark.parametrize("late", LateRecords)
def test_a_future_record_is_a_reject_and_moves_no_watermark(
    tmp_path: Path, late: LateRecords
) -> None:
    values = [
        value(61, 1),
        {"at": "9999-12-31T23:59:59Z", "n": 2},
        {"at": "2026-01-02T00:01:00Z", "n": 3},  # at exactly the bound
        {"at": "2026-01-02T00:01:00.000001Z", "n": 4},
    ]
    numbers, report, rejects = read(plan_for(tmp_path, late), values)
    assert numbers == [1, 3]
    assert (report.late_count, report.newest_event_ms) == (0, WATERMARK_MS + DAY_MS)
    assert report.task.reject_classes == {"future": 2}
    assert {one["offset"]: one["message"] for one in rejects} == {
        1: "'at' is 9999-12-31 23:59:59.000000Z, and state.future_max allowed times up to "
        "2026-01-02 00:01:00.000000Z",
        3: "'at' is 2026-01-02 00:01:00.000001Z, and state.future_max allowed times up to "
        "2026-01-02 00:01:00.000000Z",
    }


def test_a_clock_that_went_back_has_late_and_no_future_records(tmp_path: Path) -> None:
    times = BatchTimes(WATERMARK_MS, WATERMARK_MS - 2 * DAY_MS)
    numbers, report, _ = read(plan_for(tmp_path), [value(59, 1), value(61, 2)], times)
    assert (numbers, report.newest_event_ms) == ([], None)
    assert report.task.reject_classes == {"late": 1, "future": 1}


class Batches:
    """The offsets of a topic with some records."""

    def __init__(self, end: int) -> None:
        self.end = end

    def latest_offset(self, _document: object, _limits: object) -> dict[str, Any]:
        return self.document()

    def plan(self, start: dict[str, Any], end: dict[str, Any]) -> list[ReadTask]:
        assert not {*start, *end} & {"watermark_ms", "planned_ms"}, "the source has none"
        return [] if start == end else [ReadTask(OffsetRange(ABOUT.range.at, 0, self.end), "t1", 0)]

    def document(self) -> dict[str, Any]:
        return write_offset(StreamOffset({ABOUT.range.at: PartitionPosition(self.end, 0)}))


class SetClock:
    """A clock that a test sets."""

    now = WATERMARK_MS

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return 0.0


def test_a_repeated_batch_has_the_times_of_its_first_planning(tmp_path: Path) -> None:
    """Clock and watermark have moved, and the batch is the same."""
    plan, file, clock = plan_for(tmp_path), PlanFile(), SetClock()
    nowhere = StreamOffset({})
    options = {"planFile": file.path, "kafka.bootstrap.servers": "a:1", "subscribe": TOPIC}
    reader = StateReader(options, clock)
    vars(reader)["_batches"] = Batches(9)
    file.write(BatchPlan(pack_state_plan(plan), nowhere, nowhere, 7))
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert times_of(end) == BatchTimes(7, WATERMARK_MS)
    clock.now += 3 * DAY_MS
    file.write(BatchPlan(pack_state_plan(plan), nowhere, nowhere, 8))
    [task] = reader.partitions(start, end)
    assert task.value[1] == BatchTimes(7, WATERMARK_MS)
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end, "no batch without records"
    vars(reader)["_batches"] = Batches(12)
    later = reader.latestOffset(end, reader.getDefaultReadLimit())
    assert times_of(later) == BatchTimes(8, WATERMARK_MS + 3 * DAY_MS)
    with pytest.raises(CheckpointError, match=r"watermark_ms None.*compute the table again"):
        reader.partitions(start, Batches(12).document())
    file.close()


@pytest.mark.parametrize("kind", [*LossKind])
def test_a_loss_has_the_remedy_of_stateful_pipelines(kind: LossKind) -> None:
    loss = Loss(kind, None, "offsets 1 to 5 of sales-0 were removed", "it is read from offset 6")
    with pytest.raises(DataLossError) as found, with_stateful_remedy():
        raise data_loss_error([loss] * 12)
    text = str(found.value)
    assert text.count("- offsets 1 to 5 of sales-0 were removed.") == 10
    assert "- and 2 more." in text
    assert "set another table.name, pipeline.name and pipeline.checkpoint" in text
    assert "failOnDataLoss" not in text
    assert ("correct bootstrap_servers" in text) == (kind is LossKind.OTHER_CLUSTER)


def test_a_range_without_a_report_is_an_error(tmp_path: Path) -> None:
    """As if a function ended in `where false`: Spark reads nothing."""
    [last] = rows_of(iter([]), plan_for(tmp_path), TIMES, ABOUT)
    [packed] = last.column(REPORT).to_pylist()
    reports = object.__new__(Reports)
    task = ReadTask(OffsetRange(ABOUT.range.at, 0, 9), "t1", ABOUT.range.leader_epoch)
    vars(reports)["_found"] = type("Found", (), {"value": [packed, packed]})()
    assert len(reports.of([TaskOrder(task, None, "c1")])) == 1, "one of a task that ran twice"
    other = task._replace(range=OffsetRange(ABOUT.range.at, 9, 12))
    with pytest.raises(UnreadRangeError, match=r"did not read .*\[9, 12\).*Correct the function"):
        reports.of([TaskOrder(other, None, "c1")])
