"""Each guard of the two tables removed: the contract must notice, or it proves nothing."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction
from pyiceberg.table import Transaction as IcebergTransaction

from penstock.spark.tables.commit.decisions import Commit, TableState, take_over
from penstock.spark.tables.commit.note import CommitNote, write_note
from penstock.spark.tables.files.data_files import write_files
from penstock.spark.tables.formats.delta import table as delta
from penstock.spark.tables.formats.delta.actions import add_action
from penstock.spark.tables.formats.delta.history import NOTE_KEY
from penstock.spark.tables.formats.delta.table import DeltaLakeTable
from penstock.spark.tables.formats.iceberg import table as iceberg
from penstock.spark.tables.formats.iceberg.table import IcebergTable
from penstock.spark.tables.formats.port import LayoutChangedError, TableMovedError
from tests.spark.tables.table_kinds import (
    DeltaKind,
    IcebergKind,
    Kind,
    commit_of,
    offsets_in,
    rows_of,
    span,
    taken,
    written,
)


def zombie_commits(kind: Kind) -> list[tuple[int, int]]:
    """A driver, its successor with the same batch, and the driver's commit after that."""
    zombie = kind.create()
    driver, state = taken(zombie, "run-a")
    late = commit_of(state, driver, (0, 0, 5))
    files = written(zombie, (0, 0, 5))
    successor = kind.open()
    new_driver, new_state = taken(successor, "run-b")
    commit = commit_of(new_state, new_driver, (0, 0, 5))
    successor.append(commit, written(successor, (0, 0, 5)))
    zombie.append(late, files)
    return offsets_in(kind.read())


@pytest.mark.parametrize("kind_of", [DeltaKind, IcebergKind])
def test_with_the_guards_it_is_refused(
    tmp_path: Path, kind_of: type[DeltaKind] | type[IcebergKind]
) -> None:
    kind: Kind = kind_of(tmp_path)
    with pytest.raises(TableMovedError):
        zombie_commits(kind)
    assert offsets_in(kind.read()) == span(0, 0, 5)


def test_retries_of_pyiceberg_commit_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def commit_with_retries(_table: IcebergTable, change: IcebergTransaction) -> None:
        change.commit_transaction()

    monkeypatch.setattr(iceberg.IcebergTable, "_commit", commit_with_retries)
    assert zombie_commits(IcebergKind(tmp_path)) == sorted(span(0, 0, 5) * 2)


def test_retries_of_deltalake_without_its_mark_commit_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def retrying(note: CommitNote, _now_ms: int) -> CommitProperties:
        return CommitProperties(custom_metadata={NOTE_KEY: write_note(note)})

    monkeypatch.setattr(delta, "note_properties", retrying)
    # Taking the table changes its properties, which deltalake lets no append pass.
    monkeypatch.setattr(DeltaLakeTable, "_take", lambda self, commit: self._add(commit.note, ()))
    assert zombie_commits(DeltaKind(tmp_path)) == sorted(span(0, 0, 5) * 2)


def test_the_mark_alone_does_not_refuse_who_has_a_fresh_handle(tmp_path: Path) -> None:
    """Why the table is read and decided upon, and not left to Delta's mark."""
    kind = DeltaKind(tmp_path)
    table = kind.create()
    driver, state = taken(table, "run-a")
    commit = commit_of(state, driver, (0, 0, 5))
    table.append(commit, written(table, (0, 0, 5)))
    fresh = kind.open()
    assert isinstance(fresh, DeltaLakeTable)
    marked = Transaction("penstock.orders", commit.note.sequence)
    properties = CommitProperties(app_transactions=[marked], max_commit_retries=0)
    actions = [add_action(one, (), 0) for one in written(fresh, (0, 0, 5))]
    fresh._table.create_write_transaction(
        [*actions], mode="append", schema=fresh._table.schema(), commit_properties=properties
    )
    assert offsets_in(kind.read()) == sorted(span(0, 0, 5) * 2)


def test_a_file_whose_columns_have_other_ids_is_not_committed(tmp_path: Path) -> None:
    """Somebody adds a column between the plan of ours and our commit: it has our id."""
    kind = IcebergKind(tmp_path)
    table = kind.create()
    driver, _ = taken(table, "run-1")
    grown = pa.schema([*table.schema(), pa.field("ours", pa.int64())])
    rows = rows_of(0, 0, 3, ours=pa.array([1, 2, 3], pa.int64()))
    files = write_files([rows], table.layout(grown), "task")
    other = kind.open()
    _, state = taken(other, "run-2", "other")
    theirs = pa.schema([*other.schema(), pa.field("theirs", pa.int64())])
    other.append(take_again(state), [], theirs)
    commit = commit_of(table.load(), driver, (0, 0, 3))
    with pytest.raises(LayoutChangedError, match="'ours'"):
        table.append(commit, files, grown)
    again = write_files([rows], table.layout(grown), "task")
    table.append(commit, again, grown)
    found = kind.read()
    assert found["ours"].to_pylist() == [1, 2, 3]
    assert found["theirs"].to_pylist() == [None, None, None]


def take_again(state: TableState) -> Commit:
    commit = take_over(state, "other", "run-3")
    assert isinstance(commit, Commit)
    return commit
