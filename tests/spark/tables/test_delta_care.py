"""Two compactions of one Delta table, the second begun before the first has ended."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from penstock.spark.tables import delta_care

ROWS = [0, 1, 2, 3]
TARGET_BYTES = 2**20


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A table of small files, a row in each."""
    for row in ROWS:
        write_deltalake(str(tmp_path / "table"), pa.table({"row": [row]}), mode="append")
    return str(tmp_path / "table")


def rows_of(uri: str) -> list[int]:
    return sorted(DeltaTable(uri).to_pyarrow_table()["row"].to_pylist())


def optimize(table: DeltaTable) -> None:
    properties = delta_care.plain_properties(0)
    table.optimize.compact(target_size=TARGET_BYTES, commit_properties=properties)


def test_one_that_was_begun_before_another_is_refused(uri: str) -> None:
    slow = DeltaTable(uri)
    delta_care.mark(slow, 0)
    assert delta_care.compact(DeltaTable(uri), TARGET_BYTES, None, 0) == (4, 1)
    with pytest.raises(CommitFailedError, match="Metadata changed"):
        optimize(slow)
    assert rows_of(uri) == ROWS


def test_one_that_has_read_before_another_makes_no_mark(uri: str) -> None:
    slow = DeltaTable(uri)
    delta_care.compact(DeltaTable(uri), TARGET_BYTES, None, 0)
    with pytest.raises(CommitFailedError):
        delta_care.compact(slow, TARGET_BYTES, None, 0)
    assert rows_of(uri) == ROWS


def test_nothing_to_do_leaves_no_entry(uri: str) -> None:
    delta_care.compact(DeltaTable(uri), TARGET_BYTES, None, 0)
    table = DeltaTable(uri)
    assert delta_care.compact(table, TARGET_BYTES, None, 0) == (0, 0)
    assert DeltaTable(uri).version() == table.version()


def test_why_there_is_a_mark(uri: str) -> None:
    """When this fails, `deltalake` notices by itself, and the mark can go."""
    slow = DeltaTable(uri)
    optimize(DeltaTable(uri))
    optimize(slow)
    print(f"guard a Delta table is marked before it is compacted: rows {rows_of(uri)}")
    assert rows_of(uri) == sorted(ROWS * 2)
