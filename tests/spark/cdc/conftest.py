"""Fixtures of tables that follow a database."""

from pathlib import Path

import pytest

from tests.spark.cdc.partial_world import Row, World
from tests.spark.tables import value_world
from tests.spark.tables.table_kinds import MergeOnReadKind
from tests.spark.tables.value_world import ValueWorld


@pytest.fixture(params=["delta", "iceberg", "merge_on_read"])
def make(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Both tables of a pipeline that takes partial updates."""
    table: Row = {"mode": "upsert", "key": ["id"], "partial_updates": True}
    format_ = request.param
    if format_ == "merge_on_read":
        format_, table["upserts"] = "iceberg", format_
        monkeypatch.setitem(value_world.KINDS, "iceberg", MergeOnReadKind)

    def made(ddl: str, value: Row | None = None, **more: object) -> ValueWorld:
        given = {"reject_share_max": 1.0, **(value or {})}
        return ValueWorld(tmp_path, format_, ddl, {**table, **more}, value=given)

    return made
