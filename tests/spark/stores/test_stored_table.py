"""A table in a store: errors that may pass have one class, and its handle is renewed after one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.spark.tables.files.storages import StoreError
from penstock.spark.tables.formats.port import AnswerLostError, Table, TableMovedError
from penstock.spark.tables.formats.stored_table import StoredTable
from tests.spark.tables.table_kinds import FakeKind, commit_of, offsets_in, span, taken, written

Fail = Callable[[str, Exception], None]


@pytest.fixture
def kind(tmp_path: Path) -> FakeKind:
    made = FakeKind(tmp_path)
    made.create()
    return made


@pytest.fixture
def table(kind: FakeKind) -> StoredTable:
    return StoredTable(kind.open(), lambda text: text.replace("secret", "***"))


def failing(table: StoredTable, name: str, error: Exception | None, calls: list[str]) -> None:
    """Let the next call of the table inside fail; note each call."""
    inside: Table = table._table
    real, left = getattr(inside, name), [] if error is None else [error]

    def call(*given: object, **named: object) -> object:
        calls.append(name)
        if left:
            raise left.pop()
        return real(*given, **named)

    setattr(inside, name, call)


def test_after_an_error_that_may_pass_the_table_is_read_before_its_next_use(
    kind: FakeKind, table: StoredTable
) -> None:
    driver, state = taken(table, "run")
    calls: list[str] = []
    failing(table, "append", OSError("403 with secret"), calls)
    failing(table, "load", None, calls)
    commit = commit_of(state, driver, (0, 0, 10))
    files = written(table, (0, 0, 10))
    with pytest.raises(StoreError, match=r"the table cannot be written now: 403 with \*\*\*$"):
        table.append(commit, files)
    table.append(commit, files)
    assert calls[:3] == ["append", "load", "append"]
    assert offsets_in(kind.read()) == span(0, 0, 10)


@pytest.mark.parametrize("kind_of", [TableMovedError, AnswerLostError])
def test_errors_of_commits_keep_their_class_without_secrets(
    kind_of: type[Exception], table: StoredTable
) -> None:
    driver, state = taken(table, "run")
    failing(table, "append", kind_of("the secret answer"), [])
    with pytest.raises(kind_of, match=r"the \*\*\* answer"):
        table.append(commit_of(state, driver, (0, 0, 1)), ())


def test_other_errors_stay(table: StoredTable) -> None:
    failing(table, "load", ValueError("no store"), [])
    with pytest.raises(ValueError, match="no store"):
        table.load()
