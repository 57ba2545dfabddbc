"""Whole pipelines into tables in Apache Hive's metastore, in each mode, over local folders."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.oracle.hive_metastore import hive_metastore
from tests.spark.conftest import BrokerNamed, NewTopic
from tests.spark.stores.test_store_pipelines import follow_pipeline
from tests.spark.tables.pipeline_world import World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.mark.parametrize("mode", ["in_task", "dataframe"])
def test_a_pipeline_into_a_metastore(
    mode: str, spark: SparkSession, tmp_path: Path, broker_named: BrokerNamed, new_topic: NewTopic
) -> None:
    broker = broker_named("penstock")
    with hive_metastore(tmp_path / "hive") as metastore:
        catalog = metastore.catalog(tmp_path / "warehouse")
        world = World(tmp_path, "iceberg", broker.bootstrap, new_topic(broker), catalog)
        follow_pipeline(world, mode, spark)
