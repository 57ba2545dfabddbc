"""The plans of tasks, before anything is written."""

from pathlib import Path

import pyarrow as pa

from penstock.spark.tables.formats.rejects import REJECTS
from penstock.spark.tables.run.plans import Plans
from penstock.spark.tables.values.value_parsers import new_parser, plan_parser
from tests.spark.tables.pipeline_world import World
from tests.spark.tables.table_kinds import IcebergKind


def test_deletions_have_the_key_that_comes_with_their_batch(tmp_path: Path) -> None:
    held = pa.schema([("id", pa.int32()), ("name", pa.string())])
    rows = IcebergKind(tmp_path / "rows", schema=held)
    rejects = IcebergKind(tmp_path / "rejects", schema=REJECTS)
    for one in (rows, rejects):
        one.folder.mkdir()
        one.create()
    definition = World(tmp_path, "iceberg", "127.0.0.1:1", "t").definition(
        table={"mode": "upsert", "key": ["id"], "metadata": "none"},
        value={"format": "json", "schema": "id bigint, name string"},
    )
    parser = plan_parser(definition.value, definition.source.topics)
    wider = new_parser(parser).schema
    for is_staged in (True, False):
        plans = Plans(definition, parser, wider, rows.open(), rejects.open(), is_staged=is_staged)
        deletions = plans.task.deletions
        assert deletions is not None
        assert deletions.schema.field("id").type == pa.int64()
