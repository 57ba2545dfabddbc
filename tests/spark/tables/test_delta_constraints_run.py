"""Constraints of a Delta table that rows meet on their way through Spark SQL."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.model import RunMode
from penstock.spark.tables.formats.port import TableRefusedError
from penstock.spark.tables.run.dataframe_stage import Transform
from penstock.spark.tables.run.table_pipeline import TablePipeline
from penstock.testing import Broker
from tests.spark.tables.foreign_delta import PLAIN, column, create_foreign, protocol_of
from tests.spark.tables.foreign_world import rows_of
from tests.spark.tables.inspection_world import fill_topic
from tests.spark.tables.pipeline_world import World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

VALUES = [b'{"id": 1, "amount": 5.0}', b'{"id": 2, "amount": -5.0}', b'{"id": 3}']
VALUE = {"format": "json", "schema": "id bigint, amount double", "reject_share_max": 1.0}
HALF = {"delta.constraints.half": "amount / 2 > 0"}
"""Which only Spark evaluates: a task has no division."""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        address = f"{broker.host}:{broker.port}"
        fill_topic(address, VALUES, partitions=1)
        yield address


def table_of(folder: Path) -> Path:
    return folder / "warehouse" / "shop" / "orders"


def run(
    spark: SparkSession,
    folder: Path,
    bootstrap: str,
    transform: Transform | None = None,
    **table: Any,  # noqa: ANN401 - keys of a definition
) -> RunMode:
    world = World(folder, "delta", bootstrap, "orders")
    definition = world.definition(value=VALUE, table=table)
    with TablePipeline(definition, transform=transform).start(spark, once=True) as running:
        running.await_end()
        return running.mode.mode


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_one_that_only_spark_evaluates(
    spark: SparkSession, tmp_path: Path, bootstrap: str, mode: str
) -> None:
    folder = table_of(tmp_path)
    create_foreign(folder, protocol_of(writer=3), fields=PLAIN, properties=HALF)
    table: dict[str, Any] = {"mode": "upsert", "key": ["id"]} if mode == "upsert" else {}
    assert run(spark, tmp_path, bootstrap, **table) is RunMode.DATAFRAME
    assert rows_of(str(folder), "id", "amount") == [(1, 5.0)]
    rejects = rows_of(f"{folder}__dlq", "offset", "error_class", "message")
    reason = "CHECK half: amount / 2 > 0"
    assert rejects == [(1, "constraint", reason), (2, "constraint", reason)]


def test_rows_of_a_function_are_asked(spark: SparkSession, tmp_path: Path, bootstrap: str) -> None:
    """Also about NOT NULL, and about a column that the function does not return."""

    def doubled(rows: DataFrame) -> DataFrame:
        return rows.withColumn("amount", rows.amount * 2)

    folder = table_of(tmp_path)
    fields = [column("id"), column("amount", "double", nullable=False), column("city", "string")]
    properties = {"delta.constraints.there": "amount > 0 AND city IS NULL"}
    create_foreign(folder, protocol_of(writer=3), fields=fields, properties=properties)
    run(spark, tmp_path, bootstrap, doubled)
    assert rows_of(str(folder), "id", "amount") == [(1, 10.0)]
    rejects = rows_of(f"{folder}__dlq", "offset", "error_class")
    assert rejects == [(1, "constraint"), (2, "missing_value")]


def test_a_function_that_drops_the_record_is_refused(
    spark: SparkSession, tmp_path: Path, bootstrap: str
) -> None:
    folder = table_of(tmp_path)
    create_foreign(folder, protocol_of(writer=3), fields=PLAIN, properties=HALF)
    with pytest.raises(DefinitionError, match="the function drops"):
        run(spark, tmp_path, bootstrap, lambda rows: rows.select("id", "amount"))


def test_one_that_nobody_understands_refuses_the_table_by_its_name(
    spark: SparkSession, tmp_path: Path, bootstrap: str
) -> None:
    folder = table_of(tmp_path)
    properties = {"delta.constraints.odd": "no_such_function(amount) > 0"}
    create_foreign(folder, protocol_of(writer=3), fields=PLAIN, properties=properties)
    with pytest.raises(TableRefusedError, match="'CHECK odd'"):
        run(spark, tmp_path, bootstrap)
    assert len(list((folder / "_delta_log").iterdir())) == 1
