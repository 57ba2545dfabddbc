"""Maintenance of Delta tables: the files that an expiry leaves to others."""

import os
from pathlib import Path

import pytest
from deltalake import DeltaTable

from penstock.core.clock import SystemClock
from tests.spark.tables.table_kinds import (
    DeltaKind,
    commit_of,
    offsets_in,
    span,
    taken,
    written,
)

TARGET_BYTES = 2**20
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

    # A batch has written its files, and another process vacuums before it commits.
    files = written(table, (0, 30, 40))
    hour_ago = SystemClock().now_ms() / 1_000 - 3_600
    for one in (tmp_path / "orders").glob("*.parquet"):
        os.utime(one, (hour_ago, hour_ago))
    assert DeltaTable(kind.uri).vacuum(dry_run=False, full=True) == []
    table.append(commit_of(table.load(), driver, (0, 30, 40)), files)
    assert offsets_in(kind.read()) == span(0, 0, 40)
