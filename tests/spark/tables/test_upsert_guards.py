"""Each guard of an upsert removed: a history of a few batches must notice it."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Transaction as IcebergTransaction

from penstock.spark.tables.files.file_partitions import PartitionField, Transform
from penstock.spark.tables.files.upsert import last_of_each
from penstock.spark.tables.formats import change_files
from penstock.spark.tables.formats.delta import upsert as delta_upsert
from penstock.spark.tables.formats.delta.table import DeltaLakeTable
from penstock.spark.tables.formats.iceberg import table as iceberg
from penstock.spark.tables.formats.iceberg import upsert as iceberg_upsert
from penstock.spark.tables.formats.iceberg.table import IcebergTable
from penstock.spark.tables.formats.port import TableMovedError
from penstock.spark.tables.run.committer import TableCommitter
from tests.spark.tables.change_batches import (
    SCHEMA,
    applied,
    change_rows,
    commit_changes,
    rows_in,
    stream,
    written_changes,
)
from tests.spark.tables.table_kinds import (
    DeltaKind,
    IcebergKind,
    Kind,
    MergeOnReadKind,
    commit_of,
    taken,
)

KINDS: dict[str, Callable[..., Kind]] = {
    "delta": DeltaKind,
    "iceberg": IcebergKind,
    "merge_on_read": MergeOnReadKind,
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    return KINDS[request.param](tmp_path, schema=SCHEMA)


def history(kind: Kind) -> None:
    """Some batches with keys that come again; fails unless the table is as it must be."""
    one = TableCommitter(kind.create(), "orders", "run-a")
    one.take()
    for start in range(0, 90, 30):
        commit_changes(one, start, start + 30)
    assert rows_in(kind.read()) == applied({}, stream(0, 90))


def test_with_the_guards_it_holds(kind: Kind) -> None:
    history(kind)


def test_without_the_last_of_each(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    def everything(changes: pa.Table, _key: object, *, is_sequenced: bool) -> pa.Array:
        return pa.arange(0, changes.num_rows)

    table = kind.create()
    driver, state = taken(table, "run-a")
    monkeypatch.setattr(change_files, "last_of_each", everything)
    rows = change_rows([(1, 1), (1, 2)], 0)
    changes = written_changes(table, rows)
    table.upsert(commit_of(state, driver, (0, 0, 2)), changes)
    with pytest.raises(AssertionError, match="twice"):
        rows_in(kind.read())


def test_without_the_order_of_offsets(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    def as_they_lie(changes: pa.Table, key: tuple[str, ...], *, is_sequenced: bool) -> pa.Array:
        lying = pa.arange(0, changes.num_rows)
        at = changes.schema.get_field_index("_change_offset")
        return last_of_each(
            changes.set_column(at, "_change_offset", lying), key, is_sequenced=is_sequenced
        )

    table = kind.create()
    driver, state = taken(table, "run-a")
    monkeypatch.setattr(change_files, "last_of_each", as_they_lie)
    rows = change_rows([(1, 1), (1, 2)], 0)
    table.upsert(commit_of(state, driver, (0, 0, 2)), written_changes(table, rows[1:], rows[:1]))
    assert rows_in(kind.read()) != applied({}, rows)


def test_without_the_note_of_an_empty_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeltaLakeTable, "_add", lambda *_: None)
    kind = DeltaKind(tmp_path, schema=SCHEMA)
    table = kind.create()
    driver, state = taken(table, "run-a")
    rows = change_rows([(1, None)], 0)
    table.upsert(commit_of(state, driver, (0, 0, 1)), written_changes(table, rows))
    assert not kind.open().load().positions_of("orders")


def test_without_the_day_of_a_row_that_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first_day(column: pa.Array, _field: PartitionField) -> pa.Array:
        return pa.array([0] * len(column), pa.int32()).cast(pa.date32())

    monkeypatch.setattr(delta_upsert, "derived_column", first_day)
    table = DeltaKind(tmp_path, schema=SCHEMA).create(
        [PartitionField("_kafka_timestamp", Transform.DAY)]
    )
    driver, state = taken(table, "run-a")
    changes = written_changes(table, change_rows([(1, 1)], 0))
    table.upsert(commit_of(state, driver, (0, 0, 1)), changes)
    assert [dict(one.partition) for one in table.live_files()] == [
        {"_kafka_timestamp_day": "1970-01-01"}
    ]


def test_with_statistics_that_are_read_wrongly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_may(_file: object, keys: pa.Table, _fields: object) -> pa.Array:
        return pa.repeat(pa.scalar(value=False), keys.num_rows)

    monkeypatch.setattr(iceberg_upsert, "may_hold", none_may)
    with pytest.raises(AssertionError, match="twice"):
        history(IcebergKind(tmp_path, schema=SCHEMA))


def late_upsert(kind: Kind) -> None:
    """A driver, its successor with the same new keys, and the driver's upsert after that."""
    zombie = kind.create()
    driver, state = taken(zombie, "run-a")
    rows = change_rows([(1, 1), (2, 2)], 0)
    changes, late = written_changes(zombie, rows), commit_of(state, driver, (0, 0, 2))
    successor = kind.open()
    new_driver, new_state = taken(successor, "run-b")
    successor.upsert(commit_of(new_state, new_driver, (0, 0, 2)), changes)
    zombie.upsert(late, changes)


def test_a_late_upsert_is_refused(kind: Kind) -> None:
    with pytest.raises(TableMovedError):
        late_upsert(kind)
    assert sorted(rows_in(kind.read())) == [1, 2]


def test_with_the_retries_of_pyiceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def commit_with_retries(_table: IcebergTable, change: IcebergTransaction) -> None:
        change.commit_transaction()

    monkeypatch.setattr(iceberg.IcebergTable, "_commit", commit_with_retries)
    kind = IcebergKind(tmp_path, schema=SCHEMA)
    late_upsert(kind)
    with pytest.raises(AssertionError, match="twice"):
        rows_in(kind.read())
