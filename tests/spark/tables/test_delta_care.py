"""Care of Delta tables: two compactions at once, and what an expiry leaves to others."""

import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from penstock.core.clock import SystemClock
from penstock.spark.tables import delta_care
from tests.spark.tables.table_kinds import (
    DeltaKind,
    commit_of,
    offsets_in,
    span,
    taken,
    written,
)

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


# --- Expiry, and somebody who vacuums ---

RETENTION_KEY = "delta.deletedFileRetentionDuration"


@pytest.mark.parametrize("setting", [None, "interval 30 days", "interval 2 hours"])
def test_an_expiry_leaves_how_long_removed_files_stay(tmp_path: Path, setting: str | None) -> None:
    kind = DeltaKind(tmp_path)
    table = kind.create()
    if setting is not None:
        DeltaTable(kind.uri).alter.set_table_properties(
            {RETENTION_KEY: setting}, raise_if_not_exists=False
        )
    driver, state = taken(table, "run-a")
    for start in (0, 10, 20):
        files = written(table, (0, start, start + 10))
        state = table.append(commit_of(state, driver, (0, start, start + 10)), files)
    state = table.compact(state, target_bytes=TARGET_BYTES).state
    assert table.expire(older_than_ms=2**42, keep_count=1).removed_count > 0
    assert DeltaTable(kind.uri).metadata().configuration.get(RETENTION_KEY) == setting

    # A batch has written its files, and somebody vacuums before it commits.
    files = written(table, (0, 30, 40))
    hour_ago = SystemClock().now_ms() / 1_000 - 3_600
    for one in (tmp_path / "orders").glob("*.parquet"):
        os.utime(one, (hour_ago, hour_ago))
    assert DeltaTable(kind.uri).vacuum(dry_run=False, full=True) == []
    table.append(commit_of(table.load(), driver, (0, 30, 40)), files)
    assert offsets_in(kind.read()) == span(0, 0, 40)
