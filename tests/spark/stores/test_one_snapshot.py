"""Catalogs that keep only the current snapshot of a table, such as Nessie: notes are found anyway.

Every commit copies its note into the table's properties, so the snapshots before the current one
are not needed: not those of this pipeline, nor those of another one.
"""

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table as PyIcebergTable

from penstock.spark.tables.commit.decisions import Offer
from penstock.spark.tables.commit.note import CommitCounts, NoteError
from penstock.spark.tables.commit.steps import Committed
from penstock.spark.tables.formats.iceberg.table import IcebergTable
from penstock.spark.tables.formats.port import Table
from penstock.spark.tables.run.committer import TableCommitter
from tests.spark.tables.table_kinds import (
    SCHEMA,
    IcebergKind,
    batch_ranges,
    offsets_in,
    rows_of,
    span,
    written,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IcebergKind:
    """A table whose metadata is read with its current snapshot only."""
    real = PyIcebergTable.refresh

    def cut(table: PyIcebergTable) -> PyIcebergTable:
        real(table)
        current = table.metadata.current_snapshot_id
        left = [one for one in table.metadata.snapshots if one.snapshot_id == current]
        update = {"snapshots": left, "snapshot_log": []}
        table.metadata = table.metadata.model_copy(update=update)
        return table

    monkeypatch.setattr(PyIcebergTable, "refresh", cut)
    made = IcebergKind(tmp_path)
    made.create()
    return made


def committer(table: Table, pipeline: str, run: str = "run") -> TableCommitter:
    made = TableCommitter(table, pipeline, run)
    made.take()
    return made


def commit_range(one: TableCommitter, partition: int, start: int, end: int) -> None:
    found = (partition, start, end)
    offer = Offer(one.driver, batch_ranges(found), CommitCounts(end - start))
    assert isinstance(one.commit(offer, written(one.table, found)), Committed)


def test_the_next_driver_finds_the_notes_of_all_pipelines(kind: IcebergKind) -> None:
    first, second = committer(kind.open(), "orders"), committer(kind.open(), "returns")
    for number in range(3):
        commit_range(first, 0, number * 10, number * 10 + 10)
        commit_range(second, 1, number * 5, number * 5 + 5)
    table = kind.open()
    assert isinstance(table, IcebergTable)
    state = table.load()
    assert len(table._table.metadata.snapshots) == 1
    assert sorted(state.positions_of("orders").values()) == [30]
    assert sorted(state.positions_of("returns").values()) == [15]
    again = committer(kind.open(), "orders", "another run")
    commit_range(again, 0, 30, 40)
    assert offsets_in(kind.read()) == span(0, 0, 40) + span(1, 0, 15)


def test_a_commit_of_another_program_hides_no_note(kind: IcebergKind) -> None:
    commit_range(committer(kind.open(), "orders"), 0, 0, 10)
    table = kind.open()
    assert isinstance(table, IcebergTable)
    table._table.append(pa.Table.from_batches([rows_of(7, 0, 1)]).cast(SCHEMA))
    again = committer(kind.open(), "orders", "another run")
    commit_range(again, 0, 10, 20)
    assert offsets_in(kind.read()) == span(0, 0, 20) + span(7, 0, 1)


def test_a_rollback_to_a_commit_of_ours_is_what_the_table_holds(kind: IcebergKind) -> None:
    one = committer(kind.open(), "orders")
    commit_range(one, 0, 0, 10)
    earlier = snapshot_of(kind)
    commit_range(one, 0, 10, 20)
    put_back(kind, earlier)
    assert sorted(kind.open().load().positions_of("orders").values()) == [10]


def test_a_rollback_to_a_commit_of_another_program_is_refused(kind: IcebergKind) -> None:
    table = kind.open()
    assert isinstance(table, IcebergTable)
    for _ in range(2):  # the first snapshot of a table is its whole history
        table._table.append(pa.Table.from_batches([rows_of(7, 0, 1)]).cast(SCHEMA))
    earlier = snapshot_of(kind)
    commit_range(committer(kind.open(), "orders"), 0, 0, 10)
    put_back(kind, earlier)
    with pytest.raises(NoteError, match="before the last commit of pipeline 'orders'"):
        kind.open().load()


def snapshot_of(kind: IcebergKind) -> int:
    table = kind.open()
    assert isinstance(table, IcebergTable)
    found = table._table.metadata.current_snapshot_id
    assert found is not None
    return found


def put_back(kind: IcebergKind, snapshot: int) -> None:
    table = kind.open()
    assert isinstance(table, IcebergTable)
    whole = table._catalog.load_table(table._table.name())
    whole.manage_snapshots().rollback_to_snapshot(snapshot).commit()
