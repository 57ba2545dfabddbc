"""The rows of a few records, by the same rules as in a task: no broker and no table."""

from dataclasses import replace

import pyarrow as pa

from penstock.spark.decode.columns import spark_schema
from penstock.spark.tables.definition.model import (
    PipelineDefinition,
    PipelineSettings,
    SourceSettings,
    TableFormat,
    TableSettings,
    ValueFormat,
    ValueSettings,
    WriteMode,
)
from penstock.spark.tables.definition.model import SchemaSource as From
from penstock.spark.tables.inspection.sample import Sample, parse_sample
from penstock.spark.tables.values.value_parsers import new_parser, plan_parser

UPSERT = PipelineDefinition(
    PipelineSettings("orders", "127.0.0.1:9092", "/checkpoint"),
    SourceSettings(("orders",)),
    TableSettings(
        TableFormat.DELTA, "shop.orders", (("warehouse", "/w"),), (), WriteMode.UPSERT, ("id",)
    ),
    ValueSettings(ValueFormat.JSON, From.DDL, "id bigint, amount double"),
)


def parsed(definition: PipelineDefinition, *records: tuple[bytes, bytes | None]) -> Sample:
    rows = [
        {"key": key, "value": value, "topic": "orders", "partition": 0, "offset": offset}
        for offset, (key, value) in enumerate(records)
    ]
    table = pa.Table.from_pylist(rows, schema=spark_schema(include_headers=True))
    parser = new_parser(plan_parser(definition.value, ("orders",)))
    return parse_sample(table, parser, definition, asks_rules=True)


RECORDS = [(b"1", b'{"id": 1}'), (b"2", b'{"amount": 2}'), (b"1", None), (b"x", None)]


def test_rows_deletions_and_rejects_of_an_upsert() -> None:
    sample = parsed(UPSERT, *RECORDS)
    assert sample.record_count == 4
    assert [row[0] for row in sample.rows] == [1]
    assert sample.deletion_count == 2
    assert [(one.offset, one.error_class) for one in sample.rejects] == [
        (1, "missing_value"),
        (3, "type_mismatch"),
    ]


def test_the_same_appended() -> None:
    appended = replace(UPSERT.table, mode=WriteMode.APPEND, key=())
    sample = parsed(replace(UPSERT, table=appended), *RECORDS)
    assert [row[0] for row in sample.rows] == [1, None, None, None]
    assert (sample.deletion_count, sample.rejects) == (0, ())
