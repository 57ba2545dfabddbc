"""Tables that several have their hands in: other pipelines, other writers, other definitions."""

import os
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.transforms import HourTransform

from penstock.spark.offsets import StreamOffset
from penstock.spark.tables.commit.decisions import Offer
from penstock.spark.tables.commit.note import BatchRanges, CommitCounts
from penstock.spark.tables.commit.stops import CommitStoppedError, StopReason
from penstock.spark.tables.files.data_files import write_files
from penstock.spark.tables.files.file_partitions import PartitionField, Transform
from penstock.spark.tables.formats.delta.table import DeltaLakeTable
from penstock.spark.tables.formats.port import LayoutChangedError, PartitionsDifferError
from penstock.spark.tables.formats.rejects import REJECTS
from penstock.spark.tables.run.batches import acquire_tables
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.run.reject_commits import commit_rejects
from penstock.spark.tables.tasks.report import BatchReport
from tests.spark.tables.table_kinds import (
    SCHEMA,
    DeltaKind,
    IcebergKind,
    Kind,
    batch_ranges,
    commit_of,
    offsets_in,
    rows_of,
    span,
    taken,
    written,
)

BY_DAY = (PartitionField("_kafka_timestamp", Transform.DAY),)
OLD_MS = 2**60
"""Everything is older."""


@pytest.fixture(params=[DeltaKind, IcebergKind], ids=["delta", "iceberg"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    found: Kind = request.param(tmp_path, schema=REJECTS)
    return found


@pytest.mark.parametrize("partitions", [(), (PartitionField("_kafka_timestamp", Transform.HOUR),)])
def test_a_definition_cannot_change_the_partitions_of_a_delta_table(
    tmp_path: Path, partitions: tuple[PartitionField, ...]
) -> None:
    kind = DeltaKind(tmp_path)
    kind.create(BY_DAY)
    with pytest.raises(PartitionsDifferError, match=r"_kafka_timestamp_day.*partition_by"):
        DeltaLakeTable(kind.uri, partitions=partitions)


def test_files_of_other_partitions_are_not_committed(tmp_path: Path) -> None:
    kind = IcebergKind(tmp_path)
    table = kind.create(BY_DAY)
    driver, _ = taken(table, "run-1")
    files = written(table, (0, 0, 5))
    catalog = load_catalog("default", **kind.catalog)
    with catalog.load_table("shop.orders").update_spec() as change:
        change.remove_field("_kafka_timestamp_day")
        change.add_field("_kafka_timestamp", HourTransform(), "_kafka_timestamp_hour")
    catalog.close()
    commit = commit_of(table.load(), driver, (0, 0, 5))
    with pytest.raises(LayoutChangedError, match="_kafka_timestamp_day"):
        table.append(commit, files)
    table.append(commit, written(table, (0, 0, 5)))
    assert offsets_in(kind.read()) == span(0, 0, 5)


def test_ids_inside_of_structs_are_looked_at_too(tmp_path: Path) -> None:
    held = pa.schema([*SCHEMA, pa.field("s", pa.struct([pa.field("a", pa.int64())]))])
    kind = IcebergKind(tmp_path, schema=held)
    table = kind.create()
    driver, _ = taken(table, "run-1")
    ours = _grown(held, "x")
    rows = rows_of(0, 0, 1, s=pa.array([{"a": 1, "x": 42}], ours.field("s").type))
    files = write_files([rows], table.layout(ours), "task")
    other = kind.open()
    other_driver, state = taken(other, "run-2", "other")
    theirs = _grown(held, "y")
    row = rows_of(1, 0, 1, s=pa.array([{"a": 2, "y": 7}], theirs.field("s").type))
    added = write_files([row], other.layout(theirs), "task")
    other.append(commit_of(state, other_driver, (1, 0, 1)), added, theirs)
    commit = commit_of(table.load(), driver, (0, 0, 1))
    with pytest.raises(LayoutChangedError, match=r"s\.x"):
        table.append(commit, files, ours)


def _grown(schema: pa.Schema, name: str) -> pa.Schema:
    kind = pa.struct([*schema.field("s").type, pa.field(name, pa.int64())])
    return schema.set(schema.get_field_index("s"), pa.field("s", kind))


def test_orphans_of_a_table_are_not_the_files_of_one_inside(tmp_path: Path) -> None:
    outer = DeltaKind(tmp_path)
    table = outer.create()
    driver, state = taken(table, "run-1")
    table.append(commit_of(state, driver, (0, 0, 5)), written(table, (0, 0, 5)))
    inner = DeltaLakeTable.create(f"{outer.uri}/items", SCHEMA)
    inner_driver, inner_state = taken(inner, "run-1")
    inner.append(commit_of(inner_state, inner_driver, (0, 0, 3)), written(inner, (0, 0, 3)))
    staged = Path(outer.uri) / "_staging" / "left.parquet"
    staged.parent.mkdir()
    staged.write_bytes(b"of a driver that died")
    os.utime(staged, (1, 1))
    assert table.remove_orphans(older_than_ms=OLD_MS) == 1
    assert not staged.exists()
    assert sum(batch.num_rows for batch in inner.scan(["_kafka_offset"])) == 3


def test_rejects_of_other_pipelines_stay(kind: Kind) -> None:
    """Two clusters have the same topics and offsets, and share a table of bad records."""
    table = kind.create()
    for pipeline in ("eu", "us"):
        committer = TableCommitter(table, pipeline, f"run-{pipeline}")
        committer.take()
        for attempt in (1, 2):  # the second one comes after a crash, and judges the same
            report = _report(committer, pipeline, attempt)
            offer = Offer(committer.driver, report.ranges, report.counts)
            commit_rejects(committer, offer, report, pipeline)
    found = kind.read().to_pylist()
    assert sorted((one["pipeline"], one["offset"]) for one in found) == [("eu", 0), ("us", 0)]


def _report(committer: TableCommitter, pipeline: str, attempt: int) -> BatchReport:
    reject = {"topic": "orders", "partition": 0, "offset": 0, "pipeline": pipeline}
    row = pa.RecordBatch.from_pylist([{**reject, "attempt": 1}], REJECTS)
    files = write_files([row], committer.table.layout(REJECTS), f"rejects-{attempt}")
    ranges = batch_ranges((0, 0, 1))
    return BatchReport(ranges, CommitCounts(0, 1), 1, (), (), tuple(files), (), None)


def test_two_drivers_that_start_at_once_do_not_have_one_table_each(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("rows", "rejects")]
    for folder in folders:
        folder.mkdir()
    rows, rejects = (DeltaKind(folder) for folder in folders)
    first_rows = TableCommitter(rows.create(), "orders", "first")
    first_rejects = TableCommitter(rejects.create(), "orders", "first")
    second_rows = TableCommitter(rows.open(), "orders", "second")
    second_rejects = TableCommitter(rejects.open(), "orders", "second")
    first_rejects.take()
    acquire_tables(second_rejects, second_rows)
    first_rows.take()  # now each has one of them
    assert not _is_still_owner(second_rows)
    assert _is_still_owner(second_rejects)
    acquire_tables(first_rejects, first_rows)
    offer = Offer(second_rejects.driver, batch_ranges((0, 0, 1)))
    with pytest.raises(CommitStoppedError) as caught:
        second_rejects.commit(offer, [])
    assert caught.value.reason is StopReason.FENCED


def test_a_driver_takes_both_tables_again_when_it_has_only_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / name for name in ("rows", "rejects")]
    for folder in folders:
        folder.mkdir()
    rows, rejects = (DeltaKind(folder) for folder in folders)
    first = [TableCommitter(one.create(), "orders", "first") for one in (rejects, rows)]
    second = [TableCommitter(one.open(), "orders", "second") for one in (rejects, rows)]
    real, meanwhile = first[1].take, [second]

    def take_late(starting: BatchRanges | None = None) -> StreamOffset | None:
        while meanwhile:
            others = meanwhile.pop()
            acquire_tables(others[0], others[1])
        return real(starting)

    monkeypatch.setattr(first[1], "take", take_late)
    acquire_tables(first[0], first[1])
    assert all(_is_still_owner(one) for one in first)
    assert not any(_is_still_owner(one) for one in second)


def _is_still_owner(committer: TableCommitter) -> bool:
    committer.reload()
    return committer.is_owner
